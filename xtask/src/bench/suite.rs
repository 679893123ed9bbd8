//! The groups that benchmarks come in.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A group of benchmarks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Suite {
    /// Products of weights and activations
    Matmul,
    /// Attention: prefill, and decode at depth
    Attention,
    /// Quantise and dequantise, every format
    Dequant,
    /// A whole model: prompts, time to first token, decode, memory
    Inference,
    /// KV cache: growth and allocation
    Memory,
    /// What a launch, or the smallest step, costs
    Launch,
}

impl Suite {
    /// On the command line, and at the start of names.
    #[cfg(feature = "bench")]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Matmul => "matmul",
            Self::Attention => "attention",
            Self::Dequant => "dequant",
            Self::Inference => "inference",
            Self::Memory => "memory",
            Self::Launch => "launch",
        }
    }
}
