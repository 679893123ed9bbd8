//! Models against reference logits, embeddings and scores: those of `golden` in the repository, the
//! demo model of rf-cli, and the larger ones of `../shared/golden` where that folder exists.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "functions of tests")]

mod adapters;
mod gpu;
mod latent;
mod media;
mod models;
mod mtp;
mod tensor;

use std::collections::BTreeSet;
use std::path::Path;

use models::{TinyModel, all_logits, argmax, demo_folder, greedy, ids, json, load, mean_nll};
use rf_cpu::{CpuBackend, CpuOptions, Isa};
use rf_engine::EngineOptions;
use rf_gguf::Gguf;
use rf_graph::Backend;
use rf_oracle::ReferenceBackend;
use rf_quant::DType;
use rf_testing::engine::{cpu, golden};
use rf_testing::{GoldenModel, golden_folder, golden_models, golden_models_in, shared, skip};
use serde_json::Value;

/// Checks tiny models on every ISA. The reference is checked by rf-model.
fn check_tiny_models(models: Vec<GoldenModel>) {
    let mut drafted_tokens = 0;
    for model in models.into_iter().map(TinyModel) {
        for isa in Isa::available() {
            let options = CpuOptions::default().with_threads(2).with_isa(isa);
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
            let backend = cpu(2);
            model.check_greedy(&backend);
            if model.is_recurrent() {
                drafted_tokens += model.check_greedy_with_drafts(&backend);
            }
        }
    }
    assert!(drafted_tokens > 0, "no recurrent model had a draft");
}

#[test]
fn golden_models_of_every_architecture_match_on_every_isa() {
    let models = golden_models();
    let proven: BTreeSet<&str> = models.iter().map(GoldenModel::architecture).collect();
    assert_eq!(proven, rf_model::supported_architectures().into_iter().collect());
    check_tiny_models(models);
}

/// Some of the larger models have formats that no backend reads yet.
fn has_known_formats(model: &GoldenModel) -> bool {
    Gguf::open(model.path()).unwrap().tensors().iter().all(|tensor| tensor.dtype().is_ok())
}

/// These are the same kinds of models, ten times as large.
#[test]
fn larger_golden_models_match_on_every_isa() {
    for models in larger_models() {
        check_tiny_models(models);
    }
}

/// The models of each shared folder whose architectures and formats are supported.
fn larger_models() -> impl Iterator<Item = Vec<GoldenModel>> {
    let folders = ["golden/arch", "golden/arch3"].into_iter().filter_map(shared);
    folders.map(|folder| {
        let supported = rf_model::supported_architectures();
        let (models, others): (Vec<_>, Vec<_>) =
            golden_models_in(&folder).into_iter().partition(|model| {
                // The results of qwen2vl are those of an epsilon of 0, which its file does not say.
                // Those of nomic_bert_moe agree with no other computation.
                supported.contains(&model.architecture())
                    && has_known_formats(model)
                    && !["qwen2vl", "nomic_bert_moe"].contains(&model.name())
            });
        for model in others {
            skip!("{} is not supported: {}", model.architecture(), model.name());
        }
        models
    })
}

/// The mean squared error of the logits that quantised activations may cause, relative to the mean
/// square of the logits.
const INT8_NMSE: f64 = 1.5e-3;

/// Checks quantised models on the reference and on every ISA.
fn check_quantized_models(models: Vec<GoldenModel>) {
    for model in models.into_iter().map(TinyModel) {
        let name = model.name();
        let logits = |backend: &dyn Backend| all_logits(&mut model.load(backend), &model.ids());
        let error = model.largest_error(&logits(&ReferenceBackend));
        assert!(error < 2e-3, "{name} on the reference: off by {error}");
        for isa in Isa::available() {
            let options = CpuOptions::default().with_threads(2).with_isa(isa);
            let (ours, stored) = model.at_positions(&logits(&CpuBackend::new(options).unwrap()));
            let errors = ours.iter().zip(&stored).map(|(a, b)| f64::from(a - b).powi(2));
            let squares: f64 = stored.iter().map(|b| f64::from(*b).powi(2)).sum();
            let nmse = errors.sum::<f64>() / squares;
            eprintln!("{name:20} {isa}: NMSE {nmse:.2e}");
            assert!(nmse < INT8_NMSE, "{name} on {isa}: NMSE {nmse}");
        }
    }
}

#[test]
fn models_in_codebook_and_low_formats_match_the_stored_logits_on_every_isa() {
    let models = golden_models_in(&golden_folder().join("iq"));
    let files: Vec<Gguf> = models.iter().map(|model| Gguf::open(model.path()).unwrap()).collect();
    let dtypes = files.iter().flat_map(Gguf::tensors).map(|tensor| tensor.dtype().unwrap());
    let proven: BTreeSet<&str> = dtypes.map(DType::name).collect();
    for name in DType::ALL.iter().map(|dtype| dtype.name()) {
        let is_checked_here = name.starts_with("IQ")
            || name.starts_with("TQ")
            || ["NVFP4", "Q1_0", "Q2_0"].contains(&name);
        assert!(!is_checked_here || proven.contains(name), "no model has {name}");
    }
    check_quantized_models(models);
}

/// Models of one format each.
#[test]
fn models_of_one_codebook_or_ternary_format_match_the_stored_logits_on_every_isa() {
    let Some(folder) = shared("golden/iq") else { return };
    check_quantized_models(golden_models_in(&folder));
}

#[test]
fn the_demo_model_matches_the_exact_logits() {
    let golden = json(&golden_folder().join("logits-stories-7m.json"));
    let models = golden["models"].as_object().unwrap();
    assert!(!models.is_empty());
    for (file, data) in models {
        check_story_model(&demo_folder().join(file), &golden, &data["exact"], &cpu(2));
    }
}

/// One file of `models/` against `golden/logits-stories-7m.json`, by the bounds of its bit width.
fn check_story_model(path: &Path, golden: &Value, exact: &Value, backend: &dyn Backend) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let options = EngineOptions::default().with_context_tokens(Some(1024));
    let mut engine = load(path, backend, options);
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
        check_story_model(&models.join(file), &golden, &data["exact"], &cpu(2));
    }
}

#[test]
fn a_context_beyond_the_limit_of_a_model_is_refused() {
    let model = golden("gpt2");
    let options =
        |context_tokens| EngineOptions::default().with_context_tokens(Some(context_tokens));
    assert!(model.memory_need(&ReferenceBackend, &options(64)).is_ok());
    let error = model.memory_need(&ReferenceBackend, &options(65)).unwrap_err();
    let message = "a context of 65 tokens is not supported: the maximum for this model is 64";
    assert_eq!(error.to_string(), message);
}
