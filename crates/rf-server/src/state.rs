//! What all requests share: the models, the options, and whether the server is draining.

use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rocmforge::AdapterScales;
use rocmforge::messages::{Conversation, Message};
use tokio::sync::watch;

use crate::body::BodyMemory;
use crate::catalog::{Catalog, Embedder, Lease, Leased, Listed, LoadHook, LoadedService};
use crate::entry::{ModelEntry, ModelKind};
use crate::error::{ApiError, ApiErrorKind, Error};
use crate::generation_defaults::RequestDefaults;
use crate::generator::Generator;
use crate::image_urls::ImageUrls;
use crate::keep_alive::KeepAlive;
use crate::keys::{ApiKeys, SequencePermit};
#[cfg(feature = "kv-events")]
use crate::kv_events::EventQueue;
use crate::longest_token::TextLimit;
use crate::managed_models::ModelManager;
use crate::metrics::{HttpMetrics, KeyRejection};
use crate::model_events::ModelEvents;
use crate::openai::responses::store::ResponseStore;
use crate::options::ServerOptions;
use crate::record::RequestRecord;
use crate::settings::ModelSettings;
use crate::tls::Tls;
use crate::traces::Tracer;

/// The state of the server.
#[derive(Debug)]
pub(crate) struct App {
    options: ServerOptions,
    catalog: Catalog,
    responses: ResponseStore,
    image_urls: ImageUrls,
    /// They change when their file is read again.
    keys: RwLock<Arc<ApiKeys>>,
    /// The certificate, if the server speaks HTTPS.
    tls: RwLock<Option<Tls>>,
    http_metrics: Arc<HttpMetrics>,
    body_memory: BodyMemory,
    model_events: ModelEvents,
    tracer: Option<Tracer>,
    /// The events of the prefix cache that wait to be published.
    #[cfg(feature = "kv-events")]
    kv_events: Option<Arc<EventQueue>>,
    draining: AtomicBool,
    /// True once a device does not answer any more.
    hung: AtomicBool,
    /// True once running requests are cut off.
    cut: watch::Sender<bool>,
    /// True if only programs of this machine reach the server.
    is_local: AtomicBool,
}

/// A model that a request uses to generate text. Until it is dropped, the model stays loaded.
#[derive(Debug)]
pub(crate) struct ServedModel {
    // Dropped before the lease.
    generator: Arc<Generator>,
    /// The adapter that the request names as its model.
    adapter: Option<NamedScales>,
    sampling: RequestDefaults,
    context_shift: bool,
    image_urls: ImageUrls,
    settings: Arc<ModelSettings>,
    /// Turns true when the server cuts running requests off.
    cut: watch::Receiver<bool>,
    _lease: Lease,
}

/// An adapter by name, and the scales that turn on it alone.
#[derive(Debug)]
struct NamedScales {
    name: String,
    scales: AdapterScales,
}

impl ServedModel {
    /// The name in every API: that of the model, or of the adapter that the request names.
    pub(crate) fn id(&self) -> &str {
        self.adapter_name().unwrap_or(self.generator.id())
    }

    /// The adapter that the request names as its model.
    pub(crate) fn adapter_name(&self) -> Option<&str> {
        self.adapter.as_ref().map(|adapter| adapter.name.as_str())
    }

    /// The scales of adapters for a request that states none; `None` for those of the model.
    pub(crate) fn adapter_scales(&self) -> Option<AdapterScales> {
        self.adapter.as_ref().map(|adapter| adapter.scales.clone())
    }

    /// The parameters of requests that set none.
    pub(crate) fn sampling(&self) -> &RequestDefaults {
        &self.sampling
    }

    /// Returns true if answers that fill the context continue.
    pub(crate) fn shifts_context(&self) -> bool {
        self.context_shift
    }

    /// The pictures of URLs.
    pub(crate) fn image_urls(&self) -> &ImageUrls {
        &self.image_urls
    }

    /// The system prompt of conversations without one.
    pub(crate) fn system(&self) -> Option<&str> {
        self.settings.system.as_deref()
    }

