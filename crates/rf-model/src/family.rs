//! Families: the differences between architectures that share a layer.

use rf_graph::RopeStyle;

use crate::error::Error;

/// Supported values of `general.architecture`.
pub const SUPPORTED_ARCHITECTURES: &[&str] = &["llama", "qwen2", "qwen3", "qwen3moe"];

/// Properties of layers that follow from the name of an architecture. Biases, tied output and
/// experts follow from the tensors of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The pairs of elements that RoPE rotates.
    pub rope_style: RopeStyle,
    /// Whether each head of q and k has an `RMSNorm` before RoPE.
    pub qk_norm: bool,
}

impl Family {
    /// Looks up the family of an architecture.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedArchitecture`] if it is not supported.
    pub(crate) fn of(architecture: &str) -> Result<Self, Error> {
        Ok(match architecture {
            // Llama 1-3, Mistral, Mixtral: q and k are permuted by the converter.
            "llama" => Self { rope_style: RopeStyle::Normal, qk_norm: false },
            "qwen2" => Self { rope_style: RopeStyle::Neox, qk_norm: false },
            "qwen3" | "qwen3moe" => Self { rope_style: RopeStyle::Neox, qk_norm: true },
            name => return Err(Error::UnsupportedArchitecture { name: name.into() }),
        })
    }
}
