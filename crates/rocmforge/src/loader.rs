//! Loading a model: the options, and the steps from a source to an engine.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rf_device::{DeviceOptions, LayerPlacement, Placement};
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::SchedulerOptions;
use rf_engine::{
    Activations, DiskCacheOptions, Engine, EngineOptions, Pooling, SpeculationOptions,
};
use rf_gguf::{Gguf, Value};
use rf_graph::{Backend, KvType, MemoryNeed, Progress};

use crate::adapters::Changes;
use crate::drafts::{Drafts, OpenDrafts, mtp_heads};
use crate::error::Error;
use crate::load_event::LoadEvent;
use crate::loaded_model::LoadedModel;
use crate::media::{MediaEncoders, ProjectorFile, Projectors, rows_of_a_batch};
use crate::model::DEMO_TEMPERATURE;
use crate::sampling_defaults::SamplingDefaults;
use crate::sizing::{Purpose, Sizes, TextSizes};
use crate::source::Source;

/// The options of loading a model. Start with [`Model::loader`](crate::Model::loader) or
/// [`Loader::new`].
///
/// ```no_run
/// use rocmforge::{Drafts, Model};
///
/// let model = Model::loader("Qwen/Qwen3-8B-GGUF:Q4_K_M")
///     .context_tokens(16_384)
///     .drafts(Drafts::Off)
///     .load()?;
/// # Ok::<(), rocmforge::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Loader {
    pub(crate) source: Source,
    overrides: Vec<(String, Value)>,
    template: Option<String>,
    template_variables: BTreeMap<String, serde_json::Value>,
    changes: Changes,
    device: DeviceOptions,
    projector: ProjectorFile,
    projector_on_cpu: bool,
    drafts: Drafts,
    draft_lengths: SpeculationOptions,
    pub(crate) sizes: Sizes,
    disk_cache: Option<DiskCacheOptions>,
    pub(crate) sampler: Option<SamplerConfig>,
    seed: Option<u64>,
    pub(crate) scheduler: SchedulerOptions,
}

/// A model whose file is open, with its tokenizer and template. Its weights are not loaded.
#[derive(Clone, Debug)]
pub struct OpenModel {
    pub(crate) loader: Loader,
    pub(crate) model: Arc<rf_engine::Model>,
    drafts: OpenDrafts,
    projectors: Option<Projectors>,
}

impl Loader {
    /// Tokens per batch, unless [`batch_tokens`](Self::batch_tokens) says otherwise.
    pub const DEFAULT_BATCH_TOKENS: usize = 512;

    /// The options of a model for many requests at a time.
    pub fn new(source: impl Into<Source>) -> Self {
        let scheduler = SchedulerOptions::default();
        Self {
            source: source.into(),
            overrides: Vec::new(),
            template: None,
            template_variables: BTreeMap::new(),
            changes: Changes::default(),
            device: DeviceOptions::default(),
            projector: ProjectorFile::default(),
            projector_on_cpu: false,
            drafts: Drafts::default(),
            draft_lengths: SpeculationOptions::default(),
            sizes: Sizes {
                purpose: Purpose::Requests,
                context_tokens: None,
                batch_tokens: Self::DEFAULT_BATCH_TOKENS,
                kv_type: None,
                kv_tokens: None,
                sequences: None,
                host_cache_bytes: None,
                shares_memory: false,
                embeds: false,
                pooling: None,
                texts: None,
            },
            disk_cache: None,
            sampler: None,
            seed: None,
            scheduler,
        }
    }

