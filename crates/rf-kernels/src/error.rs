//! What can go wrong between a graph and a device.

use rf_graph::BackendError;

use crate::objects;

/// Why a GPU does not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The runtime or the device.
    #[error(transparent)]
    Runtime(#[from] rf_hip::Error),
    /// No kernels for this device.
    #[error(transparent)]
    Objects(#[from] objects::Error),
    /// There is a runtime and no device.
    #[error("{platform} finds no device")]
    NoDevice {
        /// AMD or NVIDIA.
        platform: rf_hip::Platform,
    },
    /// The device with this number does not exist.
    #[error("device {ordinal} does not exist, there are {count}")]
    NoSuchDevice {
        /// What was asked for.
        ordinal: usize,
        /// What there is.
        count: usize,
    },
    /// The kernels of this program lack one: it was built from other sources.
    #[error("kernel {name} is not among the embedded ones: build the program again")]
    NoKernel {
        /// Its symbol.
        name: &'static str,
    },
    /// The program needs what no kernel does.
    #[error("no kernel for {what}")]
    Unsupported {
        /// An op, a format or a shape.
        what: String,
    },
    /// The program does not fit.
    #[error("{what} need {needed_bytes} bytes of {free_bytes} free on the device")]
    DoesNotFit {
        /// Weights, cache or buffers.
        what: &'static str,
        /// All that the program needs.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        match error {
            Error::DoesNotFit { what, needed_bytes, .. } => {
                Self::OutOfMemory { what, bytes: needed_bytes }
            }
            Error::Unsupported { what } => Self::Unsupported { backend: "GPU", what },
            Error::Runtime(error) if error.is_out_of_memory() => {
                Self::OutOfMemory { what: "device memory", bytes: 0 }
            }
            other => Self::Device(chain(&other)),
        }
    }
}

/// An error with its sources, as one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = error.source();
    }
    text
}
