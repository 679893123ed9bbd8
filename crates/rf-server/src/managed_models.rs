//! The management of models while the server runs: what the caller implements.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::entry::ModelEntry;
use crate::error::LoadError;

/// Downloads, copies, changes and removes models for clients of Ollama's API. The server knows
/// neither files nor networks; it keeps the list of names and says who may ask. Calls may block.
pub trait ModelManager: Send + Sync {
    /// Downloads a model, unless it is there. `progress` gets the bytes that are there and the
    /// bytes of all. The name of the entry is the one to list.
    ///
    /// # Errors
    ///
    /// If there is no such model, or it cannot be downloaded or served.
    fn pull(
        &self,
        name: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ModelEntry, ManageError>;

    /// Makes a model of a listed one, `from`, with another name and changes.
    ///
    /// # Errors
    ///
    /// If a change is not possible.
    fn make(&self, from: &str, name: &str, change: &ModelChange)
    -> Result<ModelEntry, ManageError>;

    /// Removes a listed model: its name, and its file if no other model needs it.
    ///
    /// # Errors
    ///
    /// If the model was not made by this manager, or its file cannot be removed.
    fn remove(&self, name: &str) -> Result<(), ManageError>;
}

/// The changes of a model that is made of another one; what is `None` or missing stays.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelChange {
    /// The system prompt of conversations without one.
    pub system: Option<String>,
    /// The chat template: Jinja, or the name of a built-in one.
    pub template: Option<String>,
    /// Parameters of sampling and `num_ctx`, with Ollama's names.
    pub parameters: Map<String, Value>,
}

/// Why models were not changed. The text goes to the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManageError {
    /// There is no such model.
    #[error("{0}")]
    Unknown(LoadError),
    /// The request asks for what cannot be.
    #[error("{0}")]
    Refused(LoadError),
    /// The attempt failed.
    #[error("{0}")]
    Failed(LoadError),
}

/// A shared manager of models.
#[derive(Clone)]
pub struct Manager(Arc<dyn ModelManager>);

impl Manager {
    /// A manager for [`ServerOptions`](crate::ServerOptions).
    pub fn new(manager: impl ModelManager + 'static) -> Self {
        Self(Arc::new(manager))
    }

    pub(crate) fn get(&self) -> Arc<dyn ModelManager> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").finish_non_exhaustive()
    }
}
