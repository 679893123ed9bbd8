//! The vendors of GPUs.

use std::fmt;

/// The vendor whose GPUs a [`Runtime`](crate::Runtime) drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Platform {
    /// AMD, through HIP (libamdhip64).
    Amd,
    /// NVIDIA, through the CUDA driver (libcuda).
    Nvidia,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd => "AMD",
            Self::Nvidia => "NVIDIA",
        })
    }
}
