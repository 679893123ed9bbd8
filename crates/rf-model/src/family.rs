//! The families: what differs between architectures that share a layer.

use rf_graph::RopeStyle;

use crate::error::Error;

/// Names of `general.architecture` that can be run.
pub const SUPPORTED_ARCHITECTURES: &[&str] = &["llama", "qwen2", "qwen3", "qwen3moe"];

/// What an architecture's name says about its layers. Everything else (biases, head norms, tied
/// output, experts) follows from the tensors that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Which elements RoPE pairs.
    pub rope_style: RopeStyle,
    /// Whether every head of q and k has an RMSNorm before RoPE.
    pub qk_norm: bool,
}

impl Family {
    /// The family of an architecture.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedArchitecture`] names it.
    pub fn of(architecture: &str) -> Result<Self, Error> {
        Ok(match architecture {
            // Llama 1-3, Mistral, Mixtral: q and k are permuted by the converter.
            "llama" => Self { rope_style: RopeStyle::Normal, qk_norm: false },
            "qwen2" => Self { rope_style: RopeStyle::Neox, qk_norm: false },
            "qwen3" | "qwen3moe" => Self { rope_style: RopeStyle::Neox, qk_norm: true },
            name => return Err(Error::UnsupportedArchitecture { name: name.into() }),
        })
    }
}
