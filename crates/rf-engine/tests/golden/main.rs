//! Models against reference logits, embeddings and scores: those of `tests/data` (tiny models and
//! the demo model of rf-cli), and all of `../shared/golden` where that folder exists.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "functions of tests")]

mod gpu;
mod latent;
mod models;
mod mtp;

use std::path::Path;

use models::{
    TinyModel, all_logits, argmax, data, demo, greedy, ids, json, load, mean_nll, shared,
};
use rf_cpu::{CpuBackend, CpuOptions, Isa};
use rf_engine::{EngineOptions, Model};
use rf_graph::{Backend, ReferenceBackend};
use serde_json::Value;

/// Checks every tiny model of a folder whose architecture is supported, on every ISA, and returns
/// their names. Prints which models are skipped. The reference is checked by rf-model.
fn check_tiny_models(folder: &Path) -> Vec<String> {
    let index = json(&folder.join("index.json"));
    let (mut checked, mut skipped) = (Vec::new(), Vec::new());
    let (mut has_recurrent, mut drafted_tokens) = (false, 0);
    for entry in ["models", "embeddings"].iter().flat_map(|list| index[list].as_array().unwrap()) {
        let model = TinyModel { folder, entry };
        let architecture = entry["architecture"].as_str().unwrap();
        if rf_model::golden_models(architecture).is_empty() {
            skipped.push(model.name().to_owned());
            continue;
        }
        for isa in Isa::available() {
            let options = CpuOptions { threads: Some(2), isa: Some(isa) };
            let (backend, isa) = (CpuBackend::new(options).unwrap(), isa.to_string());
            if model.is_embedding() {
                model.check_embedding(&backend, &isa);
            } else {
                model.check(&backend, &isa);
                if model.is_recurrent() || model.has_latents() {
                    let deviation = model.chunk_deviation(&backend);
                    assert_eq!(deviation.to_bits(), 0, "{} on {isa}", model.name());
                }
            }
        }
        if !model.is_embedding() && (model.is_recurrent() || model.has_latents()) {
            let deviation = model.chunk_deviation(&ReferenceBackend);
            assert_eq!(deviation.to_bits(), 0, "{} on the reference", model.name());
        }
        if !model.has_integer_weights() && !model.is_embedding() {
            let options = CpuOptions { threads: Some(2), isa: None };
            let backend = CpuBackend::new(options).unwrap();
            model.check_greedy(&backend);
            if model.is_recurrent() {
                has_recurrent = true;
                drafted_tokens += model.check_greedy_with_drafts(&backend);
            }
        }
        checked.push(model.name().to_owned());
    }
    if !skipped.is_empty() {
        let (count, names) = (skipped.len(), skipped.join(", "));
        eprintln!("skipped: {count} models of architectures that are not supported: {names}");
    }
    assert!(drafted_tokens > 0 || !has_recurrent, "no recurrent model had a draft");
    checked
}

#[test]
fn golden_models_of_every_architecture_match_on_every_isa() {
    let Some(folder) = shared("golden/arch") else { return };
    let mut checked = check_tiny_models(&folder);
    let architectures = rf_model::supported_architectures();
    let mut expected: Vec<&str> =
        architectures.iter().flat_map(|name| rf_model::golden_models(name)).copied().collect();
    checked.sort();
    expected.sort_unstable();
    assert_eq!(checked, expected);
}

/// The mean squared error of the logits that quantised activations may cause, relative to the mean
/// square of the logits.
const INT8_NMSE: f64 = 1.5e-3;

/// Checks every model of a folder of quantised models, on the reference and on every ISA, and
/// returns their names.
fn check_quantized_models(folder: &Path) -> Vec<String> {
    let index = json(&folder.join("index.json"));
    let mut checked = Vec::new();
    for entry in index["models"].as_array().unwrap() {
        let model = TinyModel { folder, entry };
        let name = model.name();
        let logits = |backend: &dyn Backend| all_logits(&mut model.load(backend), &model.ids());
        let error = model.largest_error(&logits(&ReferenceBackend));
        assert!(error < 2e-3, "{name} on the reference: off by {error}");
        for isa in Isa::available() {
            let options = CpuOptions { threads: Some(2), isa: Some(isa) };
            let (ours, stored) = model.at_positions(&logits(&CpuBackend::new(options).unwrap()));
            let errors = ours.iter().zip(&stored).map(|(a, b)| f64::from(a - b).powi(2));
            let squares: f64 = stored.iter().map(|b| f64::from(*b).powi(2)).sum();
            let nmse = errors.sum::<f64>() / squares;
            eprintln!("{name:20} {isa}: NMSE {nmse:.2e}");
            assert!(nmse < INT8_NMSE, "{name} on {isa}: NMSE {nmse}");
        }
        checked.push(name.to_owned());
    }
    checked
}

