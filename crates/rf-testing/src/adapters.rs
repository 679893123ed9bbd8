//! Golden adapters: random LoRA adapters and control vectors for golden models, with the results
//! of llama.cpp.

use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde_json::Value;

use crate::golden::{GoldenModel, floats, golden_models};
use crate::unpacked::unpacked;

/// Adapters of a golden model, and what llama.cpp computes with all of them for its text.
#[derive(Clone, Debug)]
pub struct GoldenAdapters {
    /// The name of the case.
    pub name: String,
    /// The model and the text.
    pub model: GoldenModel,
    /// The adapter files with their scales.
    pub adapters: Vec<(PathBuf, f32)>,
    /// A control vector file, its scale, and the layers that it changes.
    pub control: Option<(PathBuf, f32, RangeInclusive<usize>)>,
    /// The positions of the logits.
    pub positions: Vec<usize>,
    /// Logits, `[positions, vocab_size]`.
    pub logits: Vec<f32>,
    /// The largest difference that f32 arithmetic may have.
    pub bound: f32,
}

/// The golden adapters in the repository.
pub fn golden_adapters() -> Vec<GoldenAdapters> {
    let folder = crate::golden_folder().join("lora");
    let index: Value =
        serde_json::from_slice(&fs::read(folder.join("index.json")).unwrap()).unwrap();
    let models = golden_models();
    let case = |entry: &Value| {
        let name = entry["name"].as_str().unwrap().to_owned();
        let scaled = |entry: &Value| {
            let file = format!("{}.gguf.gz", entry["name"].as_str().unwrap());
            (unpacked(&folder.join(file)), entry["scale"].as_f64().unwrap() as f32)
        };
        let control = |entry: &Value| {
            let [first, last] = [0, 1].map(|i| entry["layers"][i].as_u64().unwrap() as usize);
            let (path, scale) = scaled(entry);
            (path, scale, first..=last)
        };
        let model = models.iter().find(|model| Some(model.name()) == entry["model"].as_str());
        let positions = entry["positions"].as_array().unwrap().iter();
        GoldenAdapters {
            model: model.unwrap().clone(),
            adapters: entry["adapters"].as_array().unwrap().iter().map(scaled).collect(),
            control: entry.get("control").map(control),
            positions: positions.map(|at| at.as_u64().unwrap() as usize).collect(),
            logits: floats(&folder.join(format!("{name}.logits.f32"))),
            bound: entry["bound"].as_f64().unwrap() as f32,
            name,
        }
    };
    index["cases"].as_array().unwrap().iter().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_files_and_results() {
        for case in golden_adapters() {
            assert!(case.adapters.iter().all(|(path, _)| path.is_file()), "{}", case.name);
            assert_eq!(case.logits.len() % case.positions.len(), 0, "{}", case.name);
            assert!(case.bound > 0.0 && case.bound < 1e-3, "{}", case.name);
        }
    }
}
