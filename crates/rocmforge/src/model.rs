//! A loaded model, which many callers share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rf_device::LayerPlacement;
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{Handle, Scheduler, SchedulerOptions};
use rf_engine::{
    Adapter, AdapterScales, DecodeOptions, EncodeOptions, Engine, MixedPrompt, PerplexityScore,
    Session, Speculation,
};
use rf_grammar::GrammarCompiler;

use crate::block_on::block_on;
use crate::details::ModelDetails;
use crate::embedder::Embedder;
use crate::error::Error;
use crate::generation::{Generation, Job, Update};
use crate::media::{Media, MediaEncoders, MediaKind, mixed_prompt};

/// A loaded model, which any number of threads and tasks use at the same time: their requests share
/// batches. Clones are cheap. The model is unloaded when its last clone is dropped.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
}

struct Inner {
    file: Arc<rf_engine::Model>,
    service: Service,
    layers: LayerPlacement,
    encoders: Option<Arc<MediaEncoders>>,
    sampler: SamplerConfig,
    /// The scales of adapters for requests that state none.
    adapter_scales: Mutex<AdapterScales>,
    /// Made for the first request that needs it, because it takes time and memory.
    compiler: Mutex<Option<Arc<GrammarCompiler>>>,
}

/// The thread of the model.
enum Service {
    Generate { handle: Handle, _scheduler: Scheduler },
    Embed(Embedder),
}

/// The temperature of the demo model: with the usual 0.8, a model this small confuses names.
pub const DEMO_TEMPERATURE: f32 = 0.5;

impl Model {
    /// Starts the thread of an engine that the caller loaded.
    ///
    /// # Errors
    ///
    /// If a limit of the scheduler is 0, or the thread cannot be started.
    pub fn from_engine(
        engine: Engine,
        speculation: Option<Speculation>,
        options: SchedulerOptions,
    ) -> Result<Self, Error> {
        let sampler = SamplerConfig::default();
        Self::new(engine, speculation, (LayerPlacement::default(), None), (options, sampler))
    }

