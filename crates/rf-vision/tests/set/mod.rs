//! The sets of golden data of projectors.

use std::path::{Path, PathBuf};

use rf_gguf::Gguf;
use rf_vision::Embeddings;
use serde_json::Value;

pub(crate) struct Golden {
    pub(crate) folder: PathBuf,
    pub(crate) index: Value,
}

impl Golden {
    /// The larger set next to the repository.
    pub(crate) fn shared() -> Option<Self> {
        rf_testing::shared("golden/vision").map(|folder| Self::open(&folder))
    }

    pub(crate) fn open(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("index.json")).unwrap();
        Self { folder: folder.to_owned(), index: serde_json::from_str(&text).unwrap() }
    }

    /// The families whose projector has an encoder.
    pub(crate) fn families(&self, encoder: &str) -> Vec<&Value> {
        let families = self.index["families"].as_array().unwrap().iter();
        families.filter(|family| family["keys"][encoder] == true).collect()
    }

    /// The projector of a family.
    pub(crate) fn mmproj(&self, family: &Value) -> Gguf {
        Gguf::open(self.folder.join(family["mmproj"].as_str().unwrap())).unwrap()
    }

    /// Stored floats of a family: `kind` is the name of the file and of the entry.
    pub(crate) fn floats(&self, family: &Value, chunk: &Value, kind: &str) -> Vec<f32> {
        let name =
            family["mmproj"].as_str().unwrap().replace("mmproj.gguf", &format!("{kind}.f32"));
        let bytes = std::fs::read(self.folder.join(name)).unwrap();
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let stored = &chunk[kind];
        let len = number(&stored["shape"][0]) * number(&stored["shape"][1]);
        let floats = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        floats.skip(number(&stored["offset"])).take(len).collect()
    }

    /// Returns the error of the embeddings of a chunk, if it exceeds the tolerance.
    pub(crate) fn failure(
        &self,
        family: &Value,
        chunk: &Value,
        rows: &Embeddings,
        tolerance: f32,
    ) -> Option<String> {
        assert_eq!(rows.width as u64, family["n_embd_inp"]);
        assert_eq!(rows.values.len(), rows.group.rows * rows.width);
        let first = largest_difference(&rows.values, &self.floats(family, chunk, "embeddings"));
        // Of some chunks only the first rows are stored.
        let last = &rows.values[rows.values.len() - rows.width..];
        let head = chunk["embeddings"]["last_row_head"].as_array().unwrap();
        let head: Vec<f32> = head.iter().map(|x| x.as_f64().unwrap() as f32).collect();
        let last = largest_difference(last, &head);
        let is_off =
            first.total_cmp(&tolerance).is_gt() || last.total_cmp(&(tolerance + 1e-5)).is_gt();
        is_off.then(|| format!(": {first}, last row {last}"))
    }
}

/// The inputs of a family of which some chunks have this type, each with all its chunks.
pub(crate) fn media<'a>(
    family: &'a Value,
    kind: &'a str,
) -> impl Iterator<Item = (&'a str, &'a Vec<Value>)> {
    let media = family["media"].as_array().unwrap().iter();
    let media = media.map(|m| (m["input"].as_str().unwrap(), m["chunks"].as_array().unwrap()));
    media.filter(move |(_, chunks)| chunks.iter().any(|chunk| chunk["type"] == kind))
}

/// NaN if there is one.
pub(crate) fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.max_by(f32::total_cmp).expect("values to compare")
}
