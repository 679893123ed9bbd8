//! Errors of files, tools and measurements.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The reason why a value was not measured, stored or read.
///
/// # Examples
///
/// ```
/// use rf_profile::Error;
/// use rf_profile::tools::Tool;
///
/// // Some guides name this tool, but it never existed.
/// let error = Tool::named("rocperf").unwrap_err();
/// assert!(matches!(error, Error::NoSuchTool { .. }));
/// assert!(error.to_string().contains("rocprofv3"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("cannot read '{}'", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file cannot be written. Its earlier contents are unchanged.
    #[error("cannot write '{}'", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A text is not in the expected format. `origin` is the path of a file or the name of a tool;
    /// lines count from 1, and line 0 stands for the whole text.
    #[error("'{origin}'{}: {reason}", at_line(*line))]
    Malformed { origin: String, line: usize, reason: String },
    /// A file has a format version that this program does not know. The file is unchanged.
    #[error(
        "'{origin}' has format version {found}, newer than {supported}: use a newer ROCmForge with it"
    )]
    Newer { origin: String, found: u64, supported: u64 },
    /// The samples of a metric are unusable.
    #[error("no value for '{name}': {reason}")]
    Samples { name: String, reason: &'static str },
    /// No supported tool has this name.
    #[error("unknown profiling tool '{name}': use one of {known}")]
    UnknownTool { name: String, known: String },
    /// Some documents name this tool, but it does not exist.
    #[error("there is no tool '{name}': use {successor}")]
    NoSuchTool { name: String, successor: &'static str },
    /// A tool is not installed.
    #[error("{tool} is not installed: {hint}")]
    ToolMissing { tool: &'static str, hint: &'static str },
    /// The installed version of a tool lacks an option.
    #[error("the installed {tool} has no option {flag}")]
    FlagMissing { tool: &'static str, flag: String },
    /// A tool does not support the request, on this GPU or at all.
    #[error("{tool}: {reason}")]
    Unsupported { tool: &'static str, reason: String },
    /// A program did not start.
    #[error("cannot start '{program}'")]
    Start { program: String, source: io::Error },
    /// A program and all the processes that it had started were killed, after the time limit or on
    /// request. `elapsed` is the running time and `tail` the last lines of stderr.
    #[error("'{program}' was killed after {:.1} s{}", elapsed.as_secs_f64(), after_colon(tail))]
    Killed { program: String, elapsed: Duration, tail: String },
    /// A program ended with an error. `tail` is the last lines of stderr.
    #[error("'{program}' failed with {status}{}", after_colon(tail))]
    Failed { program: String, status: String, tail: String },
    /// A tool succeeded but wrote no output that can be read. `tail` is the last lines of stderr.
    #[error("'{program}' wrote no {expected}{}", after_colon(tail))]
    NoOutput { program: String, expected: String, tail: String },
    /// A table lacks a column.
    #[error("'{origin}' has no column {column}")]
    NoColumn { origin: String, column: String },
    /// Every value of every counter is zero, so the hardware did not count.
    #[error("all {values} values of {counters} are 0, so nothing was counted: {cause}")]
    ZeroCounters { values: usize, counters: String, cause: &'static str },
    /// No source on this machine reports the state of a GPU.
    #[error("no GPU to monitor: {}", tried.join("; "))]
    NoMonitor { tried: Vec<String> },
    /// The methods of a timer were called in the wrong order.
    #[error("timer '{name}' {problem}")]
    Timer { name: String, problem: &'static str },
    /// The GPU runtime failed.
    #[error(transparent)]
    Gpu(#[from] rf_hip::Error),
}

impl Error {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }

    pub(crate) fn malformed(origin: &str, line: usize, reason: impl Into<String>) -> Self {
        Self::Malformed { origin: origin.to_owned(), line, reason: reason.into() }
    }

    pub(crate) fn json(origin: &str, error: &serde_json::Error) -> Self {
        Self::malformed(origin, error.line(), error.to_string())
    }
}

fn at_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
