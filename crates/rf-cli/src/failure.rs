//! Errors for users: one sentence that ends with the cure, and an exit code.

use std::path::Path;
use std::{fmt, io};

use anyhow::Error;
use rocmforge::engine::{BackendError, MediaError};

use crate::terminal;

/// Invalid input of the user: exit code 2.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// Ctrl-C: exit code 130, as shells expect.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Two models differ: exit code 1 without a message, as the differences are printed.
#[derive(Debug)]
pub(crate) struct Differs;

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the models differ")
    }
}

impl std::error::Error for Differs {}

/// An error of kind [`BadInput`].
macro_rules! bad_input {
    ($($format:tt)+) => {
        anyhow::Error::new($crate::failure::BadInput(format!($($format)+)))
    };
}
pub(crate) use bad_input;

/// Exit code of success.
pub(crate) const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;
const BAD_INPUT: u8 = 2;
const INTERRUPTED: u8 = 130;

/// The exit code of `error`: 2 for bad input, 130 for Ctrl-C, 1 for everything else.
pub(crate) fn exit_code(error: &Error) -> u8 {
    let mut code = FAILURE;
    for cause in error.chain() {
        if is_broken_pipe(cause) {
            return SUCCESS;
        }
        if cause.is::<Interrupted>() {
            return INTERRUPTED;
        }
        if is_bad_input(cause) {
            code = BAD_INPUT;
        }
    }
    code
}

/// Returns true if the error is to be printed.
pub(crate) fn has_message(error: &Error) -> bool {
    !matches!(exit_code(error), SUCCESS | INTERRUPTED) && !error.is::<Differs>()
}

fn is_bad_input(cause: &(dyn std::error::Error + 'static)) -> bool {
    use rocmforge::Error as R;
    use rocmforge::device::Error as D;
    use rocmforge::engine::Error as E;
    let cause = innermost(cause);
    let is_bad_model = |error: &BackendError| {
        matches!(error, BackendError::DoesNotFit { .. } | BackendError::NonFiniteWeight { .. })
    };
    if let Some(error) = cause.downcast_ref::<rocmforge::gguf::Error>() {
        use rocmforge::gguf::Error as G;
        return !matches!(
            error,
            G::Io { action: "write", .. } | G::TensorData { .. } | G::Header { .. }
        );
    }
    if let Some(error) = cause.downcast_ref::<D>() {
        return match error {
            D::LayersWithoutGpu { .. }
            | D::LayersDoNotFit(_)
            | D::ShareCount { .. }
            | D::UndividedParts => true,
            D::Backend(error) => is_bad_model(error),
            _ => false,
        };
    }
    if let Some(error) = cause.downcast_ref::<R>() {
        return !matches!(error, R::Thread(_) | R::ShuttingDown | R::QueueFull { .. });
    }
    match cause.downcast_ref::<E>() {
        Some(E::Backend(error)) => is_bad_model(error),
        Some(E::OutOfPages(_)) => false,
        Some(_) => true,
        None => {
            cause.is::<BadInput>()
                || cause.is::<rocmforge::engine::ModelError>()
                || cause.is::<rf_tokenizer::Error>()
                || cause.is::<rocmforge::messages::Error>()
                || cause.downcast_ref().is_some_and(rocmforge::hub::Error::is_bad_input)
                || cause.downcast_ref().is_some_and(rocmforge::hub::NameListError::is_bad_input)
        }
    }
}

/// The error within the wrappers of the crates above the one where it arose. Wrappers are
/// transparent: they have the text of the inner error, and its causes.
fn innermost<'a>(
    cause: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    use rocmforge::Error as R;
    use rocmforge::device::Error as D;
    use rocmforge::engine::{Error as E, ModelError as M};
    let inner: Option<&'a (dyn std::error::Error + 'static)> =
        if let Some(error) = cause.downcast_ref::<R>() {
            match error {
                R::Hub(error) => Some(error),
                R::Gguf(error) => Some(error),
                R::Engine(error) => Some(error),
                R::Device(error) => Some(error),
                R::Chat(error) => Some(error),
                _ => None,
            }
        } else if let Some(D::Engine(error)) = cause.downcast_ref() {
            Some(error)
        } else if let Some(error) = cause.downcast_ref::<E>() {
            match error {
                E::Gguf(error) => Some(error),
                E::Model(error) => Some(error),
                _ => None,
            }
        } else if let Some(M::Gguf(error)) = cause.downcast_ref() {
            Some(error)
        } else {
            None
        };
    inner.map_or(cause, innermost)
}

/// Returns true if the reader of the output closed the pipe, as `head` does. That is no failure.
fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The error with its causes as one sentence, with a cure if the causes have none.
pub(crate) fn sentence(error: &Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // Some errors quote their cause.
        if sentence.is_empty() {
            sentence = text;
        } else if !sentence.ends_with(&text) {
            sentence.push_str(": ");
            sentence.push_str(&text);
        }
    }
    // Errors quote names, keys and messages of files.
    let mut sentence = terminal::shown(&sentence);
    if let Some(cure) = error.chain().find_map(cure) {
        sentence.push_str(": ");
        sentence.push_str(cure);
    }
    sentence
}

