//! What all requests share: the models, the options, and whether the server is draining.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rf_engine::Model;
use rf_engine::scheduler::Handle;

use crate::error::{ApiError, Error};
use crate::metrics::Metrics;
use crate::options::ServerOptions;

/// The state of the server.
#[derive(Debug)]
pub(crate) struct App {
    options: ServerOptions,
    models: Vec<Arc<ServedModel>>,
    draining: AtomicBool,
}

/// A model that answers requests.
#[derive(Debug)]
pub(crate) struct ServedModel {
    id: String,
    handle: Handle,
    metrics: Arc<Metrics>,
    loaded: SystemTime,
    started: Instant,
}

/// How busy a model is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// Tokens of the pages that sequences hold.
    pub(crate) used_tokens: usize,
    pub(crate) total_tokens: usize,
    /// `used_tokens` of `total_tokens`, from 0 to 1.
    pub(crate) kv_usage: f64,
    /// Since the start.
    pub(crate) generated_tokens_per_second: f64,
}

impl App {
    /// A server of these models, the first one for requests that name none.
    pub(crate) fn new(
        models: impl IntoIterator<Item = (String, Handle)>,
        options: ServerOptions,
    ) -> Result<Self, Error> {
        let mut served: Vec<Arc<ServedModel>> = Vec::new();
        for (id, handle) in models {
            if served.iter().any(|model| model.id == id) {
                return Err(Error::DuplicateModel(id));
            }
            served.push(Arc::new(ServedModel::new(id, handle)));
        }
        Ok(Self { options, models: served, draining: AtomicBool::new(false) })
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    pub(crate) fn models(&self) -> &[Arc<ServedModel>] {
        &self.models
    }

    /// The model that a request names. Names of Ollama may end in `:latest`.
    pub(crate) fn model(&self, name: Option<&str>) -> Result<&Arc<ServedModel>, ApiError> {
        let ids = || self.models.iter().map(|model| model.id()).collect::<Vec<_>>();
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return self.models.first().ok_or_else(|| ApiError::unknown_model("", &ids()));
        };
        let short = name.strip_suffix(":latest").unwrap_or(name);
        let named = |model: &&Arc<ServedModel>| model.id == name || model.id == short;
        self.models.iter().find(named).ok_or_else(|| ApiError::unknown_model(name, &ids()))
    }

    /// From now on, new requests are refused.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
}

impl ServedModel {
    fn new(id: String, handle: Handle) -> Self {
        Self {
            id,
            metrics: Arc::new(Metrics::new(handle.max_sequence_tokens())),
            handle,
            loaded: SystemTime::now(),
            started: Instant::now(),
        }
    }

    /// The name in every API.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn model(&self) -> &Arc<Model> {
        self.handle.model()
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// When the model was loaded.
    pub(crate) fn loaded(&self) -> SystemTime {
        self.loaded
    }

    /// The same in seconds since 1970.
    pub(crate) fn loaded_seconds(&self) -> u64 {
        seconds_since_1970(self.loaded)
    }

    pub(crate) fn num_pages(&self) -> usize {
        self.handle.stats().kv_pages_total
    }

    pub(crate) fn page_tokens(&self) -> usize {
        self.handle.kv_tokens() / self.num_pages().max(1)
    }

    pub(crate) fn load(&self) -> Load {
        let stats = self.handle.stats();
        let total_pages = stats.kv_pages_total.max(1);
        let uptime = self.started.elapsed().as_secs_f64().max(1.0);
        Load {
            running: stats.running,
            waiting: stats.waiting,
            used_tokens: stats.kv_pages_used * self.page_tokens(),
            total_tokens: self.handle.kv_tokens(),
            kv_usage: stats.kv_pages_used as f64 / total_pages as f64,
            generated_tokens_per_second: stats.generation_tokens as f64 / uptime,
        }
    }
}

/// The time now, in seconds since 1970.
pub(crate) fn now() -> u64 {
    seconds_since_1970(SystemTime::now())
}

fn seconds_since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
