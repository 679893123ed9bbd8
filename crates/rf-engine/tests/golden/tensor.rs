//! Golden models whose layers several parts of the CPU compute together.

use std::time::Duration;

use rf_cpu::CpuBackend;
use rf_engine::{Engine, EngineOptions, Model};
use rf_graph::tensor::{TensorBackend, divide};
use rf_graph::{Backend, Fusions};
use rf_oracle::ReferenceBackend;
use rf_testing::engine::{cpu, golden};
use rf_testing::{StubBackend, golden_folder, golden_models, prompt};

use crate::models::{
    TinyModel, all_logits, assert_lost_in_the_second_step, demo_folder, find, greedy, ids, json,
    load,
};
use crate::{INT8_NMSE, adapters, check_story_model, mtp};

/// Some CPUs as one.
fn as_one(cpus: &[CpuBackend]) -> TensorBackend<'_> {
    let parts: Vec<(&dyn Backend, f32)> = cpus.iter().map(|cpu| (cpu as _, 1.0)).collect();
    TensorBackend::new(&parts).unwrap().with_shared_memory()
}

fn cpus(count: usize) -> Vec<CpuBackend> {
    (0..count).map(|_| cpu(1)).collect()
}

/// The messages of values beyond the bound of one part.
fn wrong_on_parts(model: &TinyModel, backend: &dyn Backend, what: &str) -> Vec<String> {
    if model.is_embedding() {
        model.check_embedding(backend, what);
        return Vec::new();
    }
    let need = model.open().memory_need(backend, &model.options()).unwrap();
    let mut engine = model.load(backend);
    assert_eq!(engine.memory(), need.held, "{} on {what}", model.name());
    let wrong = model.deviations(&all_logits(&mut engine, &model.ids()), what);
    drop(engine);
    if wrong.is_empty() && !model.has_integer_weights() {
        model.check_greedy(backend);
    }
    wrong
}

