//! Low-rank adapters (LoRA) in the GGUF files of llama.cpp: what they are, and the updates of a
//! model's weights that several of them make together.
//!
//! A file has two matrices for each weight that it changes, `NAME.lora_a` and `NAME.lora_b`. The
//! model then computes `W x + scale · alpha / rank · B (A x)`.

mod error;
mod set;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rf_gguf::{Gguf, TensorInfo};

pub use error::AdapterError;
pub use set::AdapterSet;
pub(crate) use set::Update;

/// Ends of the names of an adapter's tensors.
pub(crate) const MATRICES: [&str; 2] = [".lora_a", ".lora_b"];

/// The embedding table. Its `A` is a table too, with a row per token.
pub(crate) const EMBEDDING: &str = "token_embd.weight";

/// An adapter file.
#[derive(Clone, Debug)]
pub struct Adapter {
    file: String,
    gguf: Arc<Gguf>,
    architecture: String,
    alpha: f32,
    /// The rank of each tensor that the adapter changes.
    ranks: BTreeMap<String, usize>,
}

impl Adapter {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is damaged, or is no LoRA adapter.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, AdapterError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let gguf =
            Gguf::open(path).map_err(|error| AdapterError::File { file: file.clone(), error })?;
        Self::from_gguf(gguf, file)
    }

    /// Reads an open container. Errors name `file`.
    ///
    /// # Errors
    ///
    /// If it is no LoRA adapter.
    pub fn from_gguf(gguf: Gguf, file: impl Into<String>) -> Result<Self, AdapterError> {
        let file = file.into();
        let in_file = |error| AdapterError::File { file: file.clone(), error };
        let metadata = gguf.metadata();
        for (key, expected) in [("general.type", "adapter"), ("adapter.type", "lora")] {
            let found = metadata.str(key).map_err(in_file)?;
            if found != Some(expected) {
                let found = found.unwrap_or("nothing").to_owned();
                return Err(AdapterError::NotAnAdapter { file, key, found, expected });
            }
        }
        if metadata.contains("adapter.alora.invocation_tokens") {
            return Err(AdapterError::Activated { file });
        }
        let architecture = metadata.required_str("general.architecture").map_err(in_file)?;
        let architecture = architecture.to_owned();
        let alpha = metadata.f32("adapter.lora.alpha").map_err(in_file)?.unwrap_or(0.0);
        if !alpha.is_finite() {
            return Err(AdapterError::Alpha { file, alpha });
        }
        let ranks = gguf.tensors().iter().map(|tensor| {
            let name = tensor.name();
            let Some((base, end)) =
                MATRICES.iter().find_map(|end| Some((name.strip_suffix(end)?, *end)))
            else {
                let tensor = name.to_owned();
                return Err(AdapterError::UnknownTensor { file: file.clone(), tensor });
            };
            let other = MATRICES[usize::from(end == MATRICES[0])];
            let missing = format!("{base}{other}");
            if gguf.tensor(&missing).is_none() {
                let tensor = name.to_owned();
                return Err(AdapterError::Unpaired { file: file.clone(), tensor, missing });
            }
            tensor.dtype().map_err(in_file)?;
            Ok((base, end, tensor))
        });
        let mut found = BTreeMap::new();
        for pair in ranks {
            let (base, end, tensor) = pair?;
            if end == MATRICES[1] {
                found.insert(base.to_owned(), axis(tensor, 0));
            }
        }
        if found.is_empty() {
            return Err(AdapterError::NoTensors { file });
        }
        Ok(Self { file, gguf: Arc::new(gguf), architecture, alpha, ranks: found })
    }

    /// The file, as errors name it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The architecture of the model that the adapter changes.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The numerator of the factor `alpha / rank`; 0 stands for a factor of 1.
    pub fn alpha(&self) -> f32 {
        self.alpha
    }

    /// The rank of each tensor that the adapter changes, by its name.
    pub fn ranks(&self) -> &BTreeMap<String, usize> {
        &self.ranks
    }

    /// The container.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }
}

/// The length of an axis; 1 for one that the tensor lacks.
fn axis(tensor: &TensorInfo, index: usize) -> usize {
    let length = tensor.shape().get(index).copied().unwrap_or(1);
    // The data of a tensor fit into memory, and so does the number of its elements.
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// The values of part `index` of `count` equal parts of a tensor of a file.
pub(crate) fn values(
    file: &str,
    tensor: &TensorInfo,
    index: usize,
    count: usize,
) -> Result<Vec<f32>, AdapterError> {
    let in_file = |error| AdapterError::File { file: file.to_owned(), error };
    let dtype = tensor.dtype().map_err(in_file)?;
    let (data, elements) = (tensor.data(), axis(tensor, 0) * axis(tensor, 1));
    let bytes = data.len() / count.max(1);
    let mut values = vec![0.0; elements];
    rf_quant::dequantize(dtype, &data[index * bytes..][..bytes], &mut values)
        .expect("the bytes of a tensor are those of its shape");
    if values.iter().any(|value| !value.is_finite()) {
        let (file, tensor) = (file.to_owned(), tensor.name().to_owned());
        return Err(AdapterError::NotFinite { file, tensor });
    }
    Ok(values)
}
