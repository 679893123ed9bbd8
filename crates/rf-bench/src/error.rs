//! Errors of benchmarks.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::{fmt, io};

use rf_oracle::rf_graph::BackendError;

use crate::Suite;

/// Why a benchmark could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The target does not support the workload, or is not available.
    #[error("{0}")]
    Unsupported(String),
    /// The workload does not fit in memory.
    #[error("out of memory: {what} ({} MiB)", bytes.div_ceil(1 << 20))]
    OutOfMemory {
        /// The allocation that failed.
        what: &'static str,
        /// Requested bytes; 0 if unknown.
        bytes: u64,
    },
    /// No GPU can be used.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Device(#[from] rocmforge::device::Error),
    /// The backend failed.
    #[error(transparent)]
    Backend(BackendError),
    /// The conversion failed.
    #[error(transparent)]
    Conversion(#[from] rf_quant::Error),
    /// The pool of pages is too small.
    #[error(transparent)]
    Pages(#[from] rf_kv::OutOfPages),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] rocmforge::engine::Error),
    /// A model cannot be loaded.
    #[error(transparent)]
    Load(#[from] rocmforge::Error),
    /// No benchmark of the suites has a name with this text.
    #[error(
        "no benchmark of {} contains '{filter}'; `cargo xtask bench --list` prints the names",
        list(suites)
    )]
    NoBenchmark {
        /// The suites.
        suites: Vec<Suite>,
        /// The text.
        filter: String,
    },
    /// There is no baseline of this name.
    #[error(
        "baseline '{}' does not exist, here or in {folder} (available: {}): write one with --save-baseline",
        given.display(),
        list(known)
    )]
    NoBaseline {
        /// The path or the name as it was given.
        given: PathBuf,
        /// The folder of baselines, relative to the checkout.
        folder: &'static str,
        /// The files in that folder.
        known: Vec<String>,
    },
    /// A folder was given as a baseline.
    #[error("'{}' is a folder: name a baseline file in it", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// A folder was given as the file to write.
    #[error("cannot write '{}': it is a folder", path.display())]
    WriteFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A baseline cannot be read to compare with it.
    #[error(
        "cannot compare with '{}'; write a new baseline with --save-baseline",
        path.display()
    )]
    CompareWith {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: rf_profile::Error,
    },
    /// A baseline cannot be read to merge into it.
    #[error("cannot merge into '{}'; remove the file or name another one", path.display())]
    MergeInto {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: rf_profile::Error,
    },
    /// A run has no results to save.
    #[error("no benchmark was measured; '{}' is unchanged", unchanged.display())]
    NothingMeasured {
        /// The baseline.
        unchanged: PathBuf,
    },
    /// A record cannot be read.
    #[error("cannot read record '{}': {reason}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A model file cannot be used.
    #[error("cannot use model '{}'", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<rocmforge::Error>,
    },
    /// The spans of the engine do not include a first token, as in a build without spans.
    #[error("the spans of the engine do not include a first token")]
    NoFirstToken,
    /// The tokenizer of the model makes too few tokens of the text that prompts repeat.
    #[error("the prompt text has {tokens} tokens with this model, but {needed} are needed")]
    ShortPrompt {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens of the prompt.
        needed: usize,
    },
    /// A workload failed.
    #[error("{name}")]
    Workload {
        /// The workload.
        name: String,
        /// The reason.
        source: Box<Self>,
    },
    /// A file or a process operation failed.
    #[error("could not {action}")]
    Io {
        /// The operation and its object, as in `read model 'a.gguf'`.
        action: String,
        /// The reason.
        source: io::Error,
    },
    /// A worker process of a paired comparison failed.
    #[error("worker '{program}' failed: {reason}")]
    Worker {
        /// The program.
        program: String,
        /// The reason, and the cure where there is one.
        reason: String,
    },
    /// A server did not start, or answered otherwise than asked.
    #[error("server {url} failed: {reason}")]
    Server {
        /// Address of the server, or its program if it did not start.
        url: String,
        /// The reason.
        reason: String,
    },
    /// An urgent interrupt ended the measurement.
    #[error("interrupted")]
    Interrupted,
    /// The other side of a comparison cannot be built.
    #[error("cannot measure revision '{revision}': {reason}")]
    Revision {
        /// The revision as it was given.
        revision: String,
        /// The reason, and the cure where there is one.
        reason: String,
    },
    /// A measurement of rf-profile failed, or a file that it reads or writes.
    #[error(transparent)]
    Profile(#[from] rf_profile::Error),
    /// A program failed. Its output went to the terminal.
    #[error("'{program}' failed with {status}")]
    Program {
        /// The program.
        program: String,
        /// Exit status of the program.
        status: ExitStatus,
    },
    /// The program that measures another engine printed no speeds.
    #[error("cannot read the speeds of {program}: {reason}")]
    PeerOutput {
        /// The program.
        program: String,
        /// The reason.
        reason: String,
    },
    /// Results cannot be written as JSON.
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    /// A table cannot be written as CSV.
    #[error("cannot write CSV")]
    Csv(#[from] csv::Error),
    /// The HTML report cannot be rendered.
    #[error("cannot render the report: {0}")]
    Report(String),
}

impl Error {
    pub(crate) fn io(action: impl fmt::Display, source: io::Error) -> Self {
        Self::Io { action: action.to_string(), source }
    }

    pub(crate) fn of(self, workload: &str) -> Self {
        Self::Workload { name: workload.to_owned(), source: Box::new(self) }
    }
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Unsupported { .. } => Self::Unsupported(error.to_string()),
            BackendError::OutOfMemory { what, bytes } => Self::OutOfMemory { what, bytes },
            BackendError::DoesNotFit { need, .. } => {
                Self::OutOfMemory { what: "the program", bytes: need.total_bytes() }
            }
            other => Self::Backend(other),
        }
    }
}

/// Items separated by commas, or `none`.
fn list<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}
