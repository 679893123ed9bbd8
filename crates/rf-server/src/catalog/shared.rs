//! The models and their states, which the requests and the thread share.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

use tokio::sync::oneshot;

use super::adapters::{NamedAdapter, SlotAdapters};
use crate::entry::{ModelKind, ModelLoader};
use crate::error::ApiError;
use crate::generator::Generator;
use crate::keep_alive::KeepAlive;
use crate::longest_token::{LongestToken, TextLimit};
use crate::metrics::Metrics;
use crate::settings::ModelSettings;
use rocmforge::ModelDetails;

/// The state that requests and the thread share.
pub(super) struct CatalogState {
    /// Models are added at the end, and stay in their places when they are removed.
    slots: RwLock<Vec<Arc<ModelSlot>>>,
    /// Memory for all models together; one that needs more is loaded alone.
    pub(super) budget_bytes: Option<u64>,
    pub(super) keep_alive: KeepAlive,
    pub(super) on_load: Option<LoadHook>,
    pub(super) inner: Mutex<Inner>,
    /// A model lost its last user, or there is work for the thread.
    pub(super) changed: Condvar,
}

/// A function that is called with each model that was loaded.
pub(crate) type LoadHook = Arc<dyn Fn(&Generator) + Send + Sync>;

/// A model, loaded or not.
pub(super) struct ModelSlot {
    pub(super) id: String,
    pub(super) settings: RwLock<Arc<ModelSettings>>,
    pub(super) kind: ModelKind,
    pub(super) details: Arc<ModelDetails>,
    /// `None` for a model that is never unloaded.
    pub(super) loader: Option<Arc<dyn ModelLoader>>,
    pub(super) adapters: SlotAdapters,
    pub(super) on_load: Option<LoadHook>,
    /// They outlive the loaded model, so that counters only grow.
    pub(super) metrics: OnceLock<Arc<Metrics>>,
    /// No request finds the model any more.
    pub(super) is_removed: AtomicBool,
}

/// The part of the state behind the lock.
pub(super) struct Inner {
    /// One per slot.
    pub(super) states: Vec<State>,
    /// Slots in state [`State::Loading`], the next one first.
    pub(super) queue: VecDeque<usize>,
    /// Slots in state [`State::Retiring`] that are loaded again at once.
    pub(super) reloads: VecDeque<usize>,
    /// Slots of the queue that are loaded also if no request waits for them.
    pub(super) preloads: Vec<usize>,
    /// The server has ended.
    pub(super) is_closed: bool,
}

/// The state of a model.
pub(super) enum State {
    Unloaded {
        failure: Option<String>,
    },
    /// In the queue, or being loaded.
    Loading {
        waiters: Vec<Waiter>,
    },
    Loaded(Loaded),
    /// Unloaded as soon as its users are gone. Requests that come now wait for the next time.
    Retiring {
        loaded: Loaded,
        waiters: Vec<Waiter>,
    },
}

/// A loaded model.
pub(super) struct Loaded {
    pub(super) service: LoadedService,
    /// The memory plan.
    pub(super) bytes: u64,
    pub(super) users: usize,
    pub(super) last_used: Instant,
    /// When it is unloaded if nobody uses it.
    pub(super) expires: Option<Instant>,
    /// It is unloaded after its last user, whatever time the users ask for.
    pub(super) is_unwanted: bool,
}

/// A loaded model, shared by its users.
#[derive(Clone, Debug)]
pub(crate) enum LoadedService {
    Generate(Arc<Generator>),
    Embed(Embedder),
}

/// A loaded model that makes embeddings or scores.
#[derive(Clone, Debug)]
pub(crate) struct Embedder {
    pub(crate) model: rocmforge::Model,
    longest_token: Arc<LongestToken>,
    loaded: SystemTime,
}

impl Embedder {
    fn new(model: rocmforge::Model) -> Self {
        Self { model, longest_token: Arc::default(), loaded: SystemTime::now() }
    }

    /// The longest text that may fit into the context.
    pub(crate) fn text_limit(&self) -> TextLimit {
        let most_tokens = self.model.context_tokens();
        self.longest_token.text_limit(self.model.file().tokenizer(), most_tokens)
    }
}

/// A request that waits for a model.
pub(super) struct Waiter {
    pub(super) reply: oneshot::Sender<Result<Leased, ApiError>>,
    pub(super) keep_alive: KeepAlive,
}

