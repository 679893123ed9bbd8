//! The models of the server: which ones are loaded, and which ones make room for others.
//!
//! One thread loads and unloads, one model at a time, in the order in which requests needed them.
//! Requests for a model that is not loaded wait for it; those for other models go on. A model is
//! unloaded for two reasons: another one needs its memory, or nobody has used it for as long as its
//! requests said. Both wait until its running requests have ended.

mod adapters;
mod loader;
mod shared;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::entry::{ModelEntry, ModelKind, Origin};
use crate::error::{ApiError, ApiErrorKind, Error};
use crate::generator::Generator;
use crate::keep_alive::KeepAlive;
use crate::metrics::Metrics;
use crate::settings::ModelSettings;
use rocmforge::{Model, ModelDetails};

use self::adapters::SlotAdapters;
pub(crate) use self::adapters::{MAX_ADAPTERS, NamedAdapter};
use self::shared::{CatalogState, Inner, Loaded, ModelSlot, State, Waiter};
pub(crate) use self::shared::{Embedder, Lease, Leased, LoadHook, LoadStatus, LoadedService};

/// The models of the server.
#[derive(Debug)]
pub(crate) struct Catalog {
    shared: Arc<CatalogState>,
}

/// A model as APIs list it.
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) settings: Arc<ModelSettings>,
    pub(crate) kind: ModelKind,
    pub(crate) details: Arc<ModelDetails>,
    pub(crate) status: LoadStatus,
    /// The adapters that clients have loaded.
    pub(crate) adapters: Vec<NamedAdapter>,
    /// Set for a model that was loaded before.
    pub(crate) metrics: Option<Arc<Metrics>>,
}

/// The names of a model, that by which it is served first.
fn names(id: &str, settings: &ModelSettings) -> Vec<String> {
    std::iter::once(id).chain(settings.aliases.iter().map(String::as_str)).map(Into::into).collect()
}

impl Listed {
    /// The names of the model, that by which it is served first.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.id, &self.settings)
    }

    /// The loaded model, if it is loaded and generates text.
    pub(crate) fn generator(&self) -> Option<Arc<Generator>> {
        match &self.status {
            LoadStatus::Loaded { service: LoadedService::Generate(generator), .. } => {
                Some(Arc::clone(generator))
            }
            _ => None,
        }
    }
}

impl Catalog {
    /// The models, of which no two have the same name. With `grows`, models may be added.
    pub(crate) fn new(
        entries: impl IntoIterator<Item = ModelEntry>,
        budget_bytes: Option<u64>,
        keep_alive: KeepAlive,
        grows: bool,
        on_load: Option<LoadHook>,
    ) -> Result<Self, Error> {
        let (mut slots, mut states) = (Vec::<Arc<ModelSlot>>::new(), Vec::new());
        let mut preloads = Vec::new();
        for entry in entries {
            if entry.is_preloaded && matches!(entry.origin, Origin::Loader(_)) {
                preloads.push(slots.len());
            }
            let (slot, model) = slot_of(entry, on_load.clone());
            states.push(match model {
                None => State::Unloaded { failure: None },
                Some(model) => State::Loaded(Loaded::new(slot.service(model, Vec::new()), 0)),
            });
            slots.push(Arc::new(slot));
        }
        check_names(slots.iter().map(|slot| (slot.id.as_str(), slot.settings())))?;
        for &index in &preloads {
            states[index] = State::Loading { waiters: Vec::new() };
        }
        let is_static = !grows && slots.iter().all(|slot| slot.loader.is_none());
        let mut inner = Inner::new(states);
        inner.queue.extend(&preloads);
        inner.preloads = preloads;
        let shared = Arc::new(CatalogState::new(slots, budget_bytes, keep_alive, on_load, inner));
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
            ApiError::new(ApiErrorKind::Unavailable, "the server is shutting down")
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
        let message = format!("the model `{}` is not loaded", self.shared.slot(index).id());
        Err(ApiError::new(ApiErrorKind::Unavailable, message))
    }

    /// The names of a model of this kind, that by which it is served first.
    pub(crate) fn names(
        &self,
        name: Option<&str>,
        kind: ModelKind,
    ) -> Result<Vec<String>, ApiError> {
        let slot = self.shared.slot(self.find(name, kind)?);
        let mut names = names(slot.id(), &slot.settings());
        names.splice(0..0, name.filter(|name| slot.adapters.is_named(name)).map(str::to_owned));
        Ok(names)
    }

