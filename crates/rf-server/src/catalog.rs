//! The models of the server: which ones are loaded, and which ones make room for others.
//!
//! One thread loads and unloads, one model at a time, in the order in which requests needed them.
//! Requests for a model that is not loaded wait for it; those for other models go on. A model is
//! unloaded for two reasons: another one needs its memory, or nobody has used it for as long as its
//! requests said. Both wait until its running requests have ended.

mod loader;
mod shared;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::entry::{ModelEntry, ModelKind, Origin};
use crate::error::{ApiError, Error, Kind};
use crate::generator::Generator;
use crate::keep_alive::KeepAlive;
use crate::metrics::Metrics;
use crate::settings::ModelSettings;
use rocmforge::ModelDetails;

pub(crate) use self::shared::{Embedder, Lease, Leased, LoadedService, Status};
use self::shared::{Inner, Loaded, Shared, Slot, State, Waiter};

/// The models of the server.
#[derive(Debug)]
pub(crate) struct Catalog {
    shared: Arc<Shared>,
}

/// A model as APIs list it.
pub(crate) struct Listed<'a> {
    pub(crate) id: &'a str,
    pub(crate) settings: Arc<ModelSettings>,
    pub(crate) kind: ModelKind,
    pub(crate) details: &'a ModelDetails,
    pub(crate) status: Status,
    /// Set for a model that was loaded before.
    pub(crate) metrics: Option<&'a Arc<Metrics>>,
}

/// The names of a model, that by which it is served first.
fn names(id: &str, settings: &ModelSettings) -> Vec<String> {
    std::iter::once(id).chain(settings.aliases.iter().map(String::as_str)).map(Into::into).collect()
}

impl Listed<'_> {
    /// The names of the model, that by which it is served first.
    pub(crate) fn names(&self) -> Vec<String> {
        names(self.id, &self.settings)
    }

    /// The loaded model, if it is loaded and generates text.
    pub(crate) fn generator(&self) -> Option<Arc<Generator>> {
        match &self.status {
            Status::Loaded { service: LoadedService::Generate(generator), .. } => {
                Some(Arc::clone(generator))
            }
            _ => None,
        }
    }
}

impl Catalog {
    /// The models, of which no two have the same name.
    pub(crate) fn new(
        entries: impl IntoIterator<Item = ModelEntry>,
        budget_bytes: Option<u64>,
        keep_alive: KeepAlive,
    ) -> Result<Self, Error> {
        let (mut slots, mut states) = (Vec::<Slot>::new(), Vec::new());
        let mut preloads = Vec::new();
        for entry in entries {
            let ModelEntry { id, kind, details, origin, settings, is_preloaded } = entry;
            if is_preloaded && matches!(origin, Origin::Loader(_)) {
                preloads.push(slots.len());
            }
            let settings = RwLock::new(Arc::new(settings));
            let metrics = OnceLock::new();
            let mut slot = Slot { id, settings, kind, details, loader: None, metrics };
            states.push(match origin {
                Origin::Loader(loader) => {
                    slot.loader = Some(loader);
                    State::Unloaded { failure: None }
                }
                Origin::Loaded(model) => State::Loaded(Loaded::new(slot.service(model), 0)),
            });
            slots.push(slot);
        }
        check_names(slots.iter().map(|slot| (slot.id.as_str(), slot.settings())))?;
        for &index in &preloads {
            states[index] = State::Loading { waiters: Vec::new() };
        }
        let is_static = slots.iter().all(|slot| slot.loader.is_none());
        let mut inner = Inner::new(states);
        inner.queue.extend(&preloads);
        inner.preloads = preloads;
        let inner = Mutex::new(inner);
        let shared = Shared { slots, budget_bytes, keep_alive, inner, changed: Condvar::new() };
        let shared = Arc::new(shared);
        if !is_static {
            let loader = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("rf-models".into());
            thread.spawn(move || loader.serve())?;
        }
        Ok(Self { shared })
    }

    /// Uses a model of this kind, which is loaded if need be. Without a name it is the first one.
    pub(crate) async fn acquire(
        &self,
        name: Option<&str>,
        kind: ModelKind,
        keep_alive: Option<KeepAlive>,
    ) -> Result<Leased, ApiError> {
        let index = self.find(name, kind)?;
        let keep_alive = keep_alive.unwrap_or_else(|| self.keep_alive(index));
        let receiver = {
            let mut inner = self.shared.lock();
            let inner = &mut *inner;
            let (waiter, receiver) = Waiter::new(keep_alive);
            match &mut inner.states[index] {
                State::Loaded(loaded) => {
                    return Ok(Leased::new(&self.shared, index, loaded, keep_alive));
                }
                State::Loading { waiters } | State::Retiring { waiters, .. } => {
                    waiters.push(waiter);
                }
                state @ State::Unloaded { .. } => {
                    *state = State::Loading { waiters: vec![waiter] };
                    inner.queue.push_back(index);
                    self.shared.changed.notify_all();
                }
            }
            receiver
        };
        let ended = |_: oneshot::error::RecvError| {
            ApiError::new(Kind::Unavailable, "the server is shutting down")
        };
        receiver.await.map_err(ended)?
    }

