//! Every supported architecture against the logits of its golden models, on the reference backend.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::path::{Path, PathBuf};

use rf_gguf::Gguf;
use rf_graph::{Backend, Batch, KvLayout, KvType, Program, ReferenceBackend, Span};
use rf_kv::PageId;
use rf_model::{ModelConfig, build, golden_models, supported_architectures};
use serde_json::Value;

/// The golden models outside of the repository.
fn folder() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/arch");
    path.is_dir().then_some(path)
}

fn index(folder: &Path) -> Vec<Value> {
    let index = std::fs::read(folder.join("index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    index["models"].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
}

/// Logits of some positions of a prompt, in one batch.
fn logits(gguf: &Gguf, ids: &[u32], context_tokens: usize, positions: &[usize]) -> Vec<f32> {
    let config = ModelConfig::from_gguf(gguf).unwrap();
    let (graph, weights) = build(gguf, &config, context_tokens).unwrap();
    let pages: Vec<PageId> = (0..ids.len().div_ceil(16)).map(|i| PageId::new(i as u32)).collect();
    let kv = KvLayout {
        layers: config.kv_layers(),
        page_tokens: 16,
        num_pages: pages.len(),
        dtype: KvType::F32,
    };
    let (max_batch_tokens, max_output_rows) = (ids.len(), positions.len());
    let program = Program { graph, weights, kv, max_batch_tokens, max_output_rows };
    let mut executor = ReferenceBackend.compile(program, &mut |_| ()).unwrap();
    let span = Span { tokens: 0..ids.len(), past_tokens: 0, pages: &pages };
    let batch = Batch { ids, spans: &[span], output_rows: positions, input: None };
    let mut out = vec![0.0; positions.len() * config.vocab_size];
    executor.forward(&batch, &mut out).unwrap();
    out
}

/// Largest difference from the stored logits.
fn error(folder: &Path, model: &Value) -> f32 {
    let gguf = Gguf::open(folder.join(model["file"].as_str().unwrap())).unwrap();
    let ids: Vec<u32> = numbers(&model["ids"]).into_iter().map(|id| id as u32).collect();
    let context_tokens = model["n_ctx"].as_u64().unwrap() as usize;
    let ours = logits(&gguf, &ids, context_tokens, &numbers(&model["positions"]));
    let stored = std::fs::read(folder.join(model["logits"].as_str().unwrap())).unwrap();
    let stored = stored.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
    assert_eq!(ours.len(), stored.len());
    ours.into_iter().zip(stored).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn every_supported_architecture_has_golden_models() {
    for architecture in supported_architectures() {
        assert!(!golden_models(architecture).is_empty(), "{architecture}");
    }
}

#[test]
fn every_architecture_matches_the_logits_of_its_golden_models() {
    let Some(folder) = folder() else {
        eprintln!("skipped: shared/golden/arch is not beside the project");
        return;
    };
    let models = index(&folder);
    let mut failures = Vec::new();
    for architecture in supported_architectures() {
        for name in golden_models(architecture) {
            let model = models.iter().find(|model| model["name"] == *name);
            let model = model.unwrap_or_else(|| panic!("the index has no {name}"));
            assert_eq!(model["architecture"], architecture, "{name}");
            let bound = model["bound"].as_f64().unwrap_or(2e-3) as f32;
            let error = error(&folder, model);
            eprintln!("{name:24} off by {error:.1e}, bound {bound:.1e}");
            if error > bound || error.is_nan() {
                failures.push(format!("{name}: off by {error}, bound {bound}"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    // Every model of a supported architecture is named by its family.
    for model in &models {
        let architecture = model["architecture"].as_str().unwrap();
        let name = model["name"].as_str().unwrap();
        let known = golden_models(architecture);
        assert!(
            known.is_empty() || known.contains(&name),
            "{name} of {architecture} is not checked"
        );
    }
}
