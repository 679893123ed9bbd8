//! The steps of loading a model.

use std::path::Path;

use rf_device::{LayerPlacement, Warning};
use rf_graph::{MemoryNeed, Progress};
use rf_hub::ModelName;

/// A step of loading, for callers that show the progress.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadEvent<'a> {
    /// Bytes of a model of the hub are on the disk.
    Download {
        /// The model.
        name: &'a ModelName,
        /// The cache folder.
        folder: &'a Path,
        /// Bytes on the disk, of all files of the model.
        done_bytes: u64,
        /// The size of all files of the model.
        total_bytes: u64,
    },
    /// A download stopped, because the connection was lost or silent, and is tried again.
    DownloadRetry {
        /// The file of the repository.
        file: &'a str,
        /// The reason of the failure.
        reason: &'a str,
    },
    /// The hub cannot be reached, so a cached model is used without looking for a newer one.
    HubUnreachable {
        /// The model.
        name: &'a ModelName,
        /// The reason.
        error: &'a rf_hub::Error,
    },
    /// The model is about to take this memory. A caller with several models makes room for it now.
    MemoryNeed(MemoryNeed),
    /// An attempt to load the model with this placement begins.
    Placed(&'a LayerPlacement),
    /// Weights were loaded.
    Progress(Progress),
    /// A request could not be met exactly; loading continues in another way.
    Warning(&'a Warning),
}