    /// Gives a conversation the system prompt of the model, unless it has its own.
    pub(crate) fn add_system(&self, conversation: &mut Conversation) {
        let is_own = |message: &Message| matches!(&*message.role, "system" | "developer");
        let messages = &mut conversation.messages;
        if let (Some(system), false) = (self.system(), messages.first().is_none_or(is_own)) {
            messages.insert(0, Message::new("system", system));
        }
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
    /// The request is one sequence of its key, whatever the number of its texts.
    _permit: Option<SequencePermit>,
}

impl ServedEmbedder {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn model(&self) -> &rocmforge::Model {
        &self.embedder.model
    }

    /// The longest text that may fit into the context.
    pub(crate) fn text_limit(&self) -> TextLimit {
        self.embedder.text_limit()
    }
}

impl ServedModel {
    /// Completes when the server cuts running requests off.
    pub(crate) fn cut(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut cut = self.cut.clone();
        async move {
            if cut.wait_for(|cut| *cut).await.is_err() {
                // The server is gone, and nobody reads the answer.
                std::future::pending::<()>().await;
            }
        }
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
        let (budget, grows) = (options.memory_budget_bytes, options.manager.is_some());
        let models: Vec<_> = models.into_iter().collect();
        let tracer = Tracer::new(options.otlp_traces_endpoint.as_deref())?;
        check_features(&options, &models)?;
        #[cfg(feature = "kv-events")]
        let kv_events = options.kv_events.as_ref().map(|_| EventQueue::new());
        #[cfg(feature = "kv-events")]
        let on_load = kv_events
            .clone()
            .map(|queue| -> LoadHook { Arc::new(move |model: &Generator| queue.watch(model)) });
        #[cfg(not(feature = "kv-events"))]
        let on_load: Option<LoadHook> = None;
        let catalog = Catalog::new(models, budget, options.keep_alive, grows, on_load)?;
        let keys = RwLock::new(Arc::new(options.keys.clone()));
        let tls = RwLock::new(options.tls.clone());
        let image_urls = ImageUrls::new(options.image_fetcher.clone());
        Ok(Self {
            options,
            catalog,
            responses: ResponseStore::default(),
            image_urls,
            keys,
            tls,
            http_metrics: Arc::default(),
            body_memory: BodyMemory::default(),
            model_events: ModelEvents::default(),
            tracer,
            #[cfg(feature = "kv-events")]
            kv_events,
            draining: AtomicBool::new(false),
            hung: AtomicBool::new(false),
            cut: watch::Sender::new(false),
            is_local: AtomicBool::new(false),
        })
    }

    /// The events of the prefix cache that wait to be published.
    #[cfg(feature = "kv-events")]
    pub(crate) fn kv_events(&self) -> Option<&Arc<EventQueue>> {
        self.kv_events.as_ref()
    }

    /// The source of spans; `None` if there is no collector.
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// The latest answers of `/v1/responses`.
    pub(crate) fn responses(&self) -> &ResponseStore {
        &self.responses
    }

    /// The keys of now.
    pub(crate) fn keys(&self) -> Arc<ApiKeys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the keys. Running requests go on.
    pub(crate) fn set_keys(&self, mut keys: ApiKeys) {
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.continue_from(&current);
        *current = Arc::new(keys);
    }

