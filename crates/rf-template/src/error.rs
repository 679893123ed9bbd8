//! The error type.

/// Why a template does not parse, or why it stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source is not a template, or is larger or deeper than the limits.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line in the source, from 1.
        line: u32,
        /// The defect.
        message: String,
    },
    /// The template failed while it ran, or reached a limit.
    #[error("line {line}: {message}")]
    Failed {
        /// The line in the source, from 1.
        line: u32,
        /// The defect.
        message: String,
    },
    /// The template called `raise_exception`.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// A failure whose line the running statement sets.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed { line: 0, message: message.into() }
    }

    /// Sets the line of a failure that has none yet.
    pub(crate) fn on_line(self, at: u32) -> Self {
        match self {
            Self::Failed { line: 0, message } => Self::Failed { line: at, message },
            error => error,
        }
    }
}
