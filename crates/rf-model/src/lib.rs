//! Architectures: what the metadata and tensors of a GGUF file mean.
//!
//! [`ModelConfig`] reads the metadata, [`build`] finds the weights and writes the graph. The layer
//! itself is one function in `layer.rs` that reads like the paper; families differ by the enums and
//! flags of `Family` and by which optional tensors a file has, not by copies of the layer.
//!
//! Start reading at `family.rs` (what is supported), then `layer.rs`. In the layering this crate
//! stands above rf-gguf and rf-graph; it names no backend.
//!
//! ```no_run
//! let gguf = rf_gguf::Gguf::open("model.gguf")?;
//! let config = rf_model::ModelConfig::from_gguf(&gguf)?;
//! println!("{} layers of {}", config.num_layers, config.architecture);
//! let (graph, weights) = rf_model::build(&gguf, &config)?;
//! println!("{} ops, {} weights", graph.ops().len(), weights.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod error;
mod family;
mod layer;
mod rope;
mod weights;

pub use config::{ExpertConfig, ModelConfig, RopeConfig, RopeScaling};
pub use error::Error;
pub use family::{Family, SUPPORTED_ARCHITECTURES};
pub use layer::build;
