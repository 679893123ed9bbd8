//! Events of models: changes of their states, and downloads.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::broadcast;

/// The most events that wait for a client. Others are left out.
pub(crate) const MAX_WAITING: usize = 64;

/// An event of a model, as clients of llama.cpp read it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ModelEvent {
    /// The name of the model; `*` for all models.
    pub(crate) model: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<ModelEventData>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum ModelEventData {
    Status {
        status: &'static str,
    },
    Failure {
        error: String,
    },
    /// The bytes of each download.
    Progress(HashMap<String, DownloadProgress>),
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct DownloadProgress {
    done: u64,
    total: u64,
}

impl ModelEvent {
    fn new(model: &str, event: &'static str, data: Option<ModelEventData>) -> Self {
        Self { model: model.to_owned(), event, data }
    }

    /// The settings of all models were read again.
    pub(crate) fn reload() -> Self {
        Self::new("*", "models_reload", None)
    }

    pub(crate) fn progress(model: &str, done: u64, total: u64) -> Self {
        let progress = HashMap::from([(model.to_owned(), DownloadProgress { done, total })]);
        Self::new(model, "download_progress", Some(ModelEventData::Progress(progress)))
    }

    pub(crate) fn finished(model: &str) -> Self {
        Self::new(model, "download_finished", None)
    }

    pub(crate) fn failed(model: &str, error: String) -> Self {
        Self::new(model, "download_failed", Some(ModelEventData::Failure { error }))
    }

    pub(crate) fn removed(model: &str) -> Self {
        Self::new(model, "model_remove", None)
    }

    pub(crate) fn status(model: &str, status: &'static str) -> Self {
        Self::new(model, "model_status", Some(ModelEventData::Status { status }))
    }
}

/// The downloads that run, and those who hear of their events.
#[derive(Debug)]
pub(crate) struct ModelEvents {
    events: broadcast::Sender<ModelEvent>,
    downloads: Mutex<HashSet<String>>,
}

impl Default for ModelEvents {
    fn default() -> Self {
        Self { events: broadcast::Sender::new(MAX_WAITING), downloads: Mutex::default() }
    }
}

impl ModelEvents {
    /// The events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<ModelEvent> {
        self.events.subscribe()
    }

    /// Tells all who listen.
    pub(crate) fn send(&self, event: ModelEvent) {
        // Without a subscriber, sending fails.
        drop(self.events.send(event));
    }

    /// Notes that a download begins. Returns false if it runs already.
    pub(crate) fn begin_download(&self, model: &str) -> bool {
        self.downloads().insert(model.to_owned())
    }

    pub(crate) fn end_download(&self, model: &str) {
        self.downloads().remove(model);
    }

    fn downloads(&self) -> MutexGuard<'_, HashSet<String>> {
        self.downloads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
