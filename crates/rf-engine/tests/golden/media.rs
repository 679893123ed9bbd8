//! Pictures among tokens: the rows are given, and the logits and the text are llama.cpp's.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{Event, Request, SchedulerOptions, StepScheduler};
use rf_engine::{
    Engine, EngineOptions, GenerateOptions, MediaRows, MixedPrompt, Model, Outputs, SequenceInput,
};
use rf_gguf::Gguf;
use rf_graph::{Backend, KvType};
use rf_oracle::ReferenceBackend;
use rf_testing::engine::cpu;
use rf_testing::{shared, skip};
use serde_json::Value;

use crate::models::{ids, json};

fn floats(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// The engine of a model, with batches of so many tokens.
fn engine(path: &Path, backend: &dyn Backend, batch_tokens: usize) -> Engine {
    // The reference leaves this value out.
    const EPS: &str = "qwen2vl.attention.layer_norm_rms_epsilon";
    let options = EngineOptions::default()
        .with_context_tokens(Some(256))
        .with_kv_type(KvType::F32)
        .with_page_tokens(16)
        .with_batch_tokens(batch_tokens)
        .with_sequences(2)
        .with_speculates(true)
        .with_checkpoints(4);
    let mut gguf = Gguf::open(path).unwrap();
    if gguf.metadata().get(EPS).is_some() {
        gguf.override_metadata(EPS, rf_gguf::Value::F32(0.0));
    }
    let model = Model::from_gguf(gguf).unwrap();
    Engine::load(model, backend, options, &mut |_| ()).unwrap()
}

/// The logits of a prompt at every place.
fn logits(engine: &mut Engine, prompt: &MixedPrompt) -> Vec<f32> {
    let mut session = engine.session();
    session.set_prompt(prompt);
    let (session, outputs) = (&mut session, Outputs::All);
    engine.forward(&mut [SequenceInput { session, ids: prompt.ids(), outputs }]).unwrap()
}

fn largest_error(ours: &[f32], stored: &[f32]) -> f32 {
    assert_eq!(ours.len(), stored.len());
    let errors = ours.iter().zip(stored).map(|(a, b)| (a - b).abs());
    errors.max_by(f32::total_cmp).unwrap()
}

#[test]
fn logits_of_rows_and_tokens_match_on_the_reference_and_the_cpu() {
    check_rows(&[&ReferenceBackend, &cpu(2)], &[64, 5, 1], 0.0);
}

/// Checks the logits of prompts with rows, in batches of so many tokens. `rounding` is added to the
/// bounds of the models, as a share of the largest logit.
pub(crate) fn check_rows(backends: &[&dyn Backend], batch_tokens: &[usize], rounding: f32) {
    let Some(folder) = shared("golden/arch3") else { return };
    let index = json(&folder.join("index.json"));
    let mut checked = 0;
    for model in index["models"].as_array().unwrap() {
        let image = &model["image"];
        if image.is_null() {
            continue;
        }
        let file = |name: &Value| folder.join(name.as_str().unwrap());
        let [rows, columns] = [0, 1].map(|i| number(&image["grid"][i]));
        let values = floats(&file(&image["embeddings"]));
        let media = MediaRows::new(values, number(&image["width"]), [7; 32]);
        let mut prompt = MixedPrompt::from(ids(&image["before"]));
        prompt.push_media(Arc::new(media.with_grid(Some([columns, rows]))));
        prompt.push_tokens(&ids(&image["after"]));
        let stored = floats(&file(&image["logits"]));
        let largest = stored.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
        let bound = model["bound"].as_f64().unwrap() as f32 + rounding * largest;
        for &backend in backends {
            for &batch_tokens in batch_tokens {
                let mut engine = engine(&file(&model["file"]), backend, batch_tokens);
                let error = largest_error(&logits(&mut engine, &prompt), &stored);
                let what = format!("{} on {} by {batch_tokens}", model["name"], backend.name());
                eprintln!("{what}: {error:.1e}");
                assert!(error < bound, "{what}: off by {error}, bound {bound}");
            }
        }
        checked += 1;
    }
    assert!(checked > 0);
}

/// A prompt of `golden/vision`, with the stored rows. Of large pictures only the first ones are
/// stored: then there is no prompt.
fn prompt_of(family: &Value, prompt: &Value, folder: &Path) -> Option<MixedPrompt> {
    let path = folder.join(family["name"].as_str().unwrap()).join("embeddings.f32");
    let stored = floats(&path);
    let mut mixed = MixedPrompt::default();
    let inputs = family["media"].as_array().unwrap();
    // The parts of all pictures of the prompt, in order.
    let names = prompt["media"].as_array().unwrap().iter();
    let parts = names.flat_map(|name| {
        let input = inputs.iter().find(|input| input["input"] == *name).unwrap();
        let chunks = input["chunks"].as_array().unwrap().iter();
        chunks.filter(|chunk| chunk["type"] != "text").map(move |chunk| (name, chunk))
    });
    let mut parts = parts.enumerate();
    for chunk in prompt["chunks"].as_array().unwrap() {
        if chunk["type"] == "text" {
            mixed.push_tokens(&ids(&chunk["tokens"]));
            continue;
        }
        let (index, (name, part)) = parts.next().unwrap();
        let embeddings = &part["embeddings"];
        let [count, width] = [0, 1].map(|i| number(&embeddings["shape"][i]));
        if count != number(&chunk["n_tokens"]) {
            return None;
        }
        let first = number(&embeddings["offset"]);
        let values = stored[first..first + count * width].to_vec();
        let grid = &chunk["grid"];
        let grid = (!grid.is_null()).then(|| [0, 1].map(|i| number(&grid[i])));
        // The parts of a picture differ, and the same picture is the same.
        let mut digest = [name.as_str().unwrap().as_bytes()[0]; 32];
        if names_of(prompt) == 1 {
            digest[0] = u8::try_from(index).unwrap();
        }
        let rows = MediaRows::new(values, width, digest).with_grid(grid);
        mixed.push_media(Arc::new(rows.with_non_causal(chunk["non_causal"] == true)));
    }
    Some(mixed)
}

fn names_of(prompt: &Value) -> usize {
    prompt["media"].as_array().unwrap().len()
}

/// The tokens that a scheduler generates, and those of the prompt that the prefix cache had.
fn generate(engine: &mut Engine, prompt: &MixedPrompt, step: usize) -> (Vec<u32>, usize) {
    let options = SchedulerOptions::default().with_max_batched_tokens(step);
    let mut steps = StepScheduler::new(engine, options).unwrap();
    let options = GenerateOptions::default()
        .with_sampler(SamplerConfig::greedy())
        .with_max_tokens(8)
        .with_ignore_eos(true);
    steps.submit(engine, Request::new(prompt.clone(), options)).unwrap();
    let (mut ids, mut cached) = (Vec::new(), 0);
    while !steps.is_idle() {
        steps.step(engine, None, &mut |_, event| {
            match event {
                Event::Token { id, .. } => ids.push(id),
                Event::Started { cached_tokens, .. } => cached = cached_tokens,
                Event::Failed(error) => panic!("{error}"),
                _ => {}
            }
            ControlFlow::Continue(())
        });
    }
    (ids, cached)
}

#[test]
fn logits_and_texts_after_pictures_match() {
    check_prompts(&cpu(2), None);
}

/// Checks the logits of prompts with the stored rows of pictures, and without `rounding` the texts
/// after them, too. `rounding` is added to the bounds, as a share of the largest logit.
pub(crate) fn check_prompts(backend: &dyn Backend, rounding: Option<f32>) {
    let Some(folder) = shared("golden/vision") else { return };
    let index = json(&folder.join("index.json"));
    let supported = rf_model::supported_architectures();
    let mut checked = 0;
    for family in index["families"].as_array().unwrap() {
        let name = family["name"].as_str().unwrap();
        if !supported.contains(&family["architecture"].as_str().unwrap()) {
            skip!("{} is not supported: {name}", family["architecture"]);
            continue;
        }
        let path = folder.join(family["model"].as_str().unwrap());
        let all_logits = floats(&folder.join(name).join("logits.f32"));
        // Q8_0 weights round activations.
        let bound = if name == "gemma4v_e2b" { 0.3 } else { 1e-3 };
        for prompt in family["prompts"].as_array().unwrap() {
            let Some(mixed) = prompt_of(family, prompt, &folder) else { continue };
            let what = format!("{name}/{}", prompt["name"]);
            let stored = &prompt["logits"];
            let [count, vocab_size] = [0, 1].map(|i| number(&stored["shape"][i]));
            let stored = &all_logits[number(&stored["offset"])..][..count * vocab_size];
            let largest = stored.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
            let bound = bound + rounding.unwrap_or(0.0) * largest;
            let greedy = ids(&prompt["greedy"]);
            // A batch has all rows that see each other.
            let chunks = prompt["chunks"].as_array().unwrap().iter();
            let whole = chunks.filter(|chunk| chunk["non_causal"] == true);
            let least = whole.map(|chunk| number(&chunk["n_tokens"])).max().unwrap_or(1);
            for batch_tokens in [256, least.max(16)] {
                let mut engine = engine(&path, backend, batch_tokens);
                let ours = logits(&mut engine, &mixed);
                let error = largest_error(&ours[ours.len() - stored.len()..], stored);
                eprintln!("{what} by {batch_tokens}: {error:.1e}");
                assert!(error < bound, "{what}: off by {error}, bound {bound}");
                if rounding.is_some() {
                    continue;
                }
                let (first, cached) = generate(&mut engine, &mixed, batch_tokens);
                assert_eq!((&first, cached), (&greedy, 0), "{what}");
                let (second, cached) = generate(&mut engine, &mixed, batch_tokens);
                assert_eq!(second, greedy, "{what} again");
                assert!(cached > 0 || mixed.len() <= 16, "{what}: nothing was cached");
            }
            checked += 1;
        }
    }
    assert!(checked > 0);
}
