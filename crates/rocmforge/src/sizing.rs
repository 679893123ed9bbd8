//! The sizing policy: how much memory a model takes besides its weights. Only this module computes
//! [`EngineOptions`].

use rf_device::Placement;
use rf_engine::scheduler::SchedulerOptions;
use rf_engine::{EngineOptions, Model, Pooling};
use rf_graph::KvType;

use crate::error::Error;

/// The use of a model, which determines the contents of the memory besides the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Texts that do not continue each other, one at a time or a known number of
    /// [sequences](crate::Loader::sequences). The KV cache has one context for each.
    Texts,
    /// One conversation, which may return to earlier turns. The states of these turns are kept.
    Chat,
    /// Many requests at a time. The KV cache takes the remaining memory, prompts that begin
    /// alike are computed once, and requests share batches.
    Requests,
}

/// The options that decide how much memory the model takes.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) purpose: Purpose,
    pub(crate) context_tokens: Option<usize>,
    pub(crate) batch_tokens: usize,
    pub(crate) kv_type: Option<KvType>,
    pub(crate) kv_tokens: Option<usize>,
    pub(crate) sequences: Option<usize>,
    pub(crate) host_cache_bytes: Option<u64>,
    pub(crate) shares_memory: bool,
    pub(crate) embeds: bool,
    pub(crate) pooling: Option<Pooling>,
    pub(crate) texts: Option<TextSizes>,
}

/// The room that drafts take in the engine that checks them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftRoom {
    /// The states before a draft.
    pub(crate) speculates: bool,
    /// The model's own head, with its layer of the cache.
    pub(crate) mtp: bool,
}

/// Recurrent states of earlier turns that a chat keeps.
const CHAT_CHECKPOINTS: usize = 8;
/// Recurrent states that the prefix cache of many requests keeps.
const MAX_CHECKPOINTS: usize = 64;
/// Contexts that the KV cache has room for if the model shares its memory with others.
const SHARED_CONTEXTS: usize = 4;
/// Tokens per page for embeddings: short texts leave most of a larger page empty.
const TEXT_PAGE_TOKENS: usize = 16;

/// The lengths of texts that are to be embedded.
#[derive(Clone, Debug)]
pub(crate) struct TextSizes {
    lengths_tokens: Vec<usize>,
}

impl TextSizes {
    pub(crate) fn new(lengths_tokens: impl IntoIterator<Item = usize>) -> Self {
        Self { lengths_tokens: lengths_tokens.into_iter().collect() }
    }

    fn longest(&self) -> usize {
        self.lengths_tokens.iter().copied().max().unwrap_or(1)
    }

    /// Tokens of the pages that all texts take together.
    fn in_pages(&self) -> usize {
        self.lengths_tokens.iter().map(|length| length.next_multiple_of(TEXT_PAGE_TOKENS)).sum()
    }

    /// Checks that every text has tokens, and fits into a context of `most` tokens.
    fn check(&self, most: usize) -> Result<(), Error> {
        for (index, &tokens) in self.lengths_tokens.iter().enumerate() {
            match tokens {
                0 => return Err(Error::EmptyText { index }),
                tokens if tokens > most => return Err(Error::TextTooLong { index, tokens, most }),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Sizes {
    /// The options that do not depend on the memory of a device.
    pub(crate) fn options(&self, model: &Model) -> EngineOptions {
        let config = model.config();
        let embeds = self.embeds || !config.generates();
        let longest = self.texts.as_ref().map(TextSizes::longest);
        // A cache of texts lasts for a batch, so its size matters less than its precision.
        let default_kv_type = if self.texts.is_some() { KvType::F32 } else { KvType::F16 };
        let context_tokens = match self.context_tokens {
            Some(0) => Some(config.context_length),
            given => given.or(longest),
        };
        let options = EngineOptions::DEFAULT
            .with_context_tokens(context_tokens)
            .with_batch_tokens(self.batch_tokens)
            .with_kv_type(self.kv_type.unwrap_or(default_kv_type))
            .with_sequences(self.sequences.unwrap_or(1))
            .with_pooling(embeds.then(|| self.pooling.unwrap_or_else(|| config.default_pooling())));
        match self.texts {
            Some(_) => options.with_page_tokens(TEXT_PAGE_TOKENS),
            None => options,
        }
    }

    /// The options of the engine that drafts for `model` with the model `draft`: for one sequence.
    pub(crate) fn draft_options(&self, model: &Model, draft: &Model) -> EngineOptions {
        let options = self.options(model);
        let most = draft.config().max_context_length.unwrap_or(usize::MAX);
        options
            .with_context_tokens(Some(model.context_tokens(&options).min(most)))
            .with_sequences(1)
            .with_speculates(true)
    }

    /// The options of the engine, with room for drafts. Without a placement, no memory is known,
    /// so nothing is larger than it must be.
    pub(crate) fn plan(
        &self,
        model: &Model,
        placement: Option<&Placement>,
        scheduler: &SchedulerOptions,
        drafts: DraftRoom,
    ) -> Result<EngineOptions, Error> {
        let options = self.options(model);
        let context = model.context_tokens(&options);
        if let Some(texts) = &self.texts {
            let most = model.config().max_context_length.map_or(context, |most| context.min(most));
            texts.check(most)?;
            let kv_tokens = context.max(texts.in_pages().min(2 * options.batch_tokens));
            return Ok(options.with_kv_tokens(Some(kv_tokens)));
        }
        let states_that_fit = |most| match placement {
            Some(placement) => placement.states_that_fit(model, most),
            None => Ok(1),
        };
        let (sequences, most_checkpoints) = match self.purpose {
            Purpose::Texts => (options.sequences, 0),
            Purpose::Chat => (options.sequences, CHAT_CHECKPOINTS),
            Purpose::Requests => {
                let most = self.sequences.unwrap_or(scheduler.max_num_seqs);
                (states_that_fit(most)?, if scheduler.prefix_cache { MAX_CHECKPOINTS } else { 0 })
            }
        };
        let checkpoints = match most_checkpoints {
            0 => 0,
            most => states_that_fit(most)?,
        };
        let host_cache_bytes = match (self.host_cache_bytes, placement) {
            _ if most_checkpoints == 0 => 0,
            (Some(bytes), _) => bytes,
            (None, Some(placement)) => placement.host_cache_bytes(model)?,
            (None, None) => 0,
        };
        let options = options
            .with_sequences(sequences)
            .with_checkpoints(checkpoints)
            .with_host_cache_bytes(host_cache_bytes)
            .with_speculates(drafts.speculates)
            .with_mtp(drafts.mtp);
        let kv_tokens = match (self.kv_tokens, self.purpose, placement) {
            (Some(tokens), ..) => tokens,
            // Every sequence has its own pages.
            (None, Purpose::Texts | Purpose::Chat, _) | (None, _, None) => {
                context.next_multiple_of(options.page_tokens.max(1)).saturating_mul(sequences)
            }
            (None, Purpose::Requests, Some(placement)) => {
                if self.shares_memory || options.pooling.is_some() {
                    context.saturating_mul(SHARED_CONTEXTS)
                } else {
                    let most_tokens = context.saturating_mul(scheduler.max_num_seqs);
                    placement.kv_tokens_that_fit(model, &options, most_tokens)?
                }
            }
        };
        Ok(options.with_kv_tokens(Some(kv_tokens)))
    }
}
