//! Errors, and warnings that callers print.

use std::error::Error as StdError;
use std::fmt;

use rf_graph::BackendError;

use crate::options::GpuLayers;

/// An error of an outside library or of the caller.
type Source = Box<dyn StdError + Send + Sync>;

/// The cure where no GPU works.
const CURE: &str = "check the installation; every model also runs on the CPU";

/// A device that cannot be used, or a model that cannot be loaded on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The options contradict each other.
    #[error(
        "{layers} layers on a GPU were requested, but the device is the CPU: change one of them"
    )]
    LayersWithoutGpu {
        /// Layers that the user asked for.
        layers: GpuLayers,
    },
    /// There is not one share for each device.
    #[error(
        "there are {shares} shares for {devices} devices: give one share per device, in their order"
    )]
    ShareCount {
        /// Shares that the user gave.
        shares: usize,
        /// GPUs or parts of the CPU that are used.
        devices: usize,
    },
    /// Several parts of the CPU only compute layers together.
    #[error("several parts of the CPU share a model only if each layer is divided")]
    UndividedParts,
    /// The program was built without the feature `gpu`.
    #[error(
        "this program was built without GPU support: build it with the feature gpu, or choose the CPU"
    )]
    WithoutGpuSupport,
    /// No GPU has this number.
    #[error("GPU {number} does not exist, the last one is {last}")]
    NoSuchGpu {
        /// The number that the user gave.
        number: usize,
        /// The largest number.
        last: usize,
    },
    /// A runtime works and lists no GPU.
    #[error("{runtime} finds no GPU: {CURE}")]
    NoGpu {
        /// Platform and library of the runtime.
        runtime: String,
    },
    /// A runtime is installed and does not work.
    #[error("the {platform} runtime does not work ({reason}): {CURE}")]
    RuntimeFailed {
        /// AMD or NVIDIA.
        platform: String,
        /// The error of the runtime.
        reason: String,
    },
    /// No runtime is installed.
    #[error(
        "no GPU runtime is installed (neither ROCm's libamdhip64 nor NVIDIA's libcuda was found): {CURE}"
    )]
    NoRuntime,
    /// `ROCFORGE_GPU_PLATFORM` names no platform.
    #[error(transparent)]
    Platform(Source),
    /// A GPU that is listed cannot be opened.
    #[error("{gpu} cannot be used")]
    GpuUnusable {
        /// Number, name and architecture.
        gpu: String,
        /// The error of the GPU backend.
        source: Source,
    },
    /// Not a single layer fits on the GPU.
    #[error(
        "the output matrix does not fit in the {} MiB free on {gpu}: use a smaller context, or the CPU",
        free_bytes.unwrap_or(0) >> 20
    )]
    NothingFits {
        /// Number, name and architecture.
        gpu: String,
        /// Free memory of the GPU, where it is known.
        free_bytes: Option<u64>,
    },
    /// The layers that the user asked for do not fit on the GPU.
    #[error(
        "{0}: automatic placement puts as many layers on the GPU as fit. Experts in host memory, a \
         smaller context and a q8_0 cache reduce the memory need"
    )]
    LayersDoNotFit(BackendError),
    /// The model cannot be loaded.
    #[error(transparent)]
    Engine(#[from] rf_engine::Error),
    /// The CPU backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The process that examines a driver failed.
    #[error("{0}")]
    Probe(String),
    /// The message to such a process cannot be written.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl Error {
    /// The error of the backend, if that is the cause.
    pub(crate) fn backend(&self) -> Option<&BackendError> {
        match self {
            Self::Backend(error) | Self::Engine(rf_engine::Error::Backend(error)) => Some(error),
            _ => None,
        }
    }

    /// Returns true if a device is the cause, not the model or the options.
    pub(crate) fn is_of_device(&self) -> bool {
        self.backend().is_some() || matches!(self, Self::NothingFits { .. })
    }

    /// Returns true if too little memory is the cause.
    pub(crate) fn is_of_memory(&self) -> bool {
        matches!(
            self.backend(),
            Some(BackendError::DoesNotFit { .. } | BackendError::OutOfMemory { .. })
        )
    }
}

/// A device that is not used although it might have been, or one that is used in part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A GPU that the automatic choice does not take.
    GpuNotUsed {
        /// Number, name and architecture.
        gpu: String,
        /// The reason, with the cure where there is one.
        reason: String,
    },
    /// A GPU that is likely slower than the CPU.
    CpuIsFaster {
        /// Number, name and architecture.
        gpu: String,
    },
    /// No GPU is usable, though the user asked for layers on one.
    EverythingOnCpu {
        /// The reason, with the cure.
        reason: String,
    },
    /// Loading on the GPU failed, so the CPU takes over.
    CpuTakesOver {
        /// Number, name and architecture.
        gpu: String,
        /// The reason.
        reason: String,
    },
    /// Fewer experts than computed fit on the GPU.
    MoreExpertsOnCpu {
        /// The reason.
        reason: String,
        /// Layers of the next attempt whose experts are on the CPU.
        layers: usize,
    },
    /// Fewer layers than computed fit on the GPU.
    FewerLayers {
        /// The reason.
        reason: String,
        /// Layers of the next attempt.
        layers: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GpuNotUsed { gpu, reason } => write!(f, "{gpu} is not used: {reason}"),
            Self::CpuIsFaster { gpu } => {
                write!(f, "{gpu} is not used: the CPU is likely faster")
            }
            Self::EverythingOnCpu { reason } => write!(f, "everything runs on the CPU: {reason}"),
            Self::CpuTakesOver { gpu, reason } => {
                write!(f, "{gpu} is not used, the model runs on the CPU: {reason}")
            }
            Self::MoreExpertsOnCpu { reason, layers } => {
                write!(f, "{reason}; trying with the experts of {layers} layers on the CPU")
            }
            Self::FewerLayers { reason, layers } => {
                write!(f, "{reason}; trying {layers} layers on the GPU")
            }
        }
    }
}

/// An error and its sources as one sentence.
pub(crate) fn sentence(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        // Some errors quote their source.
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    text
}
