//! A model file, understood but not loaded.

use std::path::Path;

use rf_gguf::Gguf;
use rf_graph::{KvLayout, Plan, Program};
use rf_kv::PageSize;
use rf_model::ModelConfig;
use rf_tokenizer::{ChatTemplate, Tokenizer};

use crate::engine::EngineOptions;
use crate::error::Error;
use crate::vocabulary::tokenizer_from_gguf;

/// A model file: configuration, tokenizer and chat template.
#[derive(Debug)]
pub struct Model {
    gguf: Gguf,
    config: ModelConfig,
    tokenizer: Tokenizer,
    chat_template: Option<ChatTemplate>,
}

/// Memory that a model will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// All tensors.
    pub weights_bytes: u64,
    /// The KV cache of all sequences at full length.
    pub kv_bytes: u64,
    /// Activations of the largest batch.
    pub buffers_bytes: u64,
    /// Tokens per sequence.
    pub context_tokens: usize,
}

impl MemoryPlan {
    /// The sum.
    pub fn total_bytes(&self) -> u64 {
        self.weights_bytes.saturating_add(self.kv_bytes).saturating_add(self.buffers_bytes)
    }
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

    /// Reads configuration, tokenizer and template of an open file.
    ///
    /// # Errors
    ///
    /// If it holds a model that is not supported.
    pub fn from_gguf(gguf: Gguf) -> Result<Self, Error> {
        let config = ModelConfig::from_gguf(&gguf)?;
        gguf.check_types()?;
        let tokenizer = tokenizer_from_gguf(&gguf)?;
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token(id)).unwrap_or_default();
        let chat_template = tokenizer
            .chat_template()
            .map(|source| ChatTemplate::new(source, text(tokenizer.bos()), text(tokenizer.eos())))
            .transpose()?;
        Ok(Self { gguf, config, tokenizer, chat_template })
    }

    /// The container.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// Hyper-parameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Text to ids and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The template of conversations, if the file has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat_template.as_ref()
    }

    /// Memory that [`Engine::load`](crate::Engine::load) will need with these options.
    ///
    /// # Errors
    ///
    /// If the options make no sense, or tensors are missing.
    pub fn memory_plan(&self, options: &EngineOptions) -> Result<MemoryPlan, Error> {
        let (graph, _) = rf_model::build(&self.gguf, &self.config)?;
        let layout = self.kv_layout(options)?;
        let tensors = self.gguf.tensors();
        let activations = Plan::new(&graph).floats_per_row() * options.batch_tokens * 4;
        Ok(MemoryPlan {
            weights_bytes: tensors.iter().map(|tensor| tensor.size_bytes() as u64).sum(),
            kv_bytes: layout.bytes() as u64,
            buffers_bytes: activations as u64,
            context_tokens: self.context_tokens(options),
        })
    }

    /// The program, unfused.
    pub(crate) fn program(&self, options: &EngineOptions) -> Result<Program, Error> {
        let kv = self.kv_layout(options)?;
        let (graph, weights) = rf_model::build(&self.gguf, &self.config)?;
        let (max_batch_tokens, max_output_rows) = (options.batch_tokens, options.batch_tokens);
        Ok(Program { graph, weights, kv, max_batch_tokens, max_output_rows })
    }

    /// Tokens per sequence with these options.
    pub(crate) fn context_tokens(&self, options: &EngineOptions) -> usize {
        let default = self.config.context_length.min(EngineOptions::DEFAULT_CONTEXT_TOKENS);
        options.context_tokens.unwrap_or(default)
    }

    pub(crate) fn kv_layout(&self, options: &EngineOptions) -> Result<KvLayout, Error> {
        let page_size = PageSize::try_from(options.page_tokens)?;
        let context_tokens = self.context_tokens(options);
        for (name, value) in [
            ("context size", context_tokens),
            ("batch size", options.batch_tokens),
            ("number of sequences", options.max_sequences),
        ] {
            if value == 0 {
                return Err(Error::InvalidOption { name, value, reason: "it must be at least 1" });
            }
        }
        let config = &self.config;
        let num_pages = page_size.pages_for(context_tokens).checked_mul(options.max_sequences);
        let num_pages = num_pages.filter(|pages| u32::try_from(*pages).is_ok()).ok_or(
            Error::InvalidOption {
                name: "context size",
                value: context_tokens,
                reason: "no cache could be that large",
            },
        )?;
        Ok(KvLayout {
            layers: vec![(config.num_kv_heads, config.head_dim); config.num_layers],
            page_tokens: page_size.tokens(),
            num_pages,
            dtype: options.kv_type,
        })
    }
}