#[test]
fn golden_models_of_every_architecture_match_on_two_and_four_parts() {
    for count in [2, 4] {
        let cpus = cpus(count);
        let backend = as_one(&cpus);
        let what = format!("{count} parts");
        let mut wrong = Vec::new();
        let (mut divided, mut all) = (0, 0);
        for model in golden_models().into_iter().map(TinyModel) {
            if !model.is_embedding() {
                let division = backend.division(&model.open().program(&model.options()).unwrap());
                eprintln!("{:24} {division}", model.name());
                divided += usize::from(division.sums > 0);
                all += 1;
            }
            wrong.extend(wrong_on_parts(&model, &backend, &what));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // The others have recurrent states, latents, or too few heads and blocks.
        eprintln!("{divided} of {all} models are divided over {count} parts");
        assert!(10 * divided > 9 * all, "{divided} of {all}");
    }
}

/// The block for further tokens is one stage, and another stage outputs the logits.
#[test]
fn blocks_for_further_tokens_match_on_two_parts() {
    let cpus = cpus(2);
    for name in ["glm4moe", "qwen35_mtp"] {
        let (model, backend) = (find(name), as_one(&cpus));
        mtp::check(&model, &backend, "two parts");
        mtp::check_greedy(&model, &backend);
    }
}

#[test]
fn golden_adapters_match_on_two_and_four_parts() {
    for count in [2, 4] {
        let cpus = cpus(count);
        adapters::check(&as_one(&cpus), &format!("{count} parts"), 0.0);
    }
}

/// The bits of logits of a prompt in chunks.
fn bits(backend: &dyn Backend, model: Model, batch_tokens: usize) -> Vec<u32> {
    let options =
        EngineOptions::default().with_context_tokens(Some(96)).with_batch_tokens(batch_tokens);
    let mut engine = Engine::load(model, backend, options, &mut |_| ()).unwrap();
    let logits = all_logits(&mut engine, &prompt(7, 40));
    logits.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn the_bits_depend_on_the_parts_only() {
    for name in ["gptoss_mxfp4", "glm4moe", "gemma4_e4b"] {
        let few = cpus(2);
        let expected = bits(&as_one(&few), golden(name), 64);
        let many = [cpu(2), cpu(3)];
        for (cpus, batch_tokens) in [(&many[..], 64), (&few[..], 7), (&many[..], 1)] {
            let found = bits(&as_one(cpus), golden(name), batch_tokens);
            assert!(found == expected, "{name} in batches of {batch_tokens}");
        }
    }
}

#[test]
fn one_part_has_the_bits_of_a_backend_alone() {
    let alone = cpu(2);
    let parts: [(&dyn Backend, f32); 2] = [(&alone, 1.0), (&ReferenceBackend, 0.0)];
    let one = TensorBackend::new(&parts).unwrap();
    let model = || golden("gemma4_e4b");
    assert!(bits(&one, model(), 64) == bits(&alone, model(), 64));
    assert!(TensorBackend::new(&[(&alone, 0.0)]).is_none());
}

/// The weights of the demo model are in Q8_0.
#[test]
fn the_demo_model_tells_the_same_story_on_two_parts() {
    let golden = json(&golden_folder().join("logits-stories-7m.json"));
    let options = EngineOptions::default().with_context_tokens(Some(1100));
    let cpus = cpus(2);
    for (file, data) in golden["models"].as_object().unwrap() {
        let path = demo_folder().join(file);
        let program = Model::open(&path).unwrap().program(&options).unwrap();
        assert!(divide(&program, &[1.0, 1.0]).division.sums > 0);
        check_story_model(&path, &golden, &data["exact"], &as_one(&cpus));
        let mut alone = load(&path, &cpu(2), options);
        let mut parts = load(&path, &as_one(&cpus), options);
        let story = ids(&golden["prompts"]["story"]["ids"]);
        // Activations that are rounded to integers decide between tokens that are about as likely.
        assert_eq!(greedy(&mut parts, &story, 20), greedy(&mut alone, &story, 20), "{file}");
        for prompt in golden["prompts"].as_object().unwrap().values() {
            let ids = ids(&prompt["ids"]);
            let [expected, found] = [&mut alone, &mut parts].map(|e| all_logits(e, &ids));
            let errors = found.iter().zip(&expected).map(|(a, b)| f64::from(a - b).powi(2));
            let squares: f64 = expected.iter().map(|x| f64::from(*x).powi(2)).sum();
            let nmse = errors.sum::<f64>() / squares;
            eprintln!("{file}: NMSE of two parts {nmse:.2e}");
            // Twice the deviation that the rounding of each may cause.
            assert!(nmse < 4.0 * INT8_NMSE, "{file}: {nmse}");
        }
    }
}

#[test]
fn parts_may_be_of_different_kinds_and_sizes() {
    let model = find("qwen3");
    let cpu = cpu(2);
    let parts: [(&dyn Backend, f32); 2] = [(&cpu, 1.0), (&ReferenceBackend, 3.0)];
    let backend = TensorBackend::new(&parts).unwrap();
    assert_eq!(backend.fusions(), Fusions::NONE);
    let wrong = wrong_on_parts(&model, &backend, "a CPU and the reference");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_part_that_fails_ends_the_step_of_all_with_its_error() {
    let first = cpu(1);
    let second = StubBackend::new(cpu(1), "CPU", u64::MAX).with_steps(1);
    let parts: [(&dyn Backend, f32); 2] = [(&first, 1.0), (&second, 1.0)];
    let backend = TensorBackend::new(&parts).unwrap().with_limit(Duration::from_mins(10));
    let options = EngineOptions::default().with_context_tokens(Some(96));
    let engine = Engine::load(golden("qwen3"), &backend, options, &mut |_| ()).unwrap();
    assert_lost_in_the_second_step(engine);
}