fn cure(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let cause = innermost(cause);
    if let Some(error) = cause.downcast_ref() {
        return gguf_cure(error);
    }
    if let Some(rocmforge::engine::ModelError::NoLogits { .. }) = cause.downcast_ref() {
        return Some("use `rf-cli embed` or `rf-cli rerank`");
    }
    if let Some(error) = cause.downcast_ref() {
        return engine_cure(error);
    }
    if let Some(rf_server::Error::Listen { .. }) = cause.downcast_ref() {
        return Some("give another --port or --host; ports below 1024 may need the rights of root");
    }
    if let Some(error) = cause.downcast_ref() {
        return device_cure(error);
    }
    if let Some(error) = cause.downcast_ref() {
        return library_cure(error);
    }
    if cause.is::<rf_quant::Error>() {
        return Some("the model is damaged, so download or convert it again");
    }
    let error = cause.downcast_ref::<io::Error>()?;
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("make room on the disk or write to another one")
        }
        io::ErrorKind::PermissionDenied => Some("check the permissions of the file and its folder"),
        _ => None,
    }
}

/// The flags for the parameters that an error of the engine speaks of.
fn engine_cure(error: &rocmforge::engine::Error) -> Option<&'static str> {
    use rocmforge::engine::Error as E;
    match error {
        E::PromptTooLong { .. } => Some("see -c"),
        E::Media(MediaError::Unsupported) => Some("see --device cpu"),
        E::Backend(BackendError::StaleResults) => Some("see --graphs off"),
        _ => None,
    }
}

/// A warning about devices, with the flags that change what it says.
pub(crate) fn device_warning(warning: &rocmforge::device::Warning) -> String {
    use rocmforge::device::Warning as W;
    match warning {
        W::CpuIsFaster { .. } => format!("{warning} (--device gpu uses it anyway)"),
        W::EverythingOnCpu { .. } => format!("{warning}: see `rf-cli doctor`"),
        _ => warning.to_string(),
    }
}

/// The flags for the parameters that an error of a device speaks of.
fn device_cure(error: &rocmforge::device::Error) -> Option<&'static str> {
    use rocmforge::device::Error as D;
    match error {
        D::LayersWithoutGpu { .. } => Some("leave out -ngl or --device cpu"),
        D::ShareCount { .. } => Some("-ts has the shares, --device the devices"),
        D::UndividedParts => Some("--device cpu,cpu needs -sm tensor"),
        D::WithoutGpuSupport | D::NothingFits { .. } => Some("see -c and --device cpu"),
        D::LayersDoNotFit(_) => Some("see -ngl auto, --cpu-moe, -c and -ctk q8_0"),
        D::NoSuchGpu { .. } => Some("`rf-cli devices` lists them"),
        D::NoGpu { .. } | D::RuntimeFailed { .. } | D::NoRuntime => {
            Some("see `rf-cli doctor` and --device cpu")
        }
        _ => None,
    }
}

/// The flags for the parameters that an error of the library speaks of.
fn library_cure(error: &rocmforge::Error) -> Option<&'static str> {
    use rocmforge::Error as R;
    match error {
        R::WithoutDemoModel => {
            Some("give a model with -m FILE, or build the program with the feature demo-model")
        }
        R::NoMtp { .. } => Some("give --spec ngram, or leave --spec out"),
        _ => None,
    }
}

/// The cure for a file that does not exist.
pub(crate) fn missing_file_cure(path: &Path) -> &'static str {
    let text = path.as_os_str().as_encoded_bytes();
    if text.starts_with(b"http://") || text.starts_with(b"https://") {
        "addresses are not opened: download the file, or give a repository of the Hugging Face hub \
         with -hf"
    } else if text.starts_with(b"~") {
        "the shell replaces ~ outside quotation marks only: write $HOME instead"
    } else {
        "check the path"
    }
}

fn gguf_cure(error: &rocmforge::gguf::Error) -> Option<&'static str> {
    use rocmforge::gguf::{Error as E, Problem as P};
    match error {
        E::InFile { error, .. } => gguf_cure(error),
        E::NotFound { path } => Some(missing_file_cure(path)),
        E::NotRegular { .. } => Some("give the path of a .gguf file"),
        E::Empty => Some("download or convert the model again"),
        E::Malformed {
            problem: P::CountTooLarge { .. } | P::Truncated { .. } | P::DataPastEnd { .. },
            ..
        } => Some("download or copy it again"),
        E::Malformed { .. } => Some("the file is damaged or was written by a faulty converter"),
        E::NotGguf { .. } => Some("give a model in GGUF format"),
        E::MissingPart { .. } => Some("put all parts into one folder"),
        E::MissingKey { .. } | E::MissingTensor { .. } => Some("convert the model again"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rocmforge::device::{Error as D, Warning as W};
    use rocmforge::engine::Error as E;

    use super::*;

    #[test]
    fn errors_and_warnings_of_libraries_end_with_flags_and_commands() {
        for (error, end) in [
            (Error::new(D::NoSuchGpu { number: 3, last: 1 }), "is 1: `rf-cli devices` lists them"),
            (Error::new(D::NoRuntime), ": see `rf-cli doctor` and --device cpu"),
            (Error::new(E::from(BackendError::StaleResults)), "graphs: see --graphs off"),
            (Error::new(E::from(MediaError::Unsupported)), "on the CPU: see --device cpu"),
            (Error::new(rocmforge::Error::from(E::from(MediaError::Unsupported))), "--device cpu"),
        ] {
            assert!(sentence(&error).ends_with(end), "{}", sentence(&error));
        }
        let slow = device_warning(&W::CpuIsFaster { gpu: "GPU 0".to_owned() });
        assert_eq!(
            slow,
            "GPU 0 is not used: the CPU is likely faster (--device gpu uses it anyway)"
        );
        let none = device_warning(&W::EverythingOnCpu { reason: "no GPU".to_owned() });
        assert_eq!(none, "everything runs on the CPU: no GPU: see `rf-cli doctor`");
    }
}
