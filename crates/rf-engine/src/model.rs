//! A parsed model file, whose weights are not loaded.

use std::path::Path;
use std::sync::Arc;

use rf_gguf::Gguf;
use rf_graph::{Backend, KvLayout, MemoryNeed, Op, Program, fuse};
use rf_kv::PageSize;
use rf_model::{Head, ModelConfig, Pooling};
use rf_tokenizer::{ChatTemplate, Tokenizer};

use crate::error::Error;
use crate::options::EngineOptions;
use crate::vocabulary::tokenizer_from_gguf;

/// A model file: configuration, tokenizer and chat template.
#[derive(Debug)]
pub struct Model {
    gguf: Gguf,
    config: ModelConfig,
    tokenizer: Arc<Tokenizer>,
    chat_template: Option<ChatTemplate>,
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
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token(id)).unwrap_or_default();
        let chat_template = tokenizer
            .chat_template()
            .map(|source| ChatTemplate::new(source, text(tokenizer.bos()), text(tokenizer.eos())))
            .transpose()?;
        Ok(Self { gguf, config, tokenizer: Arc::new(tokenizer), chat_template })
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

    /// The chat template, if the file has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat_template.as_ref()
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
        Ok(backend.memory_need(&fused(self.program(options)?, backend))?)
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
        Ok(ids.map(|id| weights[id.index()].bytes().len() as u64).sum())
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

    /// The program before fusion.
    pub(crate) fn program(&self, options: &EngineOptions) -> Result<Program, Error> {
        let kv = self.kv_layout(options)?;
        let head = match options.pooling {
            None => Head::Logits,
            Some(Pooling::Rank) => Head::Scores,
            Some(Pooling::Mean | Pooling::Cls | Pooling::Last) => Head::State,
        };
        let context_tokens = self.context_tokens(options);
        let (graph, weights) = rf_model::build(&self.gguf, &self.config, context_tokens, head)?;
        let batch_tokens = self.batch_tokens(options);
        let (max_batch_tokens, max_output_rows) = (batch_tokens, batch_tokens);
        Ok(Program { graph, weights, kv, max_batch_tokens, max_output_rows })
    }

    fn kv_layout(&self, options: &EngineOptions) -> Result<KvLayout, Error> {
        let page_size = PageSize::try_from(options.page_tokens)?;
        let context_tokens = self.context_tokens(options);
        let kv_tokens = options.kv_tokens.unwrap_or(context_tokens);
        for (name, value) in [
            ("context size", context_tokens),
            ("batch size", options.batch_tokens),
            ("size of the KV cache", kv_tokens),
        ] {
            if value == 0 {
                return Err(Error::InvalidOption { name, value, reason: "it must be at least 1" });
            }
        }
        if let Some(most) = self.config.max_context_length
            && context_tokens > most
        {
            return Err(Error::ContextTooLong { context_tokens, most });
        }
        let num_pages = page_size.pages_for(kv_tokens);
        if u32::try_from(num_pages).is_err() {
            return Err(Error::InvalidOption {
                name: "size of the KV cache",
                value: kv_tokens,
                reason: "no cache could be that large",
            });
        }
        Ok(KvLayout {
            layers: self.config.kv_layers(),
            page_tokens: page_size.tokens(),
            num_pages,
            dtype: options.kv_type,
        })
    }
}

/// A program with the fused ops that a backend supports.
pub(crate) fn fused(program: Program, backend: &dyn Backend) -> Program {
    Program { graph: fuse(program.graph, backend.fusions()), ..program }
}
