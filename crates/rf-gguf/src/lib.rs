//! The GGUF container: reads untrusted model files, writes new ones.
//!
//! **Place in the layering.** Above `rf-quant`, whose [`DType`] is the format of a tensor; below
//! `rf-model`, which interprets keys and tensors. This crate knows no architecture, no tokenizer
//! and no device.
//!
//! **Where to start.** [`Gguf`] is an opened model: [`Gguf::metadata`], [`Gguf::tensors`],
//! [`Gguf::data`]. [`GgufWriter`] writes a file. Internally, `parse` reads one file through
//! `cursor`, the only code that reads unchecked bytes.
//!
//! **Invariants.**
//! - No bytes make this crate panic or allocate more than a small multiple of their number. Every
//!   count is checked against the remaining bytes before memory is allocated for it.
//! - The contents of [`Gguf`] are checked: shapes and types match sizes, data is inside the file,
//!   aligned, and not shared between tensors; names are unique; text is UTF-8.
//! - Names, strings and numbers are copied out of the map; only tensor data refers to it.
//!   [`TensorData`] describes the effect of changing a mapped file.
//! - Unsafe code is in `mmap` only.
//!
//! # Example
//!
//! ```
//! use rf_gguf::{DType, Gguf, GgufWriter, rf_quant};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut writer = GgufWriter::new();
//! writer.add("general.architecture", "llama")?.add("llama.block_count", 2_u32)?;
//! writer.add_tensor("output_norm.weight", &[4], DType::F32)?;
//!
//! let mut file = Vec::new();
//! writer.write_to(&mut file, |_tensor, out| Ok(out.write_all(&[0; 16])?))?;
//!
//! let model = Gguf::from_bytes(file)?;
//! assert_eq!(model.metadata().required_str("general.architecture")?, "llama");
//! assert_eq!(model.metadata().u64("llama.block_count")?, Some(2));
//! let norm = model.required_tensor("output_norm.weight")?;
//! assert_eq!((norm.shape(), norm.dtype()?), (&[4][..], DType::F32));
//! assert_eq!(model.data(norm).len(), 16);
//!
//! let mut values = vec![0.0; 4];
//! rf_quant::dequantize(norm.dtype()?, &model.data(norm), &mut values)?;
//! assert_eq!(values, [0.0; 4]);
//! # Ok(())
//! # }
//! ```

mod cursor;
mod data;
mod error;
mod file_type;
mod gguf;
mod metadata;
mod mmap;
mod output;
mod parse;
mod split;
mod tensor;
mod tensor_type;
mod value;
mod writer;

pub use data::TensorData;
pub use error::{Error, Problem, Subject};
pub use file_type::file_type_name;
pub use gguf::Gguf;
pub use metadata::Metadata;
pub use mmap::report_bus_errors;
/// The formats of tensors, and their conversion to floats: [`rf_quant::dequantize`].
pub use rf_quant;
pub use rf_quant::DType;
pub use tensor::TensorInfo;
pub use tensor_type::{MXFP6_LAYOUT_KEY, TensorType, type_id};
pub use value::{Array, StringArray, Value, ValueKind};
pub use writer::{GgufWriter, TensorPlan};
