//! The adapters (LoRA) of a model that clients have loaded. Adapters are part of the compiled
//! program, so each change loads the model again.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most adapters of a model that clients may load: each takes two matmuls of every batch.
pub(crate) const MAX_ADAPTERS: usize = 16;

/// An adapter that a client has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedAdapter {
    /// The name by which requests use the model with the adapter.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// The adapters of a model, and a change of them.
#[derive(Debug, Default)]
pub(super) struct SlotAdapters(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The adapters of the loaded model.
    current: Vec<NamedAdapter>,
    /// The adapters that the next load tries.
    changed: Option<Vec<NamedAdapter>>,
    /// The reason for which the last change failed.
    failure: Option<String>,
}

impl SlotAdapters {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The adapters that requests may name.
    pub(super) fn current(&self) -> Vec<NamedAdapter> {
        self.lock().current.clone()
    }

    /// The adapters that the next load tries.
    pub(super) fn wanted(&self) -> Vec<NamedAdapter> {
        let inner = self.lock();
        inner.changed.as_ref().unwrap_or(&inner.current).clone()
    }

    /// Sets the adapters that the next load tries.
    pub(super) fn change(&self, wanted: Vec<NamedAdapter>) {
        let mut inner = self.lock();
        (inner.changed, inner.failure) = (Some(wanted), None);
    }

    /// The model is loaded with these adapters, or stays unloaded and has them when it is.
    pub(super) fn settle(&self, adapters: Vec<NamedAdapter>) {
        let mut inner = self.lock();
        (inner.current, inner.changed) = (adapters, None);
    }

    /// The model cannot be loaded with the change. Returns false if there is none.
    pub(super) fn refuse(&self, failure: &str) -> bool {
        let mut inner = self.lock();
        let is_changed = inner.changed.take().is_some();
        if is_changed {
            inner.failure = Some(failure.to_owned());
        }
        is_changed
    }

    /// Takes the reason for which the last change failed.
    pub(super) fn take_failure(&self) -> Option<String> {
        self.lock().failure.take()
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.lock().current.iter().any(|adapter| adapter.name == name)
    }
}
