//! Errors for users: one sentence that ends with the cure, and an exit code.

use std::fmt;
use std::io;
use std::path::Path;

use anyhow::Error;
use rf_graph::BackendError;

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
pub(crate) const INTERRUPTED: u8 = 130;

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

fn is_bad_input(cause: &(dyn std::error::Error + 'static)) -> bool {
    use rf_engine::Error as E;
    let is_bad_model = |error: &BackendError| {
        matches!(error, BackendError::DoesNotFit { .. } | BackendError::NonFiniteWeight { .. })
    };
    if let Some(error) = gguf_error(cause) {
        return !matches!(
            error,
            rf_gguf::Error::Io { action: "write", .. }
                | rf_gguf::Error::TensorData { .. }
                | rf_gguf::Error::Header { .. }
        );
    }
    if let Some(error) = cause.downcast_ref::<rf_device::Error>() {
        use rf_device::Error as D;
        return match error {
            D::LayersWithoutGpu { .. } | D::LayersDoNotFit(_) => true,
            D::Engine(error) => is_bad_input(error),
            D::Reopen(error) => is_bad_input(&**error),
            D::Backend(error) => is_bad_model(error),
            _ => false,
        };
    }
    match cause.downcast_ref::<E>() {
        Some(E::Backend(error)) => is_bad_model(error),
        Some(E::OutOfPages(_)) => false,
        Some(_) => true,
        None => {
            cause.is::<BadInput>()
                || cause.is::<rf_model::Error>()
                || cause.is::<rf_tokenizer::Error>()
                || cause.is::<rf_chat::Error>()
                || cause.downcast_ref().is_some_and(rf_hub::Error::is_bad_input)
        }
    }
}

/// The error of the container in `cause`, in any wrapper.
fn gguf_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a rf_gguf::Error> {
    use rf_engine::Error as E;
    use rf_model::Error as M;
    if let Some(E::Gguf(error) | E::Model(M::Gguf(error))) = cause.downcast_ref::<E>() {
        return Some(error);
    }
    if let Some(rf_device::Error::Engine(error)) = cause.downcast_ref() {
        return gguf_error(error);
    }
    match cause.downcast_ref::<M>() {
        Some(M::Gguf(error)) => Some(error),
        _ => cause.downcast_ref(),
    }
}

/// The error of the model in `cause`, in any wrapper.
fn model_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a rf_model::Error> {
    if let Some(rf_device::Error::Engine(error)) = cause.downcast_ref() {
        return model_error(error);
    }
    match cause.downcast_ref() {
        Some(rf_engine::Error::Model(error)) => Some(error),
        _ => cause.downcast_ref(),
    }
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
    if let Some(error) = gguf_error(cause) {
        return gguf_cure(error);
    }
    if let Some(rf_model::Error::NoLogits { .. }) = model_error(cause) {
        return Some("use `rf-cli embed` or `rf-cli rerank`");
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

fn gguf_cure(error: &rf_gguf::Error) -> Option<&'static str> {
    use rf_gguf::{Error as E, Problem as P};
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
