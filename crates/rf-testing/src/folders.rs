//! The folders of the test data.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The folder of golden models in the repository.
pub fn golden_folder() -> PathBuf {
    root().join("golden")
}

/// A tiny dense model with F16 weights: 3 layers or more, 272 tokens, context 256. Its file is not
/// compressed, so that examples in documents can open it.
pub fn tiny_model() -> PathBuf {
    golden_folder().join("arch/smollm3.gguf")
}

/// The demo model of rf-cli: Q8_0, its embedding is the output's matrix too, and its text has
/// sense.
pub fn demo_model() -> PathBuf {
    root().join("crates/rocmforge/demo/stories-7m-Q8_0.gguf")
}

/// A file or folder of the larger test data next to the repository. Prints that the test is skipped
/// without it.
pub fn shared(path: &str) -> Option<PathBuf> {
    let found = root().parent().unwrap().join("shared").join(path);
    if found.exists() {
        return Some(found);
    }
    crate::skip!("shared/{path} is not beside the repository");
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_the_repository_exist() {
        assert!(tiny_model().is_file() && demo_model().is_file());
        assert!(golden_folder().join("iq/index.json").is_file());
    }

    #[test]
    fn missing_data_beside_the_repository_are_none() {
        assert_eq!(shared("no such folder"), None);
    }
}