    /// Replaces a value of the file's metadata.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: Value) -> Self {
        self.overrides.push((key.into(), value));
        self
    }

    /// Replaces the chat template of the file by this Jinja source.
    #[must_use]
    pub fn chat_template(mut self, source: impl Into<String>) -> Self {
        self.template = Some(source.into());
        self
    }

    /// Gives variables to the chat template for all conversations, such as `enable_thinking`.
    #[must_use]
    pub fn template_variables(mut self, variables: BTreeMap<String, serde_json::Value>) -> Self {
        self.template_variables = variables;
        self
    }

    /// Loads an adapter (LoRA), a GGUF file, with its scale for requests that state none
    /// ([`Job::adapters`](crate::Job::adapters)). The model's own head does not draft then.
    #[must_use]
    pub fn lora(mut self, path: impl Into<PathBuf>, scale: f32) -> Self {
        self.changes.adapters.push((path.into(), scale));
        self
    }

    /// Adds a control vector, a GGUF file, times `scale` to the outputs of layers.
    #[must_use]
    pub fn control_vector(mut self, path: impl Into<PathBuf>, scale: f32) -> Self {
        self.changes.control_vectors.push((path.into(), scale));
        self
    }

    /// The layers whose outputs control vectors change, counted from 0. Default: all.
    #[must_use]
    pub fn control_layers(mut self, layers: RangeInclusive<usize>) -> Self {
        self.changes.control_layers = layers;
        self
    }

    /// The devices, and the layers that each gets. Default: a GPU if one is usable, else the CPU.
    #[must_use]
    pub fn device(mut self, options: DeviceOptions) -> Self {
        self.device = options;
        self
    }

    /// Tokens per sequence, prompt and answer together; 0 for the context that the model was
    /// trained with. Default: that context, at most
    /// [`EngineOptions::DEFAULT_CONTEXT_TOKENS`](crate::engine::EngineOptions::DEFAULT_CONTEXT_TOKENS).
    #[must_use]
    pub fn context_tokens(mut self, tokens: usize) -> Self {
        self.sizes.context_tokens = Some(tokens);
        self
    }

    /// Tokens per batch: longer prompts are computed in chunks, which does not change the answer.
    #[must_use]
    pub fn batch_tokens(mut self, tokens: usize) -> Self {
        self.sizes.batch_tokens = tokens;
        self
    }

    /// The storage format of the KV cache. Default: f16, and f32 for embeddings.
    #[must_use]
    pub fn kv_type(mut self, kv_type: KvType) -> Self {
        self.sizes.kv_type = Some(kv_type);
        self
    }

    /// Tokens of the KV cache, which all sequences share. Default: what memory allows for the
    /// [purpose](Self::purpose).
    #[must_use]
    pub fn kv_tokens(mut self, tokens: usize) -> Self {
        self.sizes.kv_tokens = Some(tokens);
        self
    }

    /// Sequences that are computed at the same time. Default: 1, and as many as the scheduler
    /// allows for [`Purpose::Requests`].
    #[must_use]
    pub fn sequences(mut self, sequences: usize) -> Self {
        self.sizes.sequences = Some(sequences);
        self
    }

    /// Bytes of host memory for pages and recurrent states of earlier prompts that the device has
    /// no room for. Default: an eighth of what is free, at most 8 GiB, for models with recurrent
    /// states on a GPU, and else 0.
    #[must_use]
    pub fn host_cache_bytes(mut self, bytes: u64) -> Self {
        self.sizes.host_cache_bytes = Some(bytes);
        self
    }

    /// Keeps pages and recurrent states of prompts in a folder, in which later processes find them,
    /// too. Several models may share the folder. Default: none.
    #[must_use]
    pub fn disk_cache(mut self, options: DiskCacheOptions) -> Self {
        self.disk_cache = Some(options);
        self
    }

    /// The use of the model, which determines the memory besides the weights. Default:
    /// [`Purpose::Requests`].
    #[must_use]
    pub fn purpose(mut self, purpose: Purpose) -> Self {
        self.sizes.purpose = purpose;
        self
    }

    /// Leaves memory for other models: the KV cache has room for four contexts.
    #[must_use]
    pub fn shares_memory(mut self, shares: bool) -> Self {
        self.sizes.shares_memory = shares;
        self
    }

    /// Makes embeddings instead of text, with the pooling of the file. Models that generate nothing
    /// do so anyway.
    #[must_use]
    pub fn embeddings(mut self) -> Self {
        self.sizes.embeds = true;
        self
    }

    /// Makes embeddings with this pooling, or scores with [`Pooling::Rank`].
    #[must_use]
    pub fn pooling(mut self, pooling: Pooling) -> Self {
        self.sizes.embeds = true;
        self.sizes.pooling = Some(pooling);
        self
    }

    /// Makes the cache as large as these texts need, which are to be embedded. `lengths_tokens` has
    /// the tokens of each. The context is that of the longest text, unless
    /// [`context_tokens`](Self::context_tokens) is given.
    #[must_use]
    pub fn for_texts(mut self, lengths_tokens: impl IntoIterator<Item = usize>) -> Self {
        self.sizes.embeds = true;
        self.sizes.texts = Some(TextSizes::new(lengths_tokens));
        self
    }

    /// The projector (`mmproj` file) with which the model reads pictures or hears sounds. Default:
    /// the one in the folder of the model, if there is one.
    #[must_use]
    pub fn mmproj(mut self, path: impl Into<PathBuf>) -> Self {
        self.projector = ProjectorFile::Path(path.into());
        self
    }

    /// Loads no projector: pictures and sounds are refused, and their encoders take no memory.
    #[must_use]
    pub fn no_mmproj(mut self) -> Self {
        self.projector = ProjectorFile::Off;
        self
    }

    /// Encodes pictures and sounds on the CPU, so that their encoders take no memory of a GPU.
    #[must_use]
    pub fn mmproj_on_cpu(mut self) -> Self {
        self.projector_on_cpu = true;
        self
    }

    /// The source of drafts for speculative decoding.
    #[must_use]
    pub fn drafts(mut self, drafts: Drafts) -> Self {
        self.drafts = drafts;
        self
    }

    /// The shortest and the longest draft, in tokens.
    #[must_use]
    pub fn draft_lengths(mut self, lengths: SpeculationOptions) -> Self {
        self.draft_lengths = lengths;
        self
    }

    /// The parameters of sampling for requests that give none.
    #[must_use]
    pub fn sampler(mut self, config: SamplerConfig) -> Self {
        self.sampler = Some(config);
        self
    }

    /// Seeds the random numbers of requests that give no seed, so that their answers repeat.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The limits of the scheduler that requests share.
    #[must_use]
    pub fn scheduler(mut self, options: SchedulerOptions) -> Self {
        self.scheduler = options;
        self
    }

    /// Opens the file: reads metadata, tokenizer and template, and checks the draft model.
    ///
    /// # Errors
    ///
    /// If the model cannot be found, read or supported, or the drafts do not fit it.
    pub fn open(self, observe: &mut dyn FnMut(LoadEvent<'_>)) -> Result<OpenModel, Error> {
        let path = self.source.path(observe)?;
        let gguf = match &path {
            Some(path) => Gguf::open(path)?,
            None => self.source.open(observe)?,
        };
        self.open_gguf_with(gguf, path.as_deref(), observe)
    }

    /// [`open`](Self::open) with an open container instead of the source.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open).
    pub fn open_gguf(self, gguf: Gguf) -> Result<OpenModel, Error> {
        self.open_gguf_with(gguf, None, &mut |_| ())
    }

    fn open_gguf_with(
        mut self,
        mut gguf: Gguf,
        path: Option<&Path>,
        observe: &mut dyn FnMut(LoadEvent<'_>),
    ) -> Result<OpenModel, Error> {
        for (key, value) in &self.overrides {
            gguf.override_metadata(key, value.clone());
        }
        let mut model = rf_engine::Model::from_gguf(gguf)?;
        if let Some(source) = &self.template {
            model = model.with_chat_template(source)?;
        }
        let model = model.with_template_variables(self.template_variables.clone());
        let model = self.changes.add_to(model)?;
        let embeds = self.sizes.embeds || !model.config().generates();
        let wanted = if embeds { &Drafts::Off } else { &self.drafts };
        let drafts = OpenDrafts::open(wanted, self.draft_lengths, &model, observe)?;
        let projectors = if embeds { None } else { self.projector.open(path, &model)? };
        if let Some(projectors) = &projectors {
            let rows = rows_of_a_batch(projectors);
            self.sizes.batch_tokens = self.sizes.batch_tokens.max(rows);
            self.scheduler.max_batched_tokens = self.scheduler.max_batched_tokens.max(rows);
        }
        Ok(OpenModel { loader: self, model: Arc::new(model), drafts, projectors })
    }

    /// Opens the devices of these options.
    ///
    /// # Errors
    ///
    /// If the device options contradict each other, or the named GPU cannot be used.
    pub fn placement(&self) -> Result<Placement, Error> {
        Ok(Placement::open(self.device)?)
    }

    /// The parameters of sampling and the limits for the requests of a model.
    fn defaults_of_requests(&self, model: &rf_engine::Model) -> (SamplerConfig, SchedulerOptions) {
        let config = SamplerConfig::default();
        let default = || match self.source {
            Source::Demo => config.with_temperature(DEMO_TEMPERATURE),
            _ => SamplingDefaults::of(model.gguf()).fill_in(config),
        };
        let mut sampler = self.sampler.clone().unwrap_or_else(default);
        sampler.seed = self.seed.or(sampler.seed);
        (sampler, self.scheduler)
    }
}

impl OpenModel {
    /// The parsed file: metadata, configuration, tokenizer, chat template.
    pub fn model(&self) -> &Arc<rf_engine::Model> {
        &self.model
    }

    /// True if the model will make embeddings instead of text.
    pub fn embeds(&self) -> bool {
        self.loader.sizes.embeds || !self.model.config().generates()
    }

    /// Checks that the model generates text.
    ///
    /// # Errors
    ///
    /// If the file has a model that makes embeddings or scores only.
    pub fn check_generates(&self) -> Result<(), Error> {
        let config = self.model.config();
        if config.generates() {
            return Ok(());
        }
        let architecture = config.architecture.clone();
        let pooling = config.pooling.map_or("none", Pooling::name);
        Err(rf_engine::Error::from(rf_model::Error::NoLogits { architecture, pooling }).into())
    }

    /// Heads that predict further tokens (MTP), as the metadata count them. The first one drafts.
    pub fn mtp_heads(&self) -> i128 {
        mtp_heads(&self.model)
    }

    /// Tokens per sequence.
    pub fn context_tokens(&self) -> usize {
        self.model.context_tokens(&self.loader.sizes.options(&self.model))
    }

    /// Changes options that depend on the opened file: the purpose and the sizes. The source, the
    /// template and the drafts stay as they were opened.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(Loader) -> Loader) -> Self {
        self.loader = change(self.loader);
        self
    }

    /// [`with`](Self::with) for a change that may fail.
    ///
    /// # Errors
    ///
    /// The error of `change`.
    pub fn try_with<E>(
        mut self,
        change: impl FnOnce(Loader) -> Result<Loader, E>,
    ) -> Result<Self, E> {
        self.loader = change(self.loader)?;
        Ok(self)
    }

    /// Computes the options of the engine, and the memory that the model takes, without loading it.
    ///
    /// # Errors
    ///
    /// If an option is invalid, tensors are missing, or a backend does not support the model.
    pub fn plan(&self, placement: &Placement) -> Result<(EngineOptions, MemoryNeed), Error> {
        let options = self.engine_options(Some(placement))?;
        Ok((options, placement.memory_need(&self.model, &options)?))
    }

    /// Loads the weights on the devices of a placement.
    ///
    /// # Errors
    ///
    /// If the model does not fit in memory, or a device fails.
    pub fn load_on(
        &self,
        placement: &Placement,
        observe: &mut dyn FnMut(LoadEvent<'_>),
    ) -> Result<LoadedModel, Error> {
        let drafts = &self.drafts;
        // The draft model is loaded first, because the KV cache takes the remaining memory.
        let draft = drafts.load(placement, &self.model, &self.loader.sizes)?;
        let encoders = self.load_encoders(placement)?;
        let options = self.engine_options(Some(placement))?;
        let mut need = placement.memory_need(&self.model, &options)?;
        need.held.weights_bytes += encoders.as_ref().map_or(0, |encoders| encoders.memory_bytes());
        observe(LoadEvent::MemoryNeed(need));
        let loaded = placement.load(&self.model, options, &mut |event| match event {
            rf_device::LoadEvent::Placed(layers) => observe(LoadEvent::Placed(layers)),
            rf_device::LoadEvent::Progress(progress) => observe(LoadEvent::Progress(progress)),
            rf_device::LoadEvent::Warning(warning) => observe(LoadEvent::Warning(warning)),
            _ => {}
        })?;
        let (mut engine, layers) = (loaded.engine, loaded.placement);
        self.open_disk_cache(&mut engine)?;
        let speculation = drafts.speculation(&engine, draft, layers.gpu.is_none())?;
        let (sampler, scheduler) = self.loader.defaults_of_requests(&self.model);
        Ok(LoadedModel { engine, speculation, layers, encoders, sampler, scheduler })
    }

    /// Loads the weights on one backend, without a choice of devices. A draft model is not loaded.
    ///
    /// # Errors
    ///
    /// If the model does not fit in memory, or the backend fails.
    pub fn load_on_backend(
        &self,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<LoadedModel, Error> {
        let options = self.engine_options(None)?;
        let mut engine = Engine::load(Arc::clone(&self.model), backend, options, progress)?;
        self.open_disk_cache(&mut engine)?;
        let speculation = match &self.drafts {
            drafts if drafts.has_model() || self.embeds() => None,
            drafts => drafts.speculation(&engine, None, true)?,
        };
        let layers = LayerPlacement { backends: backend.name().to_owned(), ..Default::default() };
        let encoders = match &self.projectors {
            Some(projectors) => {
                Some(Arc::new(MediaEncoders::new(projectors, backend, &mut |_| ())?))
            }
            None => None,
        };
        let (sampler, scheduler) = self.loader.defaults_of_requests(&self.model);
        Ok(LoadedModel { engine, speculation, layers, encoders, sampler, scheduler })
    }

    fn open_disk_cache(&self, engine: &mut Engine) -> Result<(), Error> {
        match &self.loader.disk_cache {
            Some(options) if self.loader.scheduler.prefix_cache && !self.embeds() => {
                Ok(engine.set_disk_cache(options)?)
            }
            _ => Ok(()),
        }
    }

    /// Loads the projector on the first GPU, or on the CPU if it has no kernels or no room there.
    fn load_encoders(&self, placement: &Placement) -> Result<Option<Arc<MediaEncoders>>, Error> {
        let Some(projectors) = &self.projectors else { return Ok(None) };
        let load = |backend: &dyn Backend| {
            MediaEncoders::new(projectors, backend, &mut |_| ()).map(|v| Some(Arc::new(v)))
        };
        if let Some(gpu) = placement.gpu().filter(|_| !self.loader.projector_on_cpu) {
            match load(&*gpu.backend) {
                Ok(encoders) => return Ok(encoders),
                Err(error) => tracing::warn!("pictures and sounds are encoded on the CPU: {error}"),
            }
        }
        load(&placement.cpu()?)
    }

    /// The model without its projector, for prompts without pictures and sounds.
    #[must_use]
    pub fn without_projector(mut self) -> Self {
        self.projectors = None;
        self
    }

    /// The encoders of the model's projector file.
    pub fn projectors(&self) -> Option<&Projectors> {
        self.projectors.as_ref()
    }

    /// Loads the model on a backend to observe the inputs of its matrices: for an importance
    /// matrix.
    ///
    /// # Errors
    ///
    /// If the model does not fit in memory, or the backend fails.
    pub fn activations(
        &self,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Activations, Error> {
        let options = self.loader.sizes.options(&self.model);
        Ok(Activations::load(&self.model, backend, &options, progress)?)
    }

    fn engine_options(&self, placement: Option<&Placement>) -> Result<EngineOptions, Error> {
        let drafts = self.drafts.room(placement);
        self.loader.sizes.plan(&self.model, placement, &self.loader.scheduler, drafts)
    }
}
