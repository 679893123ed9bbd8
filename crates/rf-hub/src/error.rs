//! Errors, each with its cure.

use std::io;
use std::path::PathBuf;

/// An error on the way to a model file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text names no model of the hub.
    #[error("'{text}' does not name a model of the hub: give OWNER/REPO or OWNER/REPO:QUANT")]
    Name {
        /// The text as given.
        text: String,
    },
    /// There is no folder for downloads, since the user has no home.
    #[error("no folder for downloaded models: set HF_HOME to one")]
    NoHome,
    /// The hub does not know the repository.
    #[error("repository '{repo}' does not exist on {endpoint}: check the name")]
    UnknownRepository {
        /// The repository.
        repo: String,
        /// The URL of the hub.
        endpoint: String,
    },
    /// The repository is gated or private. The hub says the same of one that does not exist.
    #[error(
        "access to repository '{repo}' is denied (status {status}): check the name, accept the terms at \
         {endpoint}/{repo} if it has any, and set HF_TOKEN to a token that can read it"
    )]
    Denied {
        /// The repository.
        repo: String,
        /// The URL of the hub.
        endpoint: String,
        /// The HTTP status: 401 or 403.
        status: u16,
    },
    /// The repository has no GGUF model.
    #[error(
        "repository '{repo}' has no GGUF model (files: {files}): choose a repository with .gguf files"
    )]
    NoGguf {
        /// The repository.
        repo: String,
        /// First files of the repository, separated by commas, or `none`.
        files: String,
    },
    /// The repository has no model in the given quantisation.
    #[error("repository '{repo}' has no quantisation '{quant}': choose one of {available}")]
    UnknownQuant {
        /// The repository.
        repo: String,
        /// The quantisation as given.
        quant: String,
        /// Quantisations that exist, separated by commas.
        available: String,
    },
    /// All models of the repository are split and miss parts.
    #[error("repository '{repo}' lacks parts of its split models: choose another repository")]
    MissingParts {
        /// The repository.
        repo: String,
    },
    /// Downloads are off, and the cache folder lacks the model.
    #[error(
        "model '{name}' is not in the cache folder '{}' and HF_HUB_OFFLINE is set: unset it to download the model",
        cache.display()
    )]
    NotCached {
        /// The model.
        name: String,
        /// The cache folder.
        cache: PathBuf,
    },
    /// A model that is to be removed is not in the cache folder.
    #[error("model '{name}' is not in the cache folder: check the name")]
    NothingToRemove {
        /// The model.
        name: String,
    },
    /// The hub cannot be reached.
    #[error(
        "cannot reach {endpoint} for '{what}': {reason}: check the network, the proxy and HF_ENDPOINT"
    )]
    Network {
        /// The URL of the hub.
        endpoint: String,
        /// The repository or file.
        what: String,
        /// The reason of the failure.
        reason: String,
    },
    /// The connection was lost during a download.
    #[error("the download of '{file}' stopped: {reason}: run the command again to resume it")]
    Interrupted {
        /// The file of the repository.
        file: String,
        /// The reason of the failure.
        reason: String,
    },
    /// The hub answered with another status than success.
    #[error("{endpoint} answers with status {status} for '{what}': try again later")]
    Status {
        /// The URL of the hub.
        endpoint: String,
        /// The repository or file.
        what: String,
        /// The HTTP status.
        status: u16,
    },
    /// The answer of the hub is not what its API promises.
    #[error("{endpoint} does not answer like a hub for '{what}' ({reason}): check HF_ENDPOINT")]
    Answer {
        /// The URL of the hub.
        endpoint: String,
        /// The repository or file.
        what: String,
        /// A description of the problem.
        reason: String,
    },
    /// The cache folder cannot be read or written.
    #[error("cannot use '{}': {error}: {}", path.display(), disk_cure(error))]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// The error of the file system.
        error: io::Error,
    },
    /// Another process downloads the same file.
    #[error("another process downloads '{file}': wait for it and run the command again")]
    Busy {
        /// The file of the repository.
        file: String,
    },
    /// The downloaded bytes are not those of the file. They were removed.
    #[error(
        "the download of '{file}' is damaged (SHA-256 {found}, expected {expected}) and was removed: run the \
         command again to repeat it"
    )]
    Checksum {
        /// The file of the repository.
        file: String,
        /// The SHA-256 that the hub states, in hexadecimal.
        expected: String,
        /// The SHA-256 of the downloaded bytes.
        found: String,
    },
}

impl Error {
    /// Returns true if another name, token or setting is needed, and trying again would not help.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Name { .. }
                | Self::NoHome
                | Self::UnknownRepository { .. }
                | Self::Denied { .. }
                | Self::NoGguf { .. }
                | Self::UnknownQuant { .. }
                | Self::MissingParts { .. }
                | Self::NotCached { .. }
                | Self::NothingToRemove { .. }
        )
    }

    /// Returns true if the hub gave no information about the model, so that a cached one is used.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Network { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}

fn disk_cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on the disk, or set HF_HOME to a folder on another one"
        }
        _ => "check its permissions, or set HF_HOME to another folder",
    }
}
