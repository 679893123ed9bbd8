//! Options of loading.

use rf_graph::KvType;
use rf_model::Pooling;

use crate::setters::const_setters;

/// Options of loading a model. Start with [`EngineOptions::DEFAULT`], change fields by the `with_`
/// methods, which constants may use too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Tokens per sequence. The default is the context of the model, at most
    /// [`DEFAULT_CONTEXT_TOKENS`](Self::DEFAULT_CONTEXT_TOKENS).
    pub context_tokens: Option<usize>,
    /// Tokens per batch. Longer prompts are computed in chunks, unless attention is not causal:
    /// then a batch has room for the whole context.
    pub batch_tokens: usize,
    /// Tokens per page of the KV cache: 16, 32 or 64.
    pub page_tokens: usize,
    /// Storage format of the KV cache.
    pub kv_type: KvType,
    /// Tokens of the KV cache, which all sequences share; rounded up to whole pages. The default is
    /// the context: one sequence of full length. With fewer tokens than the context, a sequence
    /// cannot reach its full length.
    pub kv_tokens: Option<usize>,
    /// Sequences that are computed at the same time. Layers with a sliding window have room for
    /// this many of any length: each takes little more than its window. Recurrent layers have this
    /// many states. Other layers share [`kv_tokens`](Self::kv_tokens).
    pub sequences: usize,
    /// Recurrent states that the prefix cache keeps in addition to those of the sequences. A prompt
    /// that begins like an earlier one is then not computed from its start. They take memory only
    /// in models with recurrent layers.
    pub checkpoints: usize,
    /// Bytes of host memory for pages and recurrent states that the prefix cache evicts from the
    /// memory of the device. The least recently used ones make room. A prompt that begins with such
    /// pages copies them back. No memory is held before an eviction.
    pub host_cache_bytes: u64,
    /// True to copy pages back to the device even if computing them would take less time: so that
    /// tests do not depend on time.
    pub always_reads_back: bool,
    /// True to keep room for the recurrent states of one sequence before a draft, as
    /// [`Speculation`](crate::Speculation) needs it. It takes memory only in models with recurrent
    /// layers.
    pub speculates: bool,
    /// True to load the model's block for further tokens (MTP), with its weights and its layer of
    /// the KV cache. It drafts for [`Speculation::mtp`](crate::Speculation::mtp). Every batch
    /// computes the block too.
    pub mtp: bool,
    /// Embed texts with this pooling, or score them with [`Pooling::Rank`], instead of generation.
    pub pooling: Option<Pooling>,
}

impl EngineOptions {
    /// The largest default context, so that a model made for 128k tokens runs on a small machine.
    pub const DEFAULT_CONTEXT_TOKENS: usize = 4096;

    /// The default options, as a constant.
    pub const DEFAULT: Self = Self {
        context_tokens: None,
        batch_tokens: 512,
        page_tokens: 32,
        kv_type: KvType::F16,
        kv_tokens: None,
        sequences: 1,
        checkpoints: 0,
        host_cache_bytes: 0,
        always_reads_back: false,
        speculates: false,
        mtp: false,
        pooling: None,
    };

    const_setters! {
        with_context_tokens(context_tokens: Option<usize>);
        with_batch_tokens(batch_tokens: usize);
        with_page_tokens(page_tokens: usize);
        with_kv_type(kv_type: KvType);
        with_kv_tokens(kv_tokens: Option<usize>);
        with_sequences(sequences: usize);
        with_checkpoints(checkpoints: usize);
        with_host_cache_bytes(host_cache_bytes: u64);
        with_always_reads_back(always_reads_back: bool);
        with_speculates(speculates: bool);
        with_mtp(mtp: bool);
        with_pooling(pooling: Option<Pooling>);
    }

    /// Returns true if the MTP block is loaded: engines that embed do not draft.
    pub(crate) fn has_mtp(&self) -> bool {
        self.mtp && self.pooling.is_none()
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}
