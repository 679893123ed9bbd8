//! What all requests share: the models, the options, and whether the server is draining.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use rocmforge::SamplerConfig;

use crate::catalog::{Catalog, Embedder, Lease, Leased, LoadedService};
use crate::entry::{ModelEntry, ModelKind};
use crate::error::{ApiError, Error};
use crate::generator::Generator;
use crate::keep_alive::KeepAlive;
use crate::openai::responses::store::ResponseStore;
use crate::options::ServerOptions;

/// The state of the server.
#[derive(Debug)]
pub(crate) struct App {
    options: ServerOptions,
    catalog: Catalog,
    responses: ResponseStore,
    draining: AtomicBool,
    /// True if only programs of this machine reach the server.
    is_local: AtomicBool,
}

/// A model that a request uses to generate text. Until it is dropped, the model stays loaded.
#[derive(Debug)]
pub(crate) struct ServedModel {
    // Dropped before the lease.
    generator: Arc<Generator>,
    sampling: SamplerConfig,
    _lease: Lease,
}

impl ServedModel {
    /// Sampling of requests that set no parameters.
    pub(crate) fn sampling(&self) -> &SamplerConfig {
        &self.sampling
    }
}

/// A model that a request uses to make embeddings or scores. Until it is dropped, the model stays
/// loaded.
#[derive(Debug)]
pub(crate) struct ServedEmbedder {
    id: String,
    // Dropped before the lease.
    embedder: Embedder,
    _lease: Lease,
}

impl ServedEmbedder {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn model(&self) -> &rocmforge::Model {
        &self.embedder.model
    }

    /// The most bytes that a text within the context can have.
    pub(crate) fn longest_text_bytes(&self) -> usize {
        self.embedder.longest_text_bytes()
    }
}

impl Deref for ServedModel {
    type Target = Generator;

    fn deref(&self) -> &Generator {
        &self.generator
    }
}

impl App {
    /// A server of these models. The first one of its kind is for requests that name none.
    pub(crate) fn new(
        models: impl IntoIterator<Item = ModelEntry>,
        options: ServerOptions,
    ) -> Result<Self, Error> {
        let catalog = Catalog::new(models, options.memory_budget_bytes, options.keep_alive)?;
        Ok(Self {
            options,
            catalog,
            responses: ResponseStore::default(),
            draining: AtomicBool::new(false),
            is_local: AtomicBool::new(false),
        })
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// The latest answers of `/v1/responses`.
    pub(crate) fn responses(&self) -> &ResponseStore {
        &self.responses
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The model that a request names, to generate text. It is loaded if need be.
    pub(crate) async fn model(&self, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
        self.model_for(name, None).await
    }

    /// Finds a model for a request that tells how long the model stays loaded after it.
    pub(crate) async fn model_for(
        &self,
        name: Option<&str>,
        keep_alive: Option<KeepAlive>,
    ) -> Result<Arc<ServedModel>, ApiError> {
        self.served(self.catalog.acquire(name, ModelKind::Text, keep_alive).await?)
    }

    /// The model that a request names, to generate text, if it is loaded.
    pub(crate) fn loaded_model(&self, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
        self.served(self.catalog.acquire_loaded(name, ModelKind::Text)?)
    }

    /// The model that a request names, to make embeddings. It is loaded if need be.
    pub(crate) async fn embedder(
        &self,
        name: Option<&str>,
        keep_alive: Option<KeepAlive>,
    ) -> Result<ServedEmbedder, ApiError> {
        self.embedder_of(name, ModelKind::Embeddings, keep_alive).await
    }

    /// The model that a request names, to score documents. It is loaded if need be.
    pub(crate) async fn reranker(
        &self,
        name: Option<&str>,
        keep_alive: Option<KeepAlive>,
    ) -> Result<ServedEmbedder, ApiError> {
        self.embedder_of(name, ModelKind::Scores, keep_alive).await
    }

    async fn embedder_of(
        &self,
        name: Option<&str>,
        kind: ModelKind,
        keep_alive: Option<KeepAlive>,
    ) -> Result<ServedEmbedder, ApiError> {
        let leased = self.catalog.acquire(name, kind, keep_alive).await?;
        let Leased { id, service, lease, .. } = leased;
        match service {
            LoadedService::Embed(embedder) => Ok(ServedEmbedder { id, embedder, _lease: lease }),
            LoadedService::Generate(_) => Err(wrong_kind(&id)),
        }
    }

    fn served(&self, leased: Leased) -> Result<Arc<ServedModel>, ApiError> {
        let Leased { id, service, settings, lease } = leased;
        let sampling = settings.sampling.as_ref().unwrap_or(&self.options.sampling).clone();
        match service {
            LoadedService::Generate(generator) => {
                Ok(Arc::new(ServedModel { generator, sampling, _lease: lease }))
            }
            LoadedService::Embed(_) => Err(wrong_kind(&id)),
        }
    }

    /// Tells that the server listens on a loopback address.
    pub(crate) fn set_local(&self) {
        self.is_local.store(true, Relaxed);
    }

    /// Returns true if web pages are the only way to reach the server from outside, and nothing
    /// else keeps them away.
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_local.load(Relaxed) && self.options.keys.is_empty()
    }

    /// From now on, new requests are refused.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
}

/// The catalog finds models by their kind, so this is a bug.
fn wrong_kind(id: &str) -> ApiError {
    ApiError::internal(&format_args!("the model {id} is of the wrong kind"))
}

/// The time now, in seconds since 1970.
pub(crate) fn now() -> u64 {
    seconds_since_1970(SystemTime::now())
}

/// A time in seconds since 1970.
pub(crate) fn seconds_since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