    /// The adapter that a name means.
    pub(crate) fn adapter<'a>(&self, name: Option<&'a str>) -> Option<&'a str> {
        name.filter(|name| self.is_adapter(name))
    }

    /// Returns true if a client has loaded an adapter of this name.
    pub(crate) fn is_adapter(&self, name: &str) -> bool {
        let slots = self.shared.slots();
        slots.iter().any(|slot| slot.is_there() && slot.adapters.is_named(name))
    }

    /// Changes the adapters of a model that clients have loaded, and loads it with them: the
    /// running requests end first, and those that come wait. `change` learns whether a model has
    /// the name of the adapter.
    pub(crate) async fn change_adapters(
        &self,
        model: Option<&str>,
        adapter: &str,
        change: impl FnOnce(&mut Vec<NamedAdapter>, bool) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let index = self.find(model, ModelKind::Text)?;
        let slot = self.shared.slot(index);
        if slot.loader.is_none() {
            let message = format!("the model `{}` cannot be loaded again", slot.id());
            return Err(ApiError::new(ApiErrorKind::NotSupported, message));
        }
        let is_taken = self.shared.named(Some(adapter), |_| true).is_some();
        let mut wanted = slot.adapters.wanted();
        change(&mut wanted, is_taken)?;
        let (waiter, receiver) = Waiter::new(self.keep_alive(index));
        {
            let mut inner = self.shared.lock();
            let inner = &mut *inner;
            let state = &mut inner.states[index];
            match std::mem::replace(state, State::Unloaded { failure: None }) {
                State::Loaded(loaded) => {
                    *state = State::Retiring { loaded, waiters: vec![waiter] };
                    inner.reloads.push_back(index);
                }
                State::Unloaded { .. } => {
                    *state = State::Loading { waiters: vec![waiter] };
                    inner.queue.push_back(index);
                }
                busy => {
                    *state = busy;
                    let message = format!("the model `{}` is being loaded", slot.id());
                    return Err(ApiError::new(ApiErrorKind::Unavailable, message));
                }
            }
            slot.adapters.change(wanted);
            self.shared.changed.notify_all();
        }
        let answer = receiver.await;
        if let Some(failure) = slot.adapters.take_failure() {
            return Err(ApiError::invalid(format!("the adapter cannot be used: {failure}")));
        }
        let ended = |_| ApiError::new(ApiErrorKind::Unavailable, "the server is shutting down");
        answer.map_err(ended)?.map(drop)
    }

    /// Returns true if a model can answer: one is loaded, or can be.
    pub(crate) fn is_ready(&self) -> bool {
        let inner = self.shared.lock();
        !inner.is_closed
            && inner
                .states
                .iter()
                .zip(self.shared.slots())
                .filter(|(_, slot)| slot.is_there())
                .any(|(state, _)| !matches!(state, State::Unloaded { failure: Some(_) }))
    }

    /// Unloads a model of this kind as soon as its running requests have ended. Returns its name.
    pub(crate) fn unload(&self, name: Option<&str>, kind: ModelKind) -> Result<String, ApiError> {
        let index = self.find(name, kind)?;
        let slot = self.shared.slot(index);
        if slot.loader.is_some() {
            let mut inner = self.shared.lock();
            if let State::Loaded(loaded) = &mut inner.states[index] {
                loaded.expires = Some(Instant::now());
                // Those who use it now would set another time when they are done.
                loaded.is_unwanted = true;
                self.shared.changed.notify_all();
            }
        }
        Ok(slot.id().to_owned())
    }

    /// Returns true if a model is loaded.
    pub(crate) fn is_loaded(&self, name: Option<&str>, kind: ModelKind) -> Result<bool, ApiError> {
        let index = self.find(name, kind)?;
        Ok(matches!(self.shared.lock().states[index], State::Loaded(_)))
    }

    fn keep_alive(&self, index: usize) -> KeepAlive {
        self.shared.slot(index).settings().keep_alive.unwrap_or(self.shared.keep_alive)
    }

    /// Sets the settings of models by their names; all of them or none.
    pub(crate) fn renew(&self, settings: Vec<(String, ModelSettings)>) -> Result<(), Error> {
        let mut slots = self.shared.slots();
        slots.retain(|slot| slot.is_there());
        let new: HashMap<String, Arc<ModelSettings>> =
            settings.into_iter().map(|(id, settings)| (id, Arc::new(settings))).collect();
        let of = |slot: &ModelSlot| new.get(&slot.id).map_or_else(|| slot.settings(), Arc::clone);
        check_names(slots.iter().map(|slot| (slot.id.as_str(), of(slot))))?;
        for slot in &slots {
            let settings = of(slot);
            *slot.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        }
        Ok(())
    }

    /// Lists the models in order.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let statuses: Vec<_> = self.shared.lock().states.iter().map(State::status).collect();
        let slots = self.shared.slots().into_iter().zip(statuses);
        let listed = slots.filter(|(slot, _)| slot.is_there()).map(|(slot, status)| Listed {
            id: slot.id().to_owned(),
            settings: slot.settings(),
            kind: slot.kind,
            details: Arc::clone(&slot.details),
            status,
            adapters: slot.adapters.current(),
            metrics: slot.metrics.get().map(Arc::clone),
        });
        listed.collect()
    }

    /// The facts about a model of any kind.
    pub(crate) fn details(
        &self,
        name: Option<&str>,
    ) -> Result<(String, Arc<ModelDetails>), ApiError> {
        let slot = self.slot(name)?;
        Ok((slot.id().to_owned(), Arc::clone(&slot.details)))
    }

    /// The kind of a model.
    pub(crate) fn kind(&self, name: Option<&str>) -> Result<ModelKind, ApiError> {
        Ok(self.slot(name)?.kind)
    }

    /// Adds a model that is loaded on demand. The name must be new.
    pub(crate) fn add(&self, entry: ModelEntry) -> Result<(), Error> {
        let (slot, model) = slot_of(entry, self.shared.on_load.clone());
        let mut inner = self.shared.lock();
        let slots = self.shared.slots();
        let known = slots.iter().filter(|slot| slot.is_there());
        let new = std::iter::once((slot.id(), slot.settings()));
        check_names(known.map(|slot| (slot.id(), slot.settings())).chain(new))?;
        let service = model.map(|model| slot.service(model, Vec::new()));
        self.shared.push(Arc::new(slot), &mut inner);
        if let (Some(service), Some(state)) = (service, inner.states.last_mut()) {
            *state = State::Loaded(Loaded::new(service, 0));
        }
        Ok(())
    }

    /// Removes a model. Its running requests come to their end, and it is unloaded then.
    pub(crate) fn remove(&self, name: &str) -> Result<(), ApiError> {
        let slot = self.slot(Some(name))?;
        slot.is_removed.store(true, Relaxed);
        let index = self.shared.slots().iter().position(|other| Arc::ptr_eq(other, &slot));
        let mut inner = self.shared.lock();
        if let Some(State::Loaded(loaded)) = index.and_then(|index| inner.states.get_mut(index)) {
            loaded.expires = Some(Instant::now());
            self.shared.changed.notify_all();
        }
        Ok(())
    }

    fn slot(&self, name: Option<&str>) -> Result<Arc<ModelSlot>, ApiError> {
        let index = self.shared.named(name, |_| true).ok_or_else(|| self.unknown(name))?;
        Ok(self.shared.slot(index))
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
        let slots = self.shared.slots();
        let ids: Vec<_> =
            slots.iter().filter(|slot| slot.is_there()).map(|slot| slot.id()).collect();
        ApiError::unknown_model(name.unwrap_or_default(), &ids)
    }
}

/// The place of a model, and the model if it is loaded already.
fn slot_of(entry: ModelEntry, on_load: Option<LoadHook>) -> (ModelSlot, Option<Model>) {
    let ModelEntry { id, kind, details, origin, settings, is_preloaded: _ } = entry;
    let (loader, model) = match origin {
        Origin::Loader(loader) => (Some(loader), None),
        Origin::Loaded(model) => (None, Some(model)),
    };
    let (settings, details) = (RwLock::new(Arc::new(settings)), Arc::new(details));
    let (metrics, is_removed) = (OnceLock::new(), AtomicBool::new(false));
    let adapters = SlotAdapters::default();
    let slot =
        ModelSlot { id, settings, kind, details, loader, adapters, on_load, metrics, is_removed };
    (slot, model)
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
