//! GGUF tensor formats: block layouts, reference quantisation and dequantisation.
//!
//! The lowest crate of the workspace: it knows bytes and numbers, and nothing of files, models or
//! devices. `rf-gguf` names its formats, the backends view weights as its blocks, and its scalar
//! conversion is what their kernels are tested against.
//!
//! Start with [`DType`], the table of formats, then [`Block`] and one layout, such as [`BlockQ4_0`].
//! [`dequantize`] and [`quantize`] convert whole rows. [`E4m3`] is the one format that only caches have.
//!
//! Invariants:
//!
//! - Blocks are plain bytes of alignment 1, so a mapped file is viewed in place at any offset.
//! - No byte pattern and no float makes a conversion panic.
//! - Dequantisation is bit-exact with ggml (with the OCP definition for MXFP6). Quantisation gives
//!   the bytes of llama.cpp for all formats but the K-quants, where the search for scales is our own.
//! - The result depends on nothing but the input: no threads, no detection of CPU features.
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
mod convert;
mod dtype;
mod e4m3;
mod error;
mod extent;
mod float;
mod k_quants;
mod legacy;
mod mx;
mod rounding;

pub use block::{Block, F16Le};
pub use convert::{dequantize, quantize, quantize_to_vec};
pub use dtype::DType;
pub use e4m3::E4m3;
pub use error::Error;
pub use k_quants::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K};
pub use legacy::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0};
pub use mx::{BlockMxfp4, BlockMxfp6E2M3, BlockMxfp6E3M2};
