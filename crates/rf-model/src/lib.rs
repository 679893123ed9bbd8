//! Architectures: turns GGUF metadata and tensors into a configuration, weights and a graph.
//!
//! [`ModelConfig`] reads the metadata; [`build()`] finds the weights and writes the graph. The
//! layer itself is [`rf_graph::layer`]. A family is one file in `families/`: hyper-parameters as
//! data for that layer, and a table of weights. [`Adapter`] and [`ControlVector`] change a model.
//!
//! Start reading at `families/llama.rs`, then `config.rs` and `build.rs`. In the layering
//! this crate is above rf-gguf and rf-graph. It names no backend. The example `operations` lists
//! the ops of a model.
//!
//! Invariants:
//!
//! - A tensor of the file that the architecture does not use is an error, because the result would
//!   be wrong. So is an unknown architecture, or a setting that is not supported.
//! - No file makes this crate panic.
//! - A family is data for the one layer of `rf-graph`, never a copy of the layer.
//!
//! ```
//! use rf_gguf::Gguf;
//! use rf_model::{Head, ModelConfig};
//!
//! // A tiny model with random weights; any GGUF file works.
//! let gguf = Gguf::open("../../golden/arch/smollm3.gguf")?;
//! let config = ModelConfig::from_gguf(&gguf)?;
//! assert_eq!(config.architecture, "smollm3");
//!
//! // For sequences of up to 64 tokens.
//! let (graph, weights) = rf_model::build(&gguf, &config, 64, Head::Logits)?;
//! assert!(weights.len() > config.num_layers());
//! assert_eq!(graph.value(graph.output()).width, config.vocab_size);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adapter;
mod build;
mod config;
mod control_vector;
mod error;
mod families;
mod head;
mod keys;
mod mtp;
mod pooling;
mod rope;
mod weights;

pub use adapter::{Adapter, AdapterError, AdapterSet};
pub use build::{build, build_with_adapters};
pub use config::ModelConfig;
pub use control_vector::ControlVector;
pub use error::Error;
pub use families::supported_architectures;
pub use head::Head;
pub use mtp::MtpStage;
pub use pooling::Pooling;
pub use rf_gguf::{Error as GgufError, Gguf};
pub use rf_graph::layer::LayerSpec;
pub use rf_graph::{Graph, KvLayer, StateShape, Weight};
