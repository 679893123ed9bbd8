//! What can go wrong with files, tools and figures.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why something was not measured, stored or read.
///
/// # Examples
///
/// ```
/// use rf_profile::Error;
/// use rf_profile::tools::Tool;
///
/// // A tool that older texts name and that never existed.
/// let error = Tool::named("rocperf").unwrap_err();
/// assert!(matches!(error, Error::NoSuchTool { .. }));
/// assert!(error.to_string().contains("rocprofv3"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("cannot read '{}'", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written; what was there before is still there.
    #[error("cannot write '{}'", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A text is not in the format that it should be in.
    #[error("'{origin}'{}: {reason}", at_line(*line))]
    Malformed {
        /// Path of the file, or which tool's output it is.
        origin: String,
        /// From 1; 0 where the text as a whole is meant.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A file is of a version that this program does not know; it was left alone.
    #[error(
        "'{origin}' has format version {found}, newer than {supported}: use a newer ROCmForge with it"
    )]
    Newer {
        /// Path of the file.
        origin: String,
        /// Its version.
        found: u64,
        /// The newest version known.
        supported: u64,
    },
    /// A figure cannot be made of these samples.
    #[error("no figure for '{name}': {reason}")]
    Samples {
        /// What was measured.
        name: String,
        /// What is wrong with the samples.
        reason: &'static str,
    },
    /// No tool of this name is known.
    #[error("unknown profiling tool '{name}': known are {known}")]
    UnknownTool {
        /// As given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A name that texts mention, of a tool that does not exist.
    #[error("there is no tool '{name}': use {successor}")]
    NoSuchTool {
        /// As given.
        name: String,
        /// What does what was wanted.
        successor: &'static str,
    },
    /// A tool is not installed.
    #[error("{tool} is not installed: {hint}")]
    ToolMissing {
        /// Its program.
        tool: &'static str,
        /// What brings it.
        hint: &'static str,
    },
    /// The installed version of a tool has not got an option.
    #[error("{tool} of this machine has no option {flag}")]
    FlagMissing {
        /// Its program.
        tool: &'static str,
        /// The option.
        flag: String,
    },
    /// A tool cannot do what was asked for, here or at all.
    #[error("{tool}: {reason}")]
    Unsupported {
        /// Its program.
        tool: &'static str,
        /// Why not.
        reason: String,
    },
    /// A program did not start.
    #[error("cannot start '{program}'")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program ran too long and was ended, with everything that it had started.
    #[error("'{program}' was ended after {:.1} s{}", limit.as_secs_f64(), after_colon(tail))]
    TimedOut {
        /// The program.
        program: String,
        /// How long it was given.
        limit: Duration,
        /// The last lines that it wrote.
        tail: String,
    },
    /// A program ended with an error.
    #[error("'{program}' failed with {status}{}", after_colon(tail))]
    Failed {
        /// The program.
        program: String,
        /// Its exit status.
        status: String,
        /// The last lines that it wrote.
        tail: String,
    },
    /// A tool ran and left nothing to read.
    #[error("'{program}' left no {expected}{}", after_colon(tail))]
    NoOutput {
        /// The program.
        program: String,
        /// What should be there.
        expected: String,
        /// The last lines that it wrote.
        tail: String,
    },
    /// A table has no such column.
    #[error("'{origin}' has no column {column}")]
    NoColumn {
        /// Path of the file.
        origin: String,
        /// The column.
        column: String,
    },
    /// Every value of every counter is zero: the hardware did not count.
    #[error("all {values} values of {counters} are 0, so nothing was counted: {cause}")]
    ZeroCounters {
        /// How many values there are.
        values: usize,
        /// The counters.
        counters: String,
        /// The known cause, and the cure.
        cause: &'static str,
    },
    /// Nothing on this machine tells of a GPU's state.
    #[error("no GPU to watch: {}", tried.join("; "))]
    NoMonitor {
        /// What was tried, each with why it does not serve.
        tried: Vec<String>,
    },
    /// A timer was used out of order.
    #[error("timer '{name}' {problem}")]
    Timer {
        /// Its name.
        name: String,
        /// What is out of order.
        problem: &'static str,
    },
    /// The GPU runtime failed.
    #[error(transparent)]
    Gpu(#[from] rf_hip::Error),
}

impl Error {
    /// Whether there was no room left to write to.
    pub fn is_disk_full(&self) -> bool {
        let Self::Write { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

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
