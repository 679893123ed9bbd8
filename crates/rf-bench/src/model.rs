//! Model files and their identity: name, size and hash.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rf_profile::baseline::ModelId;
use rocmforge::engine::Model;
use rocmforge::gguf::{TensorInfo, Value, file_type_name};
use rocmforge::{Drafts, Loader, Purpose};
use twox_hash::XxHash3_128;

use crate::Error;

/// The default model, relative to the checkout.
const DEMO_MODEL: &str = "crates/rocmforge/demo/stories-7m-Q8_0.gguf";

/// A model file.
#[derive(Clone, Debug)]
pub struct ModelFile {
    /// Path of the first part.
    pub path: PathBuf,
    /// True for the demo model of the checkout.
    pub is_demo: bool,
}

impl ModelFile {
    /// The given file, or the demo model of the checkout `root`.
    pub fn new(root: &Path, given: Option<&Path>) -> Self {
        match given {
            Some(path) => Self { path: path.to_owned(), is_demo: false },
            None => Self { path: root.join(DEMO_MODEL), is_demo: true },
        }
    }

    /// The file name, such as `llama-1b-Q4_K_M.gguf`.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Reads the metadata, the tokenizer and the tensor table.
    ///
    /// # Errors
    ///
    /// [`Error::Model`] with the path.
    pub fn open(&self) -> Result<Arc<Model>, Error> {
        let open = self.loader().open(&mut |_| ());
        let model = open.map(|open| Arc::clone(open.model()));
        model.map_err(|source| Error::Model { path: self.path.clone(), source: Box::new(source) })
    }

    /// The options of loading it for measurements: one text at a time, without drafts.
    pub(crate) fn loader(&self) -> Loader {
        Loader::new(self.path.as_path()).purpose(Purpose::Texts).drafts(Drafts::Off)
    }

    /// Identifies the model by its name and the hash (XXH3, 128 bits) of all parts.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a part cannot be read.
    pub fn id(&self, model: &Model) -> Result<ModelId, Error> {
        let mut hash = XxHash3_128::new();
        let mut buffer = vec![0; 1 << 20];
        for path in model.gguf().paths() {
            let at = |source| Error::io(format_args!("read model '{}'", path.display()), source);
            let mut file = File::open(path).map_err(at)?;
            loop {
                let count = file.read(&mut buffer).map_err(at)?;
                if count == 0 {
                    break;
                }
                hash.write(&buffer[..count]);
            }
        }
        let name = format!("{}: {}", self.name(), kind(model));
        Ok(ModelId { name, hash: format!("xxh3:{:032x}", hash.finish_128()) })
    }
}

/// A model file with its identity.
#[derive(Clone, Debug)]
pub struct IdentifiedModel {
    /// The file.
    pub file: ModelFile,
    /// Name and hash.
    pub id: ModelId,
    /// Size and quantisation, such as `7B Q4_K_M`. Published results name models this way.
    pub kind: String,
}

impl IdentifiedModel {
    /// Reads a model file.
    ///
    /// # Errors
    ///
    /// Those of [`ModelFile::open`] and [`ModelFile::id`].
    pub fn new(file: ModelFile) -> Result<Self, Error> {
        let model = file.open()?;
        Ok(Self { id: file.id(&model)?, kind: kind(&model), file })
    }
}

/// Size and quantisation, such as `7B Q4_0`. Published results name models this way.
fn kind(model: &Model) -> String {
    let metadata = model.gguf().metadata();
    let parameters: u64 = model.gguf().tensors().iter().map(TensorInfo::elements).sum();
    let label = metadata.str("general.size_label").ok().flatten().map(str::to_owned);
    let number = metadata.get("general.file_type").and_then(Value::as_integer);
    let mix = number.and_then(|number| u32::try_from(number).ok()).and_then(file_type_name);
    let quantisation = mix.map_or_else(|| "of unknown quantisation".to_owned(), short);
    format!("{} {quantisation}", label.unwrap_or_else(|| size(parameters)))
}

/// Shortens the name of a quantisation mix: `Q4_K - Medium` becomes `Q4_K_M`.
fn short(mix: &str) -> String {
    let words = mix.split(" - ").map(|word| match word {
        "Small" => "S",
        "Medium" => "M",
        "Large" => "L",
        other => other,
    });
    words.collect::<Vec<_>>().join("_")
}

/// Formats a number of parameters as `7B`, `1.2B` or `7M`.
fn size(parameters: u64) -> String {
    let billions = parameters as f64 / 1e9;
    if billions >= 2.0 {
        format!("{billions:.0}B")
    } else if billions >= 0.95 {
        format!("{billions:.1}B")
    } else {
        format!("{:.0}M", parameters as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named_by_their_size() {
        assert_eq!(size(6_738_415_616), "7B");
        assert_eq!(size(8_030_261_312), "8B");
        assert_eq!(size(1_235_814_432), "1.2B");
        assert_eq!(size(7_340_032), "7M");
        assert_eq!(short("Q4_K - Medium"), "Q4_K_M");
        assert_eq!(short("Q8_0"), "Q8_0");
    }
}
