//! The error type of the GPU backend.

use rf_graph::{BackendError, NonFiniteWeight};

use crate::objects;

/// A failure of the GPU backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The runtime or the device failed.
    #[error(transparent)]
    Runtime(#[from] rf_hip::Error),
    /// The program has no kernels for this device.
    #[error(transparent)]
    Objects(#[from] objects::Error),
    /// The runtime has no device.
    #[error("the {platform} runtime has no device")]
    NoDevice {
        /// Platform of the runtime.
        platform: rf_hip::Platform,
    },
    /// The device with this number does not exist.
    #[error("device {ordinal} does not exist, the number of devices is {count}")]
    NoSuchDevice {
        /// Requested device number.
        ordinal: usize,
        /// Number of devices.
        count: usize,
    },
    /// A kernel is missing because the embedded kernels were built from other sources than the
    /// program.
    #[error("kernel {name} is not embedded: build the program again")]
    NoKernel {
        /// Symbol of the kernel.
        name: &'static str,
    },
    /// The program needs an op, a format or a shape for which no kernel exists.
    #[error("no kernel for {what}")]
    Unsupported {
        /// The unsupported op, format or shape.
        what: String,
    },
    /// The device returned the results of another step, so those of this one are lost.
    #[error("the GPU returned the results of an earlier step")]
    Stale,
    /// Another part of a divided program failed or did not come to a sum.
    #[error(transparent)]
    OtherPart(BackendError),
    /// A weight is damaged.
    #[error(transparent)]
    Weight(#[from] NonFiniteWeight),
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        match error {
            Error::Unsupported { what } => Self::Unsupported { backend: "GPU", what },
            Error::Weight(error) => error.into(),
            Error::OtherPart(error) => error,
            Error::Stale => Self::StaleResults,
            Error::Runtime(error) if error.is_out_of_memory() => {
                Self::OutOfMemory { what: "device memory", bytes: 0 }
            }
            other => Self::Device(chain(&other)),
        }
    }
}

/// An error and its sources on one line.
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
