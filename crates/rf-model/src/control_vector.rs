//! Control vectors in the GGUF files of llama.cpp: directions that are added to the output of
//! layers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use rf_gguf::Gguf;

use crate::adapter::{self, AdapterError};

/// A control vector file.
#[derive(Clone, Debug)]
pub struct ControlVector {
    file: String,
    /// The direction of each layer.
    directions: BTreeMap<usize, Vec<f32>>,
}

impl ControlVector {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is damaged, or is no control vector.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, AdapterError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let gguf =
            Gguf::open(path).map_err(|error| AdapterError::File { file: file.clone(), error })?;
        Self::from_gguf(&gguf, file)
    }

    /// Reads an open container. Errors name `file`.
    ///
    /// # Errors
    ///
    /// If it is no control vector.
    pub fn from_gguf(gguf: &Gguf, file: impl Into<String>) -> Result<Self, AdapterError> {
        let file = file.into();
        let mut directions = BTreeMap::new();
        for tensor in gguf.tensors() {
            let name = tensor.name();
            let layer = name.strip_prefix("direction.").and_then(|layer| layer.parse().ok());
            // The first layer has none in llama.cpp either.
            let Some(layer) = layer.filter(|layer| *layer > 0) else {
                let tensor = name.to_owned();
                return Err(AdapterError::NotADirection { file, tensor });
            };
            if tensor.shape().len() > 1 {
                let (tensor, found) = (name.to_owned(), tensor.shape().to_vec());
                let expected = vec![found.iter().product()];
                return Err(AdapterError::Shape { file, tensor, found, expected });
            }
            let values = adapter::values(&file, tensor, 0, 1)?;
            directions.insert(layer, values);
        }
        if directions.is_empty() {
            return Err(AdapterError::NoTensors { file });
        }
        Ok(Self { file, directions })
    }
}

/// The sums of control vectors by layer.
pub(crate) fn sums(
    vectors: &[(ControlVector, f32)],
    layers: &RangeInclusive<usize>,
    hidden_size: usize,
) -> Result<BTreeMap<usize, Vec<f32>>, AdapterError> {
    let mut sums: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
    for (vector, scale) in vectors {
        for (layer, direction) in &vector.directions {
            if direction.len() != hidden_size {
                return Err(AdapterError::Shape {
                    file: vector.file.clone(),
                    tensor: format!("direction.{layer}"),
                    found: vec![direction.len() as u64],
                    expected: vec![hidden_size as u64],
                });
            }
            if layers.contains(layer) {
                let sum = sums.entry(*layer).or_insert_with(|| vec![0.0; hidden_size]);
                sum.iter_mut().zip(direction).for_each(|(sum, x)| *sum += scale * x);
            }
        }
    }
    Ok(sums)
}