    pub(crate) fn tls(&self) -> Option<Tls> {
        self.tls.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the certificate, if there is one.
    pub(crate) fn set_tls(&self, tls: Tls) {
        let mut current = self.tls.write().unwrap_or_else(PoisonError::into_inner);
        if current.is_some() {
            *current = Some(tls);
        }
    }

    pub(crate) fn http_metrics(&self) -> &Arc<HttpMetrics> {
        &self.http_metrics
    }

    /// The memory for large bodies.
    pub(crate) fn body_memory(&self) -> &BodyMemory {
        &self.body_memory
    }

    /// The events of the models.
    pub(crate) fn model_events(&self) -> &ModelEvents {
        &self.model_events
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
        self.note_model(name, ModelKind::Text)?;
        let adapter = self.catalog.adapter(name);
        let leased = self.catalog.acquire(name, ModelKind::Text, keep_alive).await?;
        self.served(leased, name, adapter.is_some())
    }

    /// The model that a request names, to generate text, if it is loaded.
    pub(crate) fn loaded_model(&self, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
        self.note_model(name, ModelKind::Text)?;
        let adapter = self.catalog.adapter(name);
        let leased = self.catalog.acquire_loaded(name, ModelKind::Text)?;
        self.served(leased, name, adapter.is_some())
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
        self.note_model(name, kind)?;
        let permit = match RequestRecord::current() {
            Some(record) => record.begin_sequences(1, 0)?,
            None => None,
        };
        let leased = self.catalog.acquire(name, kind, keep_alive).await?;
        let Leased { id, service, lease, .. } = leased;
        match service {
            LoadedService::Embed(embedder) => {
                Ok(ServedEmbedder { id, embedder, _lease: lease, _permit: permit })
            }
            LoadedService::Generate(_) => Err(wrong_kind(&id)),
        }
    }

    /// The model for a request that names it, or one of its adapters. An adapter may have been
    /// unloaded while the request waited.
    fn served(
        &self,
        leased: Leased,
        name: Option<&str>,
        names_adapter: bool,
    ) -> Result<Arc<ServedModel>, ApiError> {
        let Leased { id, service, settings, lease } = leased;
        let sampling = RequestDefaults {
            sampler: settings.sampling.as_ref().unwrap_or(&self.options.sampling).clone(),
            generation: settings.generation.clone(),
        };
        match service {
            LoadedService::Generate(generator) => {
                let adapter = name.and_then(|name| {
                    let scales = generator.scales_of(name)?;
                    Some(NamedScales { name: name.to_owned(), scales })
                });
                if names_adapter && adapter.is_none() {
                    return Err(ApiError::unknown_model(name.unwrap_or_default(), &[&id]));
                }
                let cut = self.cut.subscribe();
                let image_urls = self.image_urls.clone();
                Ok(Arc::new(ServedModel {
                    generator,
                    adapter,
                    sampling,
                    context_shift: self.options.context_shift,
                    image_urls,
                    settings,
                    cut,
                    _lease: lease,
                }))
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
        self.is_local.load(Relaxed) && self.keys().is_empty()
    }

    /// What manages the models, if the request may do that.
    pub(crate) fn manager(&self) -> Result<Arc<dyn ModelManager>, ApiError> {
        let Some(manager) = &self.options.manager else {
            let message = "this server does not manage models: docs/server.md says which do";
            return Err(ApiError::new(ApiErrorKind::Forbidden, message));
        };
        self.check_may_manage()?;
        Ok(manager.get())
    }

    /// Checks that the request that the task serves may manage models.
    pub(crate) fn check_may_manage(&self) -> Result<(), ApiError> {
        let refused = |message: &str| Err(ApiError::new(ApiErrorKind::Forbidden, message));
        let record = RequestRecord::current();
        match record.as_ref().and_then(|record| record.client()) {
            Some(client) if client.manages_models() => Ok(()),
            Some(_) => {
                if let Some(record) = &record {
                    record.count_rejection(KeyRejection::ManageModels);
                }
                refused("this API key may not manage models")
            }
            None if self.keys().is_empty() && self.is_local.load(Relaxed) => Ok(()),
            None => refused("without API keys, models are managed from this machine only"),
        }
    }

    /// The models that the request may use which the task serves.
    pub(crate) fn visible_models(&self) -> Vec<Listed> {
        let mut models = self.catalog.list();
        if let Some(record) = RequestRecord::current() {
            models.retain(|model| record.may_use(&model.names()));
        }
        models
    }

    /// From now on, new requests are refused.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Ends the generations that run.
    pub(crate) fn cut_off(&self) {
        self.cut.send_replace(true);
    }

    /// Notes the model of the request that the task serves, if its key may use it.
    pub(crate) fn note_model(&self, name: Option<&str>, kind: ModelKind) -> Result<(), ApiError> {
        match RequestRecord::current() {
            Some(record) => record.set_model(&self.catalog.names(name, kind)?),
            None => Ok(()),
        }
    }

    /// A device does not answer any more.
    pub(crate) fn set_hung(&self) {
        self.hung.store(true, Relaxed);
    }

    pub(crate) fn is_hung(&self) -> bool {
        self.hung.load(Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
}

/// Refuses options that this build does not have.
fn check_features(options: &ServerOptions, models: &[ModelEntry]) -> Result<(), Error> {
    if options.kv_events.is_none() {
        return Ok(());
    }
    if !cfg!(feature = "kv-events") {
        return Err(Error::NotBuilt {
            option: "the publication of KV events",
            feature: "kv-events",
        });
    }
    // The hashes of blocks do not tell models apart.
    match models {
        [model] if model.kind == ModelKind::Text && options.manager.is_none() => Ok(()),
        _ => Err(Error::KvEventModels),
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
