//! Errors of the GPU runtime.

use std::fmt;
use std::path::PathBuf;

use crate::Platform;
use crate::sys::constants;

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
    /// No shared library of a GPU runtime can be loaded.
    #[error("no GPU runtime library found: {}", list(tried))]
    LibraryNotFound {
        /// The attempts in order, each with the loader's error.
        tried: Vec<Attempt>,
    },
    /// `ROCFORGE_GPU_PLATFORM` is neither `amd` nor `nvidia`.
    #[error("unknown GPU platform '{name}': set ROCFORGE_GPU_PLATFORM to amd or nvidia")]
    UnknownPlatform {
        /// The value of the variable.
        name: String,
    },
    /// The loaded library lacks a function: it is too old or incomplete.
    #[error("'{}' has no function {symbol}", library.display())]
    MissingSymbol {
        /// The function's name.
        symbol: &'static str,
        /// The name or path under which the library was opened.
        library: PathBuf,
    },
    /// The platform does not support the operation.
    #[error("{operation} is not supported on {platform}")]
    Unsupported {
        /// The platform in use.
        platform: Platform,
        /// The operation.
        operation: &'static str,
    },
    /// A function of the runtime returned a status other than success.
    ///
    /// Work runs asynchronously, so the status may be that of an earlier call.
    #[error("{function} failed with {name} ({status}): {text}")]
    Status {
        /// The foreign function that returned the status.
        function: &'static str,
        /// `hipError_t` or `CUresult`.
        status: i32,
        /// The name of the status in the runtime's header.
        name: String,
        /// The runtime's description of the status.
        text: String,
    },
    /// The runtime rejected a code object or PTX text.
    #[error("{function} rejected the module: {name} ({status}){}", after_colon(log))]
    Module {
        /// The foreign function that returned the status.
        function: &'static str,
        /// `hipError_t` or `CUresult`.
        status: i32,
        /// The name of the status in the runtime's header.
        name: String,
        /// The messages of the runtime's compiler, or empty.
        log: String,
    },
    /// The bytes are not a code object, cubin or PTX text, or are truncated.
    #[error("not a loadable module: {reason}")]
    Image {
        /// The defect.
        reason: &'static str,
    },
    /// hiprtc cannot compile a source.
    #[error("cannot compile '{source_name}': {text}{}", after_colon(log))]
    Compilation {
        /// The name of the source.
        source_name: String,
        /// hiprtc's description of the status.
        text: String,
        /// The compiler's messages.
        log: String,
    },
    /// No device has this ordinal.
    #[error("no device {ordinal}: {count} found")]
    NoSuchDevice {
        /// The requested ordinal, from 0.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },
    /// A range of elements exceeds the buffer.
    #[error("elements {start}..{end} are out of bounds for a buffer of {len}")]
    OutOfBounds {
        /// The first element of the range.
        start: usize,
        /// One past the last element of the range.
        end: usize,
        /// The buffer's length in elements.
        len: usize,
    },
    /// The size of a buffer in bytes exceeds the address space.
    #[error("a buffer of {len} elements of {element_bytes} bytes is too large to address")]
    TooLarge {
        /// The requested number of elements.
        len: usize,
        /// The size of an element.
        element_bytes: usize,
    },
    /// A call combines objects of two contexts.
    #[error("{operation} across contexts is not supported")]
    ContextMismatch {
        /// The operation.
        operation: &'static str,
    },
    /// The stream captures a graph, and this operation cannot be part of one.
    #[error("{operation} cannot be captured into a graph")]
    Capturing {
        /// The operation.
        operation: &'static str,
    },
    /// The stream is not capturing a graph, or is already capturing one.
    #[error("the stream is {}", if *.active { "already capturing" } else { "not capturing" })]
    CaptureState {
        /// True if the stream is capturing.
        active: bool,
    },
    /// A text contains a zero byte and cannot be passed to C.
    #[error("'{}' contains a zero byte", name.escape_default())]
    ZeroByte {
        /// The text, or its beginning.
        name: String,
    },
}

impl Error {
    /// Returns true if the device is out of memory. A retry may succeed after memory is freed.
    pub fn is_out_of_memory(&self) -> bool {
        self.status() == Some(constants::OUT_OF_MEMORY)
    }

    /// Returns true if the context is lost: a kernel faulted or hung, or the device disappeared.
    /// Every later call in the context fails the same way; other devices are not affected.
    pub fn is_device_lost(&self) -> bool {
        self.status().is_some_and(|status| constants::DEVICE_LOST.contains(&status))
    }

    /// Returns true if the runtime does not support the operation, whatever its arguments. A caller
    /// can use an alternative.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::MissingSymbol { .. } | Self::Unsupported { .. })
            || self.status() == Some(constants::NOT_SUPPORTED)
    }

    /// Returns true if the runtime cannot use a module or find a kernel in it: code for another
    /// device, or in a format that this runtime is too old for. Other code may work.
    pub fn is_refused_code(&self) -> bool {
        let is_of_code = match self {
            Self::Module { .. } | Self::Image { .. } => true,
            Self::Status { function, .. } => MODULE_FUNCTION.contains(function),
            _ => false,
        };
        is_of_code && !self.is_out_of_memory() && !self.is_device_lost()
    }

    /// The runtime's status number, if a status is the cause.
    pub fn status(&self) -> Option<i32> {
        match self {
            Self::Status { status, .. } | Self::Module { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// The functions that find a kernel in a module.
const MODULE_FUNCTION: [&str; 2] = ["hipModuleGetFunction", "cuModuleGetFunction"];

/// A library that could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The platform of the library.
    pub platform: Platform,
    /// The name or path passed to the loader.
    pub path: PathBuf,
    /// The loader's error.
    pub reason: String,
}

impl Attempt {
    pub(crate) fn new(platform: Platform, path: PathBuf, reason: String) -> Self {
        Self { platform, path, reason }
    }

    /// Returns true if there is no such library, as opposed to one that does not load: such a
    /// library usually lacks a dependency, which the loader's error names.
    pub fn is_absent(&self) -> bool {
        if cfg!(windows) {
            // The loader's error does not tell the two apart.
            return !self.path.exists();
        }
        let absent = format!("{}: cannot open shared object file", self.path.display());
        self.reason.contains(&absent)
    }
}

impl fmt::Display for Attempt {
    /// Prints the path, followed by the loader's error unless the file does not exist.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        if self.is_absent() { write!(f, "{path}") } else { write!(f, "{path} ({})", self.reason) }
    }
}

fn list(tried: &[Attempt]) -> String {
    if tried.is_empty() {
        return "no candidates".to_owned();
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
    fn statuses_are_classified() {
        assert!(status(2).is_out_of_memory() && !status(2).is_device_lost());
        assert!(status(700).is_device_lost() && status(719).is_device_lost());
        assert!(status(801).is_unsupported());
        assert!(!status(1).is_device_lost() && !status(1).is_unsupported());
        let module = |status| {
            let (name, log) = ("hipErrorSome".to_owned(), String::new());
            Error::Module { function: "hipModuleLoadData", status, name, log }
        };
        assert!(module(209).is_refused_code() && !status(209).is_refused_code());
        assert!(!module(2).is_refused_code() && !module(700).is_refused_code());
    }

    #[cfg(not(windows))]
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
