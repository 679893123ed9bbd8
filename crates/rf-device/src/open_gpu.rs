//! A GPU in use.

use std::fmt;
use std::path::PathBuf;

use rf_graph::Backend;

/// A GPU in use.
pub struct OpenGpu {
    /// The backend on it.
    pub backend: Box<dyn Backend>,
    /// Number of the GPU in the list of devices.
    pub number: usize,
    /// Marketing name.
    pub name: String,
    /// Architecture, such as `gfx1100`.
    pub arch: String,
    /// The file for its tuned launches, if there is none yet.
    pub untuned: Option<PathBuf>,
}

impl fmt::Display for OpenGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}, {} ({})", self.number, self.name, self.arch)
    }
}
