//! What can go wrong between this process and a GPU.

use std::{fmt, path::PathBuf};

use crate::{Platform, sys::constants};

/// Why a call to the GPU runtime failed.
///
/// # Examples
///
/// ```
/// use rf_hip::{Error, Runtime};
///
/// match Runtime::load() {
///     Ok(runtime) => println!("{} device(s)", runtime.device_count()?),
///     Err(Error::LibraryNotFound { tried }) => println!("no GPU runtime; tried {}", tried.len()),
///     Err(error) => println!("no GPU: {error}"),
/// }
/// # Ok::<(), rf_hip::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No shared library of the runtime could be loaded.
    #[error("no GPU runtime library found: {}", list(tried))]
    LibraryNotFound {
        /// What was tried, in order, each with the loader's reason.
        tried: Vec<Attempt>,
    },
    /// `ROCFORGE_GPU_PLATFORM` holds something else than `amd` or `nvidia`.
    #[error("unknown GPU platform '{name}': say amd or nvidia")]
    UnknownPlatform {
        /// The value as given.
        name: String,
    },
    /// The library is there and lacks a function: it is too old, or a stand-in.
    #[error("'{}' has no function {symbol}", library.display())]
    MissingSymbol {
        /// The function's name.
        symbol: &'static str,
        /// The library as it was opened.
        library: PathBuf,
    },
    /// The platform has no such operation.
    #[error("{platform} has no {operation}")]
    Unsupported {
        /// The platform in use.
        platform: Platform,
        /// What was asked for.
        operation: &'static str,
    },
    /// A function of the runtime returned a status other than success.
    ///
    /// Work runs behind the calls that queue it, so the status may be that of an earlier one.
    #[error("{function} failed with {name} ({status}): {text}")]
    Status {
        /// The foreign function that returned it.
        function: &'static str,
        /// `hipError_t` or `CUresult`.
        status: i32,
        /// The status' name in the runtime's header.
        name: String,
        /// The runtime's description.
        text: String,
    },
    /// A code object or PTX text was refused.
    #[error("{function} refused the module: {name} ({status}){}", after_colon(log))]
    Module {
        /// The foreign function that returned the status.
        function: &'static str,
        /// `hipError_t` or `CUresult`.
        status: i32,
        /// The status' name in the runtime's header.
        name: String,
        /// What the runtime's compiler wrote, or empty.
        log: String,
    },
    /// The bytes are no code object, cubin or PTX text, or break off in the middle.
    #[error("not a loadable module: {reason}")]
    Image {
        /// What is wrong with them.
        reason: &'static str,
    },
    /// hiprtc could not compile a source.
    #[error("compiling '{source_name}' failed: {text}{}", after_colon(log))]
    Compilation {
        /// The name given to the source.
        source_name: String,
        /// hiprtc's description of the status.
        text: String,
        /// The compiler's messages.
        log: String,
    },
    /// No device has this number.
    #[error("no device {ordinal}: there are {count}")]
    NoSuchDevice {
        /// The number asked for, from 0.
        ordinal: usize,
        /// How many devices there are.
        count: usize,
    },
    /// Elements outside a buffer were named.
    #[error("elements {start}..{end} of a buffer of {len}")]
    OutOfBounds {
        /// First element named.
        start: usize,
        /// One past the last element named.
        end: usize,
        /// The buffer's length in elements.
        len: usize,
    },
    /// A buffer's size in bytes exceeds the address space.
    #[error("a buffer of {len} elements of {element_bytes} bytes is too large to address")]
    TooLarge {
        /// Elements asked for.
        len: usize,
        /// Size of each.
        element_bytes: usize,
    },
    /// Objects of two contexts met in one call.
    #[error("{operation} across contexts")]
    ContextMismatch {
        /// What was asked for.
        operation: &'static str,
    },
    /// The stream records a graph, and this operation cannot be part of one.
    #[error("{operation} cannot be captured into a graph")]
    Capturing {
        /// What was asked for.
        operation: &'static str,
    },
    /// The stream is not recording a graph, or is at it already.
    #[error("the stream is {}", if *.active { "capturing already" } else { "not capturing" })]
    CaptureState {
        /// Whether a capture runs.
        active: bool,
    },
    /// A name cannot be handed to C.
    #[error("'{}' contains a zero byte", name.escape_default())]
    ZeroByte {
        /// The name as given.
        name: String,
    },
}

impl Error {
    /// The device has no memory left; freeing some and trying again may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        self.status() == Some(constants::OUT_OF_MEMORY)
    }

    /// The context is beyond use: a kernel faulted or hung, or the device went away. Every later
    /// call on it fails alike; other devices, and the CPU, are not affected.
    pub fn is_device_lost(&self) -> bool {
        self.status().is_some_and(|status| constants::DEVICE_LOST.contains(&status))
    }

    /// The runtime cannot do this, now or ever, whatever the arguments: the caller may go another
    /// way.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::MissingSymbol { .. } | Self::Unsupported { .. })
            || self.status() == Some(constants::NOT_SUPPORTED)
    }

    /// The runtime's status number, where one was the cause.
    pub fn status(&self) -> Option<i32> {
        match self {
            Self::Status { status, .. } | Self::Module { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// A library that was tried and did not load.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// Whose runtime it would have been.
    pub platform: Platform,
    /// Name or path handed to the loader.
    pub path: PathBuf,
    /// What the loader said.
    pub reason: String,
}

impl Attempt {
    pub(crate) fn new(platform: Platform, path: PathBuf, reason: String) -> Self {
        Self { platform, path, reason }
    }
}

impl fmt::Display for Attempt {
    /// The path alone where the file is simply absent, else with the loader's reason: a library that
    /// is there and does not load usually misses another one, which the reason names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        let absent = self.reason.contains(&format!("{path}: cannot open shared object file"));
        if absent { write!(f, "{path}") } else { write!(f, "{path} ({})", self.reason) }
    }
}

fn list(tried: &[Attempt]) -> String {
    if tried.is_empty() {
        return "nothing to try".to_owned();
    }
    let tried: Vec<String> = tried.iter().map(ToString::to_string).collect();
    format!("tried {}", tried.join(", "))
}

fn after_colon(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(": {log}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: i32) -> Error {
        let (name, text) = ("hipErrorSome".to_owned(), "something".to_owned());
        Error::Status { function: "hipMalloc", status, name, text }
    }

    #[test]
    fn a_status_is_shown_with_function_number_and_text() {
        assert_eq!(status(2).to_string(), "hipMalloc failed with hipErrorSome (2): something");
    }

    #[test]
    fn statuses_fall_into_their_kinds() {
        assert!(status(2).is_out_of_memory() && !status(2).is_device_lost());
        assert!(status(700).is_device_lost() && status(719).is_device_lost());
        assert!(status(801).is_unsupported());
        assert!(!status(1).is_device_lost() && !status(1).is_unsupported());
    }

    #[test]
    fn an_absent_library_is_named_and_a_broken_one_explained() {
        let attempt = |reason: &str| {
            Attempt::new(Platform::Amd, "libamdhip64.so.6".into(), reason.to_owned()).to_string()
        };
        let absent = "libamdhip64.so.6: cannot open shared object file: No such file or directory";
        assert_eq!(attempt(absent), "libamdhip64.so.6");
        let broken = "libhsa-runtime64.so.1: cannot open shared object file: No such file";
        assert_eq!(attempt(broken), format!("libamdhip64.so.6 ({broken})"));
    }
}