#[test]
fn models_in_iq_and_ternary_formats_match_the_stored_logits_on_every_isa() {
    assert_eq!(check_quantized_models(&data().join("iq")), ["iq_llama_IQ3_XXS"]);
    let Some(folder) = shared("golden/iq") else { return };
    assert_eq!(check_quantized_models(&folder).len(), 15);
}

#[test]
fn the_tiny_models_kept_here_match_their_stored_logits_and_tokens() {
    let folder = data();
    let expected = [
        "smollm3",
        "gemma4_e4b",
        "gptoss_mxfp4",
        "glm4moe",
        "deepseek2_groups",
        "nomic_bert",
        "bert_rank",
    ];
    assert_eq!(check_tiny_models(&folder), expected);
}

#[test]
fn the_demo_model_matches_the_exact_logits() {
    let golden = json(&data().join("logits-stories-7m.json"));
    let models = golden["models"].as_object().unwrap();
    assert!(!models.is_empty());
    for (file, data) in models {
        check_story_model(&demo().join(file), &golden, &data["exact"]);
    }
}

/// One file of `models/` against `golden/logits-stories-7m.json`, by the bounds of its bit width.
fn check_story_model(path: &Path, golden: &Value, exact: &Value) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let backend = CpuBackend::new(CpuOptions { threads: Some(2), isa: None }).unwrap();
    let options = EngineOptions { context_tokens: Some(1024), ..Default::default() };
    let mut engine = load(path, &backend, options);
    for (prompt, expected) in exact.as_object().unwrap() {
        let prompt_ids = ids(&golden["prompts"][prompt]["ids"]);
        let logits = all_logits(&mut engine, &prompt_ids);
        let nll = mean_nll(&logits, &prompt_ids);
        let exact_nll = expected["mean_nll"].as_f64().unwrap();
        let off = nll / exact_nll - 1.0;
        eprintln!("{name:28} {prompt:6} nll {nll:.6} exact {exact_nll:.6} {:+.3} %", off * 100.0);
        if prompt == "text" {
            let bound = if name.contains("Q2_K") || name.contains("Q3_K") { 0.01 } else { 0.005 };
            assert!(off.abs() < bound, "{name}: NLL {nll}, exact {exact_nll}");
        }
        let top: Vec<(usize, f64)> = expected["top16"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| (v[0].as_u64().unwrap() as usize, v[1].as_f64().unwrap()))
            .collect();
        if top[0].1 - top[1].1 > 0.15 {
            let last = &logits[logits.len() - engine.model().config().vocab_size..];
            assert_eq!(argmax(last), top[0].0, "{name} {prompt}");
        }
        if name.contains("F16") {
            let expected = ids(&expected["greedy"]);
            assert_eq!(
                greedy(&mut engine, &prompt_ids, expected.len()),
                expected,
                "{name} {prompt}"
            );
        }
    }
}

#[test]
fn the_story_models_match_the_exact_logits() {
    let (Some(models), Some(folder)) = (shared("models"), shared("golden")) else { return };
    let golden = json(&folder.join("logits-stories-7m.json"));
    let files = golden["models"].as_object().unwrap();
    assert_eq!(files.len(), 11);
    for (file, data) in files {
        check_story_model(&models.join(file), &golden, &data["exact"]);
    }
}

#[test]
fn a_context_beyond_the_limit_of_a_model_is_refused() {
    let Some(folder) = shared("golden/arch") else { return };
    let model = Model::open(folder.join("gpt2.gguf")).unwrap();
    let options = |context_tokens| EngineOptions {
        context_tokens: Some(context_tokens),
        ..Default::default()
    };
    assert!(model.memory_need(&ReferenceBackend, &options(256)).is_ok());
    let error = model.memory_need(&ReferenceBackend, &options(257)).unwrap_err();
    let message = "a context of 257 tokens is more than the 256 that this model is supported with: \
                   reduce it";
    assert_eq!(error.to_string(), message);
}