    /// Uses a model of this kind, unless it is not loaded.
    pub(crate) fn acquire_loaded(
        &self,
        name: Option<&str>,
        kind: ModelKind,
    ) -> Result<Leased, ApiError> {
        let index = self.find(name, kind)?;
        let keep_alive = self.keep_alive(index);
        let mut inner = self.shared.lock();
        if let State::Loaded(loaded) = &mut inner.states[index] {
            return Ok(Leased::new(&self.shared, index, loaded, keep_alive));
        }
        let message = format!("the model `{}` is not loaded", self.shared.slots[index].id());
        Err(ApiError::new(Kind::Unavailable, message))
    }

    /// The names of a model of this kind, that by which it is served first.
    pub(crate) fn names(
        &self,
        name: Option<&str>,
        kind: ModelKind,
    ) -> Result<Vec<String>, ApiError> {
        let slot = &self.shared.slots[self.find(name, kind)?];
        Ok(names(slot.id(), &slot.settings()))
    }

    /// Returns true if a model can answer: one is loaded, or can be.
    pub(crate) fn is_ready(&self) -> bool {
        let inner = self.shared.lock();
        !inner.is_closed
            && inner
                .states
                .iter()
                .any(|state| !matches!(state, State::Unloaded { failure: Some(_) }))
    }

    /// Unloads a model of this kind as soon as its running requests have ended. Returns its name.
    pub(crate) fn unload(&self, name: Option<&str>, kind: ModelKind) -> Result<&str, ApiError> {
        let index = self.find(name, kind)?;
        let slot = &self.shared.slots[index];
        if slot.loader.is_some() {
            let mut inner = self.shared.lock();
            if let State::Loaded(loaded) = &mut inner.states[index] {
                loaded.expires = Some(Instant::now());
                self.shared.changed.notify_all();
            }
        }
        Ok(slot.id())
    }

    fn keep_alive(&self, index: usize) -> KeepAlive {
        self.shared.slots[index].settings().keep_alive.unwrap_or(self.shared.keep_alive)
    }

    /// Sets the settings of models by their names; all of them or none.
    pub(crate) fn renew(&self, settings: Vec<(String, ModelSettings)>) -> Result<(), Error> {
        let slots = &self.shared.slots;
        let new: HashMap<String, Arc<ModelSettings>> =
            settings.into_iter().map(|(id, settings)| (id, Arc::new(settings))).collect();
        let of = |slot: &Slot| new.get(&slot.id).map_or_else(|| slot.settings(), Arc::clone);
        check_names(slots.iter().map(|slot| (slot.id.as_str(), of(slot))))?;
        for slot in slots {
            let settings = of(slot);
            *slot.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        }
        Ok(())
    }

    /// Lists the models in order.
    pub(crate) fn list(&self) -> Vec<Listed<'_>> {
        let statuses: Vec<_> = self.shared.lock().states.iter().map(State::status).collect();
        let slots = self.shared.slots.iter().zip(statuses);
        let listed = slots.map(|(slot, status)| Listed {
            id: slot.id(),
            settings: slot.settings(),
            kind: slot.kind,
            details: &slot.details,
            status,
            metrics: slot.metrics.get(),
        });
        listed.collect()
    }

    /// The facts about a model of any kind.
    pub(crate) fn details(&self, name: Option<&str>) -> Result<(&str, &ModelDetails), ApiError> {
        let slot = self.slot(name)?;
        Ok((slot.id(), &slot.details))
    }

    /// The kind of a model.
    pub(crate) fn kind(&self, name: Option<&str>) -> Result<ModelKind, ApiError> {
        Ok(self.slot(name)?.kind)
    }

    fn slot(&self, name: Option<&str>) -> Result<&Slot, ApiError> {
        let index = self.shared.named(name, |_| true).ok_or_else(|| self.unknown(name))?;
        Ok(&self.shared.slots[index])
    }

    fn find(&self, name: Option<&str>, kind: ModelKind) -> Result<usize, ApiError> {
        if let Some(index) = self.shared.named(name, |slot| slot.kind == kind) {
            return Ok(index);
        }
        let other = self.slot(name)?;
        let does = match other.kind {
            ModelKind::Text => "generates text: send it to /v1/chat/completions",
            ModelKind::Embeddings => "makes embeddings: send texts to /v1/embeddings",
            ModelKind::Scores => "scores documents: send them to /v1/rerank",
        };
        Err(ApiError::field("model", format!("`{}` {does}", other.id())))
    }

    fn unknown(&self, name: Option<&str>) -> ApiError {
        let ids: Vec<_> = self.shared.slots.iter().map(Slot::id).collect();
        ApiError::unknown_model(name.unwrap_or_default(), &ids)
    }
}

/// Checks that no two models have the same name.
fn check_names<'a>(
    models: impl Iterator<Item = (&'a str, Arc<ModelSettings>)>,
) -> Result<(), Error> {
    let mut owners = HashMap::new();
    for (index, (id, settings)) in models.enumerate() {
        for name in [id].into_iter().chain(settings.aliases.iter().map(String::as_str)) {
            // A model may have a name twice.
            if *owners.entry(name.to_owned()).or_insert(index) != index {
                return Err(Error::DuplicateModel(name.to_owned()));
            }
        }
    }
    Ok(())
}

/// Ends the thread. A model that it loads right now is dropped by it.
impl Drop for Catalog {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
    }
}
