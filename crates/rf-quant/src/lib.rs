//! GGUF tensor formats: block layouts, reference quantisation and dequantisation.
//!
//! The lowest crate of the workspace: it knows bytes and numbers, and no file, model or device.
//! `rf-gguf` maps type ids to its formats, the backends read weights as its blocks, and tests
//! compare kernels with its scalar conversion.
//!
//! Start with [`DType`] and the table of formats, [`for_each_format!`], then [`Block`] and one
//! layout, such as [`BlockQ4_0`]. [`dequantize`] and [`quantize`] convert whole rows. [`E4m3`] is
//! the one format that only caches use.
//!
//! Invariants:
//!
//! - Blocks are plain bytes of alignment 1, so a mapped file is viewed in place at any offset.
//! - No byte pattern and no float makes a conversion panic.
//! - Dequantisation is bit-exact with ggml (with the OCP definition for MXFP6). Quantisation gives
//!   the bytes of llama.cpp, with two exceptions. `Q2_K` to `Q6_K` and the formats of
//!   [`Family::Codebook`] use our own searches, and so does quantisation with importances.
//! - The result depends only on the input, not on threads or CPU features.
//!
//! ```
//! use rf_quant::{DType, dequantize, quantize_to_vec};
//!
//! let weights: Vec<f32> = (0..32).map(|i| i as f32 / 32.0 - 0.5).collect();
//! let blocks = quantize_to_vec(DType::Q8_0, &weights)?;
//! assert_eq!(blocks.len(), 34);
//!
//! let mut restored = [0.0; 32];
//! dequantize(DType::Q8_0, &blocks, &mut restored)?;
//! for (restored, weight) in restored.iter().zip(&weights) {
//!     assert!((restored - weight).abs() < 0.5 / 127.0);
//! }
//! # Ok::<(), rf_quant::Error>(())
//! ```

mod block;
mod block32;
mod codebook;
mod codec;
mod convert;
mod dtype;
mod e4m3;
mod error;
mod extent;
mod few_bits;
mod float;
mod formats;
mod k_quants;
mod mx;
mod normalized;
mod rounding;
mod ternary;

pub use block::{Block, F16Le};
pub use block32::*;
/// The crate of the trait of plain bytes, which every [`Block`] has.
pub use bytemuck;
pub use codebook::*;
pub use convert::{
    dequantize, first_non_finite_block, quantize, quantize_to_vec, quantize_weighted,
};
pub use dtype::{DType, Family};
pub use e4m3::E4m3;
pub use error::Error;
pub use few_bits::*;
pub use formats::C_TABLE;
pub use k_quants::*;
pub use mx::*;
pub use ternary::*;