/// True if a model is loaded.
pub(crate) enum LoadStatus {
    /// It is not, and why the last attempt failed, if it did.
    Unloaded {
        failure: Option<String>,
    },
    Loading,
    Loaded {
        service: LoadedService,
        /// When it will be unloaded if no request comes; `None` for as long as there is room.
        expires: Option<SystemTime>,
        /// The memory plan; 0 if unknown.
        bytes: u64,
    },
}

/// A loaded model with its lease. The model is dropped first, so that a model without leases has no
/// users.
pub(crate) struct Leased {
    pub(crate) id: String,
    pub(crate) service: LoadedService,
    pub(crate) settings: Arc<ModelSettings>,
    pub(crate) lease: Lease,
}

/// The use of a model, which stays loaded as long as this lives.
pub(crate) struct Lease {
    shared: Arc<CatalogState>,
    slot: usize,
    keep_alive: KeepAlive,
}

impl CatalogState {
    pub(super) fn new(
        slots: Vec<Arc<ModelSlot>>,
        budget_bytes: Option<u64>,
        keep_alive: KeepAlive,
        on_load: Option<LoadHook>,
        inner: Inner,
    ) -> Self {
        let (slots, inner) = (RwLock::new(slots), Mutex::new(inner));
        Self { slots, budget_bytes, keep_alive, on_load, inner, changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All models by their places, also removed ones.
    pub(super) fn slots(&self) -> Vec<Arc<ModelSlot>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The model in a place.
    pub(super) fn slot(&self, index: usize) -> Arc<ModelSlot> {
        Arc::clone(&self.slots.read().unwrap_or_else(PoisonError::into_inner)[index])
    }

    /// Adds a model. The lock is held by the caller.
    pub(super) fn push(&self, slot: Arc<ModelSlot>, inner: &mut Inner) {
        inner.states.push(State::Unloaded { failure: None });
        self.slots.write().unwrap_or_else(PoisonError::into_inner).push(slot);
    }
}

impl CatalogState {
    /// The first model that a request means, among those that `is_eligible`. A name comes before
    /// any pattern.
    pub(super) fn named(
        &self,
        name: Option<&str>,
        is_eligible: impl Fn(&ModelSlot) -> bool,
    ) -> Option<usize> {
        let slots = self.slots();
        let position = |means: &dyn Fn(&ModelSlot) -> bool| {
            slots.iter().position(|slot| slot.is_there() && is_eligible(slot) && means(slot))
        };
        position(&|slot| slot.is_named(name)).or_else(|| position(&|slot| slot.is_pattern_of(name)))
    }
}

impl fmt::Debug for CatalogState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots().iter().map(|slot| slot.id())).finish()
    }
}

impl ModelSlot {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns false for a model that was removed.
    pub(super) fn is_there(&self) -> bool {
        !self.is_removed.load(Relaxed)
    }

    pub(super) fn settings(&self) -> Arc<ModelSettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if a request means this model. No name means any, and names of Ollama may end
    /// in `:latest`.
    pub(super) fn is_named(&self, name: Option<&str>) -> bool {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return true };
        let short = name.strip_suffix(":latest").unwrap_or(name);
        let is_own = |own: &String| own == name || own == short;
        is_own(&self.id)
            || self.settings().aliases.iter().any(is_own)
            || self.adapters.is_named(name)
    }

    /// Returns true if one of the names is a pattern, such as `gpt-*`, that a request's name fits.
    fn is_pattern_of(&self, name: Option<&str>) -> bool {
        let Some(name) = name else { return false };
        let settings = self.settings();
        let mut patterns = settings.aliases.iter().filter(|alias| alias.contains('*'));
        patterns.any(|pattern| fits(pattern, name))
    }
}

/// Returns true if `name` fits `pattern`, in which a `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

impl Inner {
    pub(super) fn new(states: Vec<State>) -> Self {
        Self {
            states,
            queue: VecDeque::new(),
            reloads: VecDeque::new(),
            preloads: Vec::new(),
            is_closed: false,
        }
    }
}

impl Waiter {
    pub(super) fn new(
        keep_alive: KeepAlive,
    ) -> (Self, oneshot::Receiver<Result<Leased, ApiError>>) {
        let (reply, receiver) = oneshot::channel();
        (Self { reply, keep_alive }, receiver)
    }
}

