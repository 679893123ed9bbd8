//! Architectures: GGUF metadata and tensors to configuration, weights and graph.
//!
//! [`ModelConfig`] reads the metadata; [`build()`] finds the weights and writes the graph. The
//! layer itself is [`rf_graph::layer`]. A family is one file in `families/`: hyper-parameters as
//! data for that layer, and a table of weights.
//!
//! Start reading at `families/llama.rs`, then `config.rs` and `build.rs`. In the layering
//! this crate is above rf-gguf and rf-graph. It names no backend.
//!
//! Invariants:
//!
//! - A tensor of the file that the architecture does not use is an error, because the result would
//!   be wrong. So is an unknown architecture, or a setting that is not supported.
//! - No file makes this crate panic.
//! - A family is data for the one layer of `rf-graph`, never a copy of the layer.
//!
//! ```
//! use rf_gguf::{Gguf, GgufWriter};
//! use rf_model::Head;
//! use rf_quant::DType::F32;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A model of one layer, with zeros for weights. Shapes begin with the contiguous axis.
//! let mut file = GgufWriter::new();
//! file.add("general.architecture", "llama")?;
//! for (key, value) in [
//!     ("llama.context_length", 64_u32),
//!     ("llama.embedding_length", 8),
//!     ("llama.block_count", 1),
//!     ("llama.feed_forward_length", 16),
//!     ("llama.attention.head_count", 2),
//! ] {
//!     file.add(key, value)?;
//! }
//! file.add("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)?;
//! for (name, shape) in [
//!     ("token_embd.weight", &[8, 32][..]),
//!     ("output_norm.weight", &[8]),
//!     ("blk.0.attn_norm.weight", &[8]),
//!     ("blk.0.attn_q.weight", &[8, 8]),
//!     ("blk.0.attn_k.weight", &[8, 8]),
//!     ("blk.0.attn_v.weight", &[8, 8]),
//!     ("blk.0.attn_output.weight", &[8, 8]),
//!     ("blk.0.ffn_norm.weight", &[8]),
//!     ("blk.0.ffn_gate.weight", &[8, 16]),
//!     ("blk.0.ffn_up.weight", &[8, 16]),
//!     ("blk.0.ffn_down.weight", &[16, 8]),
//! ] {
//!     file.add_tensor(name, shape, F32)?;
//! }
//! let mut bytes = Vec::new();
//! file.write_to(&mut bytes, |tensor, out| {
//!     Ok(out.write_all(&vec![0; tensor.size_bytes().try_into()?])?)
//! })?;
//!
//! let gguf = Gguf::from_bytes(bytes)?;
//! let config = rf_model::ModelConfig::from_gguf(&gguf)?;
//! assert_eq!((config.num_layers(), config.vocab_size), (1, 32));
//! assert_eq!(config.kv_layers(), [rf_graph::KvLayer::new(2, 4)]);
//! let (graph, weights) = rf_model::build(&gguf, &config, 64, Head::Logits)?;
//! assert_eq!(weights.len(), 11);
//! assert_eq!(graph.value(graph.output()).width, 32);
//! # Ok(())
//! # }
//! ```

mod build;
mod config;
mod error;
mod families;
mod head;
mod keys;
mod mtp;
mod pooling;
mod rope;
mod weights;

pub use build::build;
pub use config::ModelConfig;
pub use error::Error;
pub use families::supported_architectures;
pub use head::Head;
pub use mtp::MtpStage;
pub use pooling::Pooling;
pub use rf_gguf::{Error as GgufError, Gguf};
pub use rf_graph::layer::LayerSpec;
pub use rf_graph::{Graph, KvLayer, StateShape, Weight};
