//! A parsed model file, whose weights are not loaded.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use rf_chat::ChatTemplate;
use rf_gguf::Gguf;
use rf_graph::{Backend, KvLayout, KvType, MemoryNeed, Op, Program};
use rf_kv::PageGroup;
use rf_model::{Adapter, AdapterSet, ControlVector, Head, ModelConfig, Pooling};
use rf_tokenizer::Tokenizer;

use crate::adapters::AdapterScales;
use crate::error::Error;
use crate::kv_layout::{full_layout, with_windows};
use crate::options::EngineOptions;
use crate::vocabulary::{CHAT_TEMPLATE, tokenizer_from_gguf};

/// A model file: configuration, tokenizer and chat template.
#[derive(Debug)]
pub struct Model {
    gguf: Gguf,
    config: ModelConfig,
    tokenizer: Arc<Tokenizer>,
    chat_template: Option<ChatTemplate>,
    /// Why the template of the file is not used.
    chat_template_error: Option<Error>,
    adapters: AdapterSet,
    /// The scales of sequences that have none of their own.
    adapter_scales: AdapterScales,
}

impl Model {
    /// Opens a file, or the first part of a split one.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is damaged, or holds a model that is not supported.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::from_gguf(Gguf::open(path)?)
    }

    /// Parses the configuration, tokenizer and template of an open file.
    ///
    /// # Errors
    ///
    /// If the model is not supported.
    pub fn from_gguf(gguf: Gguf) -> Result<Self, Error> {
        let config = ModelConfig::from_gguf(&gguf)?;
        gguf.check_types()?;
        let tokenizer = tokenizer_from_gguf(&gguf)?;
        let model = Self {
            gguf,
            config,
            tokenizer: Arc::new(tokenizer),
            chat_template: None,
            chat_template_error: None,
            adapters: AdapterSet::default(),
            adapter_scales: AdapterScales::default(),
        };
        // Only chats need the template, so that only they fail.
        Ok(match model.gguf.metadata().str(CHAT_TEMPLATE) {
            Ok(None) => model,
            Ok(Some(source)) => {
                let template = model.parse_template(source);
                model.with_template_of_file(template)
            }
            Err(error) => model.with_template_of_file(Err(error.into())),
        })
    }

    fn with_template_of_file(mut self, template: Result<ChatTemplate, Error>) -> Self {
        match template {
            Ok(template) => self.chat_template = Some(template),
            Err(error) => self.chat_template_error = Some(error),
        }
        self
    }

    /// Replaces the chat template of the file.
    ///
    /// # Errors
    ///
    /// If `source` is not a template.
    pub fn with_chat_template(mut self, source: &str) -> Result<Self, Error> {
        self.chat_template = Some(self.parse_template(source)?);
        self.chat_template_error = None;
        Ok(self)
    }

    /// Gives variables to the chat template, if there is one, for all its renderings. See
    /// [`ChatTemplate::with_variables`].
    #[must_use]
    pub fn with_template_variables(
        mut self,
        variables: BTreeMap<String, serde_json::Value>,
    ) -> Self {
        self.chat_template = self.chat_template.map(|template| template.with_variables(variables));
        self
    }

    /// Loads adapters (LoRA) with the model, each with its scale for sequences that state none.
    /// They replace those of an earlier call. Every sequence of a batch may have other scales.
    ///
    /// # Errors
    ///
    /// If an adapter does not fit the model, or a scale is not finite.
    pub fn with_adapters(mut self, adapters: Vec<(Adapter, f32)>) -> Result<Self, Error> {
        let (adapters, scales): (Vec<_>, Vec<_>) = adapters.into_iter().unzip();
        let scales = AdapterScales::new(&scales);
        scales.check(adapters.len())?;
        let set = AdapterSet::new(adapters, &self.gguf).map_err(rf_model::Error::from)?;
        self.adapters = set.with_control_vectors_of(&self.adapters);
        self.adapter_scales = scales;
        Ok(self)
    }

    /// Adds control vectors, each with its scale, to the outputs of these layers, counted from 0,
    /// for all sequences. They replace those of an earlier call.
    ///
    /// # Errors
    ///
    /// If a vector has another width than the model.
    pub fn with_control_vectors(
        mut self,
        vectors: &[(ControlVector, f32)],
        layers: &RangeInclusive<usize>,
    ) -> Result<Self, Error> {
        let adapters = self.adapters.with_control_vectors(vectors, layers, self.config.hidden_size);
        self.adapters = adapters.map_err(rf_model::Error::from)?;
        Ok(self)
    }

    fn parse_template(&self, source: &str) -> Result<ChatTemplate, Error> {
        Ok(ChatTemplate::of_tokenizer(source, &self.tokenizer)?)
    }

    /// The container.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// Hyper-parameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The tokenizer, which grammars share.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The chat template, if there is one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat_template.as_ref()
    }

    /// Why the file's chat template is not used: it is malformed.
    pub fn chat_template_error(&self) -> Option<&Error> {
        self.chat_template_error.as_ref()
    }

    /// The adapters that are loaded with the model.
    pub fn adapters(&self) -> &[Adapter] {
        self.adapters.adapters()
    }

    /// The adapters as an input of the program.
    pub(crate) fn adapter_set(&self) -> &AdapterSet {
        &self.adapters
    }

    /// The scales of sequences that have none of their own.
    pub fn adapter_scales(&self) -> &AdapterScales {
        &self.adapter_scales
    }

    /// The tokens whose text contains one of `texts`, ascending.
    pub fn tokens_containing<S: AsRef<str>>(&self, texts: &[S]) -> Vec<u32> {
        let contains = |id: &u32| {
            let piece = self.tokenizer.piece(*id).unwrap_or_default();
            let piece = String::from_utf8_lossy(&piece);
            texts.iter().any(|text| piece.contains(text.as_ref()))
        };
        (0..self.tokenizer.vocab_size()).filter(contains).collect()
    }

    /// Checks that `draft` has the same tokens, so that it can draft tokens of this model.
    ///
    /// # Errors
    ///
    /// [`Error::DraftVocabulary`] with the first token that differs.
    pub fn check_draft_vocabulary(&self, draft: &Self) -> Result<(), Error> {
        let sizes = [self, draft].map(|model| model.tokenizer.vocab_size());
        let differs = |id: &u32| self.tokenizer.token(*id) != draft.tokenizer.token(*id);
        let first = (0..sizes[0].max(sizes[1])).find(differs).map(|id| id as usize);
        let rows = [self, draft].map(|model| model.config.vocab_size);
        let first = first.or((rows[0] != rows[1]).then_some(rows[0].min(rows[1])));
        first.map_or(Ok(()), |id| Err(Error::DraftVocabulary { id }))
    }

    /// Computes the memory that [`Engine::load`](crate::Engine::load) takes on a backend.
    ///
    /// # Errors
    ///
    /// If an option is invalid, tensors are missing, or the backend does not support the model.
    pub fn memory_need(
        &self,
        backend: &dyn Backend,
        options: &EngineOptions,
    ) -> Result<MemoryNeed, Error> {
        Ok(backend.memory_need(&self.program(options)?.fused_for(backend))?)
    }

    /// Bytes of the KV cache of one token in all layers. Layers with a window keep fewer tokens
    /// than the others.
    pub fn kv_bytes_per_token(&self, kv_type: KvType) -> usize {
        KvLayout::new(self.config.kv_layers(), 1, 0, kv_type).bytes_per_token(PageGroup::Full)
    }

    /// Bytes of the expert matrices in the file: the weights that a backend need not hold if
    /// another one runs the experts. 0 for a model without experts.
    ///
    /// # Errors
    ///
    /// If an option is invalid or tensors are missing.
    pub fn expert_weight_bytes(&self, options: &EngineOptions) -> Result<u64, Error> {
        let Program { graph, weights, .. } = self.program(options)?;
        let projections = graph.ops().iter().flat_map(|op| match op {
            Op::ExpertMatMul(m) => m.projections.as_slice(),
            _ => &[],
        });
        let ids = projections.flat_map(|projection| &projection.weights);
        Ok(ids.map(|id| weights[id.index()].size_bytes() as u64).sum())
    }

    /// Tokens per sequence with these options.
    pub fn context_tokens(&self, options: &EngineOptions) -> usize {
        let most = self.config.max_context_length.unwrap_or(usize::MAX);
        let trained = self.config.context_length.min(most);
        let default = trained.min(EngineOptions::DEFAULT_CONTEXT_TOKENS);
        options.context_tokens.unwrap_or(default)
    }

    /// Tokens per batch with these options: room for the whole context where attention is not
    /// causal, because such a text cannot be computed in parts.
    pub fn batch_tokens(&self, options: &EngineOptions) -> usize {
        if self.config.is_causal() {
            options.batch_tokens
        } else {
            options.batch_tokens.max(self.context_tokens(options))
        }
    }

    /// The program of the model before fusion.
    ///
    /// # Errors
    ///
    /// If an option is invalid or tensors are missing.
    pub fn program(&self, options: &EngineOptions) -> Result<Program, Error> {
        let context_tokens = self.context_tokens(options);
        let kv = full_layout(&self.config, context_tokens, options)?;
        let head = match options.pooling {
            None if options.mtp => Head::LogitsAndMtp,
            None => Head::Logits,
            Some(Pooling::Rank) => Head::Scores,
            Some(Pooling::Mean | Pooling::Cls | Pooling::Last) => Head::State,
        };
        let (config, adapters) = (&self.config, &self.adapters);
        let built =
            rf_model::build_with_adapters(&self.gguf, config, adapters, context_tokens, head);
        let (graph, weights) = built?;
        let batch_tokens = self.batch_tokens(options);
        let kv = with_windows(kv, &graph, options.sequences, batch_tokens)?;
        let (max_batch_tokens, max_output_rows) = (batch_tokens, batch_tokens);
        Ok(Program { graph, weights, kv, max_batch_tokens, max_output_rows })
    }
}
