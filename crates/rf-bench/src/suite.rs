//! Suites: the groups of workloads.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A group of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Matmuls, dense and quantised.
    Matmul,
    /// Attention over the paged KV cache: prefill and decode.
    Attention,
    /// Conversion between formats and floats.
    Dequant,
    /// A whole model: prefill, time to first token, decode, memory.
    Inference,
    /// The KV cache: page management, appending and copying.
    Memory,
    /// The overhead of a step and of a launch.
    Launch,
}

impl Suite {
    /// Every suite.
    pub const ALL: [Self; 6] =
        [Self::Matmul, Self::Attention, Self::Dequant, Self::Inference, Self::Memory, Self::Launch];

    /// The suites of one-op workloads: all but [`Suite::Inference`], which needs a model file.
    pub const OPS: [Self; 5] =
        [Self::Matmul, Self::Attention, Self::Dequant, Self::Memory, Self::Launch];

    /// The first word of the names of its workloads.
    pub const fn name(self) -> &'static str {
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

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Suite {
    type Err = UnknownSuite;

    fn from_str(name: &str) -> Result<Self, UnknownSuite> {
        let found = Self::ALL.into_iter().find(|suite| suite.name() == name);
        found.ok_or_else(|| UnknownSuite { name: name.to_owned() })
    }
}

/// A name that is not that of a [`Suite`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no suite '{name}'; the suites are {}", Suite::ALL.map(Suite::name).join(", "))]
pub struct UnknownSuite {
    name: String,
}