    pub(crate) fn new(
        engine: Engine,
        speculation: Option<Speculation>,
        (layers, encoders): (LayerPlacement, Option<Arc<MediaEncoders>>),
        (options, sampler): (SchedulerOptions, SamplerConfig),
    ) -> Result<Self, Error> {
        let file = Arc::clone(engine.model());
        let service = if engine.pooling().is_some() {
            Service::Embed(Embedder::start(engine)?)
        } else {
            let scheduler = Scheduler::start_with_drafts(engine, speculation, options)?;
            let handle = scheduler.handle();
            Service::Generate { handle, _scheduler: scheduler }
        };
        let adapter_scales = Mutex::new(file.adapter_scales().clone());
        let compiler = Mutex::new(None);
        let inner = Inner { file, service, layers, encoders, sampler, adapter_scales, compiler };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Submits prompts that are tokens already. All have the same number of choices.
    ///
    /// # Errors
    ///
    /// If a prompt does not fit, an option is invalid, or too many requests wait.
    pub fn submit(&self, mut jobs: Vec<Job>) -> Result<Generation, Error> {
        let handle = self.handle().ok_or(Error::LoadedToEmbed)?.clone();
        for job in &mut jobs {
            job.adapters.get_or_insert_with(|| self.adapter_scales());
        }
        // A running request keeps the model alive.
        Generation::submit(handle, Arc::clone(&self.inner) as _, jobs)
    }

    /// An empty sequence of the model, which a [`Job`] computes and returns. It is saved by
    /// [`Engine::save`] and restored by [`Engine::restore`], which [`Handle::call`] runs on the
    /// thread of the model. It blocks the thread until the running step has ended.
    ///
    /// ```
    /// # #[cfg(feature = "demo-model")] {
    /// use rocmforge::{GenerateOptions, Job, Model, Update};
    ///
    /// let model = Model::demo()?;
    /// let options = GenerateOptions::default().with_max_tokens(4);
    /// let job = Job::text(model.tokenize("Once upon a time"), options);
    /// let mut generation = model.submit(vec![job.with_session(model.session()?)])?;
    /// while let Some(update) = generation.wait() {
    ///     if let Update::Finished { session: Some(session), .. } = update {
    ///         assert!(session.len() > 4);
    ///     }
    /// }
    /// # }
    /// # Ok::<(), rocmforge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the model embeds, or its thread has ended.
    pub fn session(&self) -> Result<Session, Error> {
        let handle = self.handle().ok_or(Error::LoadedToEmbed)?;
        Ok(handle.call(|engine| engine.session())?)
    }

    /// The tokens of a text, without marks of its beginning or end. The names of control tokens,
    /// such as `<|im_end|>`, are plain text here.
    ///
    /// [`Loader::open`](crate::Loader::open) reads a file without its weights, and
    /// [`OpenModel::model`](crate::OpenModel::model) has its tokenizer.
    pub fn tokenize(&self, text: &str) -> Vec<u32> {
        self.inner.file.tokenizer().encode(text, EncodeOptions::PLAIN)
    }

    /// The text of tokens. Control tokens are left out.
    ///
    /// # Errors
    ///
    /// If an id is not in the vocabulary.
    pub fn detokenize(&self, ids: &[u32]) -> Result<String, Error> {
        let text = self.inner.file.tokenizer().decode(ids, DecodeOptions::default());
        Ok(text.map_err(rf_engine::Error::from)?)
    }

    /// Measures how well the model predicts a text: the sum of the negative log-likelihoods of all
    /// tokens but the first one. The text fits into the context. It blocks the thread.
    ///
    /// # Errors
    ///
    /// If the text has fewer than two tokens, is longer than the context, or the request fails.
    pub fn perplexity(&self, text: &str) -> Result<PerplexityScore, Error> {
        block_on(self.perplexity_async(text))
    }

    /// [`perplexity`](Self::perplexity) for async code.
    ///
    /// # Errors
    ///
    /// The errors of [`perplexity`](Self::perplexity).
    pub async fn perplexity_async(&self, text: &str) -> Result<PerplexityScore, Error> {
        let prompt = self.inner.file.text_ids(text);
        if prompt.len() < 2 {
            let (name, value) = ("number of tokens", prompt.len());
            let reason = "it must be at least 2";
            return Err(rf_engine::Error::InvalidOption { name, value, reason }.into());
        }
        let options = rf_engine::GenerateOptions::default().with_max_tokens(0);
        let job = Job::text(prompt, options).with_prompt_logprobs(0);
        let mut generation = self.submit(vec![job])?;
        let mut score = PerplexityScore::default();
        while let Some(update) = generation.next().await {
            match update {
                Update::Prompt { prompt, .. } => {
                    score.tokens = prompt.rest.len();
                    score.nll_sum = prompt.rest.iter().map(|token| -f64::from(token.logprob)).sum();
                }
                Update::Failed(error) => return Err(error),
                _ => {}
            }
        }
        Ok(score)
    }

    /// The parsed file: metadata, configuration, tokenizer, chat template.
    pub fn file(&self) -> &Arc<rf_engine::Model> {
        &self.inner.file
    }

    /// Facts for lists of models.
    pub fn details(&self) -> ModelDetails {
        ModelDetails::new(self.inner.file.gguf(), self.inner.file.config())
    }

    /// Returns true if prompts may have pictures.
    pub fn reads_images(&self) -> bool {
        self.encodes(MediaKind::Image)
    }

    /// Returns true if prompts may have sounds.
    pub fn hears(&self) -> bool {
        self.encodes(MediaKind::Audio)
    }

    fn encodes(&self, kind: MediaKind) -> bool {
        self.inner.encoders.as_ref().is_some_and(|encoders| encoders.encodes(kind))
    }

    /// The prompt of a text with special tokens, as chat templates render it, that has a
    /// [`media_marker`](crate::media_marker) in the place of each picture and sound. It blocks the
    /// thread while they are encoded.
    ///
    /// # Errors
    ///
    /// If the number of marks is not that of files, the model has no encoder for one of them, or it
    /// cannot be decoded.
    pub fn prompt_with_media(&self, text: &str, files: &[Media]) -> Result<MixedPrompt, Error> {
        mixed_prompt(&self.inner.file, self.inner.encoders.as_deref(), text, files)
    }

    /// The adapters (LoRA) that were loaded with the model.
    pub fn adapters(&self) -> &[Adapter] {
        self.inner.file.adapters()
    }

    /// The scales of the adapters for requests that state none.
    pub fn adapter_scales(&self) -> AdapterScales {
        self.inner.adapter_scales.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the scales of the adapters for later requests that state none, also of other clones
    /// of the model. Embeddings keep those that the model was loaded with.
    ///
    /// # Errors
    ///
    /// If there are more scales than adapters, or one is not finite.
    pub fn set_adapter_scales(&self, scales: AdapterScales) -> Result<(), Error> {
        scales.check(self.adapters().len()).map_err(rf_engine::Error::from)?;
        *self.inner.adapter_scales.lock().unwrap_or_else(PoisonError::into_inner) = scales;
        Ok(())
    }

    /// The backends of the layers.
    pub fn layers(&self) -> &LayerPlacement {
        &self.inner.layers
    }

    /// The parameters of sampling for requests that give none.
    pub fn sampler(&self) -> &SamplerConfig {
        &self.inner.sampler
    }

    /// The scheduler's handle, with its limits and statistics; `None` for a model that embeds.
    pub fn handle(&self) -> Option<&Handle> {
        match &self.inner.service {
            Service::Generate { handle, .. } => Some(handle),
            Service::Embed(_) => None,
        }
    }

    /// Tokens per request, prompt and answer together, or per text.
    pub fn context_tokens(&self) -> usize {
        match &self.inner.service {
            Service::Generate { handle, .. } => handle.max_sequence_tokens(),
            Service::Embed(embedder) => embedder.context_tokens(),
        }
    }

    /// The compiler of schemas and grammars for the model's vocabulary.
    ///
    /// # Errors
    ///
    /// If the vocabulary cannot be constrained.
    pub fn grammar_compiler(&self) -> Result<Arc<GrammarCompiler>, Error> {
        let mut compiler = self.inner.compiler.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiler) = &*compiler {
            return Ok(Arc::clone(compiler));
        }
        let new = Arc::new(GrammarCompiler::new(self.inner.file.tokenizer())?);
        Ok(Arc::clone(compiler.insert(new)))
    }

    pub(crate) fn embedder(&self) -> Result<&Embedder, Error> {
        match &self.inner.service {
            Service::Generate { .. } => Err(Error::LoadedToGenerate),
            Service::Embed(embedder) => Ok(embedder),
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = &self.inner.layers.backends;
        f.debug_struct("Model").field("backends", layers).finish_non_exhaustive()
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Model>();
};
