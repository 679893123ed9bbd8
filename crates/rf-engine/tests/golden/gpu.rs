//! The golden models on the GPU of this machine, if it has one.

use rf_graph::Backend;
use rf_kernels::{GpuBackend, GpuOptions};

use crate::models::{TinyModel, all_logits, data, json, logits_by_token, shared};

#[test]
fn golden_models_match_on_the_gpu() {
    let backend = match GpuBackend::new(GpuOptions::default()) {
        Ok(backend) => backend,
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    eprintln!("{}", backend.description());
    let mut wrong = Vec::new();
    for folder in [Some(data()), shared("golden/arch")].into_iter().flatten() {
        let index = json(&folder.join("index.json"));
        for entry in index["models"].as_array().unwrap() {
            let model = TinyModel { folder: &folder, entry };
            let architecture = entry["architecture"].as_str().unwrap();
            if rf_model::golden_models(architecture).is_empty() || !model.is_there() {
                eprintln!("skipped: {}", model.name());
                continue;
            }
            if model.is_recurrent() {
                eprintln!("skipped: {}: recurrent layers run on the CPU only", model.name());
                continue;
            }
            let (mut engine, ids) = (model.load(&backend), model.ids());
            let whole = all_logits(&mut engine, &ids);
            let by_token = logits_by_token(&mut engine, &ids);
            for (logits, form) in [(whole, "a prompt"), (by_token, "single tokens")] {
                let error = model.largest_error(&logits);
                eprintln!("{:24} {form:14} {error:.1e}", model.name());
                wrong.extend(model.deviations(&logits, &format!("the GPU in {form}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} deviations:\n{}", wrong.len(), wrong.join("\n"));
}