impl State {
    /// The loaded model, even if it is about to be unloaded.
    pub(super) fn loaded_mut(&mut self) -> Option<&mut Loaded> {
        match self {
            Self::Loaded(loaded) | Self::Retiring { loaded, .. } => Some(loaded),
            Self::Unloaded { .. } | Self::Loading { .. } => None,
        }
    }

    pub(super) fn status(&self) -> LoadStatus {
        match self {
            Self::Unloaded { failure } => LoadStatus::Unloaded { failure: failure.clone() },
            Self::Loading { .. } => LoadStatus::Loading,
            Self::Loaded(loaded) | Self::Retiring { loaded, .. } => LoadStatus::Loaded {
                service: loaded.service.clone(),
                expires: loaded
                    .expires
                    .map(|at| SystemTime::now() + at.saturating_duration_since(Instant::now())),
                bytes: loaded.bytes,
            },
        }
    }
}

impl Loaded {
    pub(super) fn new(service: LoadedService, bytes: u64) -> Self {
        Self {
            service,
            bytes,
            users: 0,
            last_used: Instant::now(),
            expires: None,
            is_unwanted: false,
        }
    }
}

impl ModelSlot {
    /// Prepares a loaded model for its users.
    pub(super) fn service(
        &self,
        model: rocmforge::Model,
        adapters: Vec<NamedAdapter>,
    ) -> LoadedService {
        let Some(handle) = model.handle().cloned() else {
            return LoadedService::Embed(Embedder::new(model));
        };
        let context_tokens = handle.max_sequence_tokens();
        let metrics = self.metrics.get_or_init(|| Arc::new(Metrics::new(context_tokens)));
        let metrics = Arc::clone(metrics);
        let generator = Generator::new(self.id(), model, handle, metrics, adapters);
        if let Some(on_load) = &self.on_load {
            on_load(&generator);
        }
        LoadedService::Generate(Arc::new(generator))
    }
}

impl LoadedService {
    /// The longest request, in tokens.
    pub(crate) fn context_tokens(&self) -> usize {
        match self {
            Self::Generate(generator) => generator.handle().max_sequence_tokens(),
            Self::Embed(embedder) => embedder.model.context_tokens(),
        }
    }

    /// Returns true if requests may have pictures.
    pub(crate) fn reads_images(&self) -> bool {
        match self {
            Self::Generate(generator) => generator.loaded_model().reads_images(),
            Self::Embed(_) => false,
        }
    }

    /// Returns true if requests may have sounds.
    pub(crate) fn hears(&self) -> bool {
        match self {
            Self::Generate(generator) => generator.loaded_model().hears(),
            Self::Embed(_) => false,
        }
    }

    pub(crate) fn loaded(&self) -> SystemTime {
        match self {
            Self::Generate(generator) => generator.loaded(),
            Self::Embed(embedder) => embedder.loaded,
        }
    }
}

impl Leased {
    /// Counts a user. The lock is held by the caller.
    pub(super) fn new(
        shared: &Arc<CatalogState>,
        slot: usize,
        loaded: &mut Loaded,
        keep_alive: KeepAlive,
    ) -> Self {
        loaded.users += 1;
        loaded.is_unwanted = false;
        let known = shared.slot(slot);
        Self {
            id: known.id().to_owned(),
            service: loaded.service.clone(),
            settings: known.settings(),
            lease: Lease { shared: Arc::clone(shared), slot, keep_alive },
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let now = Instant::now();
        let slot = self.shared.slot(self.slot);
        let is_permanent = slot.loader.is_none();
        let mut inner = self.shared.lock();
        let Some(loaded) = inner.states[self.slot].loaded_mut() else { return };
        loaded.users -= 1;
        loaded.last_used = now;
        if !is_permanent {
            // A duration beyond the clock is for ever.
            let expires = self.keep_alive.duration().and_then(|time| now.checked_add(time));
            let is_wanted = slot.is_there() && !loaded.is_unwanted;
            loaded.expires = if is_wanted { expires } else { Some(now) };
            self.shared.changed.notify_all();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("slot", &self.slot).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_of_a_pattern_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "any", true),
            ("gpt-*", "gpt-4o-mini", true),
            ("gpt-*", "gpt", false),
            ("claude-*-4*", "claude-sonnet-4-5", true),
            ("claude-*-4*", "claude-4", false),
            ("*-small", "text-embedding-3-small", true),
            ("*-small", "small", false),
            ("a*a", "a", false),
            ("plain", "plain", true),
            ("plain", "plainer", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
