//! Golden models: tiny models of random weights with the results of llama.cpp.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::unpacked::{plain_or_unpacked, unpacked};

/// The golden models in the repository: at least one of every supported architecture.
pub fn golden_models() -> Vec<GoldenModel> {
    golden_models_in(&crate::golden_folder().join("arch"))
}

/// The folder and the name of models whose stored results are wrong: the reference applied GELU to
/// its own result.
const WRONG_RESULTS: [(&str, &str); 1] = [("arch3", "jina_bert_v3")];

/// The golden models of a folder, by its `index.json`.
pub fn golden_models_in(folder: &Path) -> Vec<GoldenModel> {
    let path = folder.join("index.json");
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let index: Value = serde_json::from_slice(&text).unwrap();
    let lists = ["models", "embeddings"].iter().filter_map(|list| index[list].as_array());
    let models = lists.flatten().map(|entry| GoldenModel::new(folder, entry));
    let is_right = |model: &GoldenModel| {
        let is_wrong = |(of, name): &(&str, &str)| folder.ends_with(of) && model.name() == *name;
        !WRONG_RESULTS.iter().any(is_wrong)
    };
    let models: Vec<GoldenModel> = models.filter(is_right).collect();
    assert!(!models.is_empty(), "{} names no model", path.display());
    models
}

/// The file of a golden model of `golden/arch`, unpacked.
pub fn golden_model(name: &str) -> PathBuf {
    plain_or_unpacked(&crate::golden_folder().join("arch").join(format!("{name}.gguf")))
}

/// A golden model: its file, a text, and what llama.cpp computes for it.
#[derive(Clone, Debug)]
pub struct GoldenModel {
    folder: PathBuf,
    entry: Value,
}

impl GoldenModel {
    fn new(folder: &Path, entry: &Value) -> Self {
        Self { folder: folder.to_owned(), entry: entry.clone() }
    }

    /// The name of the model.
    pub fn name(&self) -> &str {
        self.text("name").unwrap()
    }

    /// `general.architecture`.
    pub fn architecture(&self) -> &str {
        self.text("architecture").unwrap()
    }

    /// The model's file, unpacked.
    pub fn path(&self) -> PathBuf {
        unpacked(&self.folder.join(self.text("file").unwrap()))
    }

    /// The tokens of the text.
    pub fn ids(&self) -> Vec<u32> {
        self.tokens("ids")
    }

    /// The context that the reference had, on which some kinds of RoPE depend.
    pub fn context_tokens(&self) -> usize {
        self.entry["n_ctx"].as_u64().unwrap() as usize
    }

    /// The name of the pooling of an embedding, or of scores; `None` if the results are logits.
    pub fn pooling(&self) -> Option<&str> {
        self.text("pooling")
    }

    /// Logits `[positions, vocab_size]`, or an embedding, or scores.
    pub fn results(&self) -> Vec<f32> {
        let file = self.text("logits").or(self.text("embedding")).unwrap();
        floats(&self.folder.join(file))
    }

    /// The positions of [`results`](Self::results) that are logits.
    pub fn positions(&self) -> Vec<usize> {
        self.tokens("positions").into_iter().map(|position| position as usize).collect()
    }

    /// The largest difference from a result that f32 arithmetic may have. The first golden models
    /// had one bound for all.
    pub fn bound(&self) -> f32 {
        self.entry["bound"].as_f64().unwrap_or(2e-3) as f32
    }

    /// The mean of −ln p of each token of the text but the first.
    pub fn mean_nll(&self) -> f64 {
        self.entry["mean_nll"].as_f64().unwrap()
    }

    /// The most probable tokens after the text.
    pub fn greedy(&self) -> Vec<u32> {
        self.tokens("greedy")
    }

    /// The logits of the block for further tokens (MTP) at the [`positions`](Self::positions).
    pub fn mtp_logits(&self) -> Option<Vec<f32>> {
        Some(floats(&self.folder.join(self.text("mtp_logits")?)))
    }

    /// The most probable token of the block for further tokens at every position.
    pub fn mtp_top1(&self) -> Vec<u32> {
        self.tokens("mtp_top1")
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.entry[key].as_str()
    }

    fn tokens(&self, key: &str) -> Vec<u32> {
        let list = self.entry[key].as_array().unwrap();
        list.iter().map(|id| id.as_u64().unwrap() as u32).collect()
    }
}

/// Little-endian f32, in the file of this name or with `.gz`.
pub(crate) fn floats(path: &Path) -> Vec<f32> {
    let bytes = fs::read(plain_or_unpacked(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (chunks, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "{} is cut off", path.display());
    chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_its_file_its_text_and_its_results() {
        let iq = golden_models_in(&crate::golden_folder().join("iq"));
        for model in golden_models().iter().chain(&iq) {
            let name = model.name();
            let bytes = fs::metadata(model.path()).unwrap().len();
            assert_eq!(Some(bytes), model.entry["bytes"].as_u64(), "{name}");
            assert!(!model.ids().is_empty(), "{name}");
            assert!(model.results().iter().all(|x| x.is_finite()), "{name}");
            if model.pooling().is_none() {
                let rows = model.positions().len();
                assert_eq!(model.results().len() % rows, 0, "{name}");
                let mtp = model.mtp_logits();
                assert!(mtp.is_none_or(|mtp| mtp.len() == model.results().len()), "{name}");
            }
            assert!(model.bound() > 0.0 && model.bound() <= 5e-3, "{name}");
        }
    }

    #[test]
    fn the_files_of_the_folder_are_those_of_the_index() {
        let models = golden_models();
        let entries = fs::read_dir(crate::golden_folder().join("arch")).unwrap();
        let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.filter(|file| file.contains(".gguf")).collect();
        let mut named: Vec<&str> = models.iter().map(|model| model.text("file").unwrap()).collect();
        files.sort_unstable();
        named.sort_unstable();
        assert_eq!(files, named);
    }
}
