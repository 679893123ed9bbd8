//! Convert, split, merge, edit and compare GGUF models.
//!
//! A [`Mix`] is a named recipe such as `Q4_K_M`: it selects a format for each tensor. A
//! [`Conversion`] applies a mix to one model and writes the new file. An [`Imatrix`] tells it which
//! columns matter. [`Split`], [`merge`] and [`Edit`] write files with the same tensors, byte for
//! byte, and [`Comparison`] finds what differs between two models. The crate knows `rf-gguf` and
//! `rf-quant`, and no graph, backend or command line.
//!
//! Start with [`Conversion::plan`], then read `rules.rs` and `parts.rs` for the choice of formats.
//!
//! Invariants:
//!
//! - The output file is complete or does not exist. An existing file is replaced only by a complete
//!   one.
//! - The bytes do not depend on the number of threads.
//! - The mixes choose the formats that llama.cpp chooses.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use rf_convert::{Conversion, Mix, Options};
//! use rf_gguf::{Gguf, GgufWriter};
//! use rf_quant::DType;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A model with one matrix of 32 columns and 4 rows.
//! let folder = tempfile::tempdir()?;
//! let input = folder.path().join("model-F32.gguf");
//! let mut writer = GgufWriter::new();
//! writer.add("general.architecture", "llama")?;
//! writer.add_tensor("blk.0.attn_q.weight", &[32, 4], DType::F32)?;
//! writer.write_file(&input, |_, out| Ok(out.write_all(&[0; 4 * 32 * 4])?))?;
//!
//! let gguf = Gguf::open(&input)?;
//! let mix: Mix = "Q8_0".parse()?;
//! let output = folder.path().join("model-Q8_0.gguf");
//! let conversion = Conversion::plan(&gguf, &output, mix, &Options::default())?;
//! conversion.write(0, |_bytes| ControlFlow::Continue(()))?;
//!
//! assert_eq!(Gguf::open(&output)?.tensors()[0].dtype()?, DType::Q8_0);
//! # Ok(())
//! # }
//! ```

mod comparison;
mod conversion;
mod copying;
mod edit;
mod edit_problem;
mod error;
mod imatrix;
mod mix;
mod model;
mod parts;
mod rules;
mod split;

pub use comparison::{Comparison, DataDifference, KeyDifference, TensorDifference};
pub use conversion::{Conversion, TensorConversion, is_same_file};
pub use edit::{Change, Changes, Edit};
pub use edit_problem::EditProblem;
pub use error::Error;
pub use imatrix::Imatrix;
pub use mix::Mix;
pub use rules::{Options, TensorType, format_of_name};
pub use split::{Limit, Split, SplitPart, merge};
/// The crates of the files and the formats in the types of this one.
pub use {rf_gguf, rf_quant};
