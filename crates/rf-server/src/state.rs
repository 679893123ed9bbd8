//! What all requests share: the models, the options, and whether the server is draining.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rf_engine::Model;
use rf_engine::scheduler::Handle;
use rf_grammar::GrammarCompiler;

use crate::embedder::Embedder;
use crate::error::{ApiError, Error, Kind};
use crate::metrics::Metrics;
use crate::options::ServerOptions;

/// The state of the server.
#[derive(Debug)]
pub(crate) struct App {
    options: ServerOptions,
    models: Vec<Arc<ServedModel>>,
    embedders: Vec<ServedEmbedder>,
    draining: AtomicBool,
}

/// The service of a model.
#[derive(Debug)]
pub enum Service {
    /// It generates text.
    Generate(Handle),
    /// It makes embeddings.
    Embed(Embedder),
}

/// A model that makes embeddings.
#[derive(Debug)]
pub(crate) struct ServedEmbedder {
    id: String,
    embedder: Embedder,
}

impl ServedEmbedder {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn embedder(&self) -> &Embedder {
        &self.embedder
    }
}

/// A model that generates text.
#[derive(Debug)]
pub(crate) struct ServedModel {
    id: String,
    handle: Handle,
    metrics: Arc<Metrics>,
    /// Made for the first request that needs it, because it takes time and memory.
    compiler: Mutex<Option<Arc<GrammarCompiler>>>,
    loaded: SystemTime,
    started: Instant,
}

/// The load of a model.
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
    /// A server of these models. The first one of its kind is for requests that name none.
    pub(crate) fn new(
        models: impl IntoIterator<Item = (String, Service)>,
        options: ServerOptions,
    ) -> Result<Self, Error> {
        let mut app = Self {
            options,
            models: Vec::new(),
            embedders: Vec::new(),
            draining: AtomicBool::new(false),
        };
        for (id, service) in models {
            if app.ids().contains(&id.as_str()) {
                return Err(Error::DuplicateModel(id));
            }
            match service {
                Service::Generate(handle) => {
                    app.models.push(Arc::new(ServedModel::new(id, handle)));
                }
                Service::Embed(embedder) => app.embedders.push(ServedEmbedder { id, embedder }),
            }
        }
        Ok(app)
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    pub(crate) fn models(&self) -> &[Arc<ServedModel>] {
        &self.models
    }

    /// The model that a request names, to generate text.
    pub(crate) fn model(&self, name: Option<&str>) -> Result<&Arc<ServedModel>, ApiError> {
        let found = self.models.iter().find(|model| is_named(model.id(), name));
        found.ok_or_else(|| self.missing(name, "it makes embeddings: it generates no text"))
    }

    /// The model that a request names, to make embeddings.
    pub(crate) fn embedder(&self, name: Option<&str>) -> Result<&ServedEmbedder, ApiError> {
        let found = self.embedders.iter().find(|embedder| is_named(embedder.id(), name));
        found.ok_or_else(|| self.missing(name, "it generates text: it makes no embeddings"))
    }

    pub(crate) fn embedders(&self) -> &[ServedEmbedder] {
        &self.embedders
    }

    fn ids(&self) -> Vec<&str> {
        let models = self.models.iter().map(|model| model.id());
        models.chain(self.embedders.iter().map(ServedEmbedder::id)).collect()
    }

    /// Why no model of a kind has this name; `other` is what those of the other kind do.
    fn missing(&self, name: Option<&str>, other: &str) -> ApiError {
        let ids = self.ids();
        match ids.iter().find(|id| is_named(id, name)) {
            Some(id) => ApiError::new(Kind::NotSupported, format!("the model `{id}`: {other}")),
            None => ApiError::unknown_model(name.unwrap_or_default(), &ids),
        }
    }

    /// From now on, new requests are refused.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
}

/// Whether a request means a model by this name. No name means any, and names of Ollama may end in
/// `:latest`.
fn is_named(id: &str, name: Option<&str>) -> bool {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return true };
    id == name || Some(id) == name.strip_suffix(":latest")
}

impl ServedModel {
    fn new(id: String, handle: Handle) -> Self {
        Self {
            id,
            metrics: Arc::new(Metrics::new(handle.max_sequence_tokens())),
            handle,
            compiler: Mutex::new(None),
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

    /// The compiler of grammars for the model's vocabulary.
    pub(crate) fn compiler(&self) -> Result<Arc<GrammarCompiler>, ApiError> {
        let mut compiler = self.compiler.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiler) = &*compiler {
            return Ok(Arc::clone(compiler));
        }
        let new = GrammarCompiler::new(self.model().tokenizer());
        let new = new.map_err(|error| ApiError::new(Kind::NotSupported, error.to_string()))?;
        Ok(Arc::clone(compiler.insert(Arc::new(new))))
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// When the model was loaded.
    pub(crate) fn loaded(&self) -> SystemTime {
        self.loaded
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

/// A time in seconds since 1970.
pub(crate) fn seconds_since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
