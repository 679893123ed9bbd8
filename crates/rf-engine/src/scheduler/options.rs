//! Options of a scheduler.

use crate::engine::Engine;
use crate::error::Error;

/// Options of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerOptions {
    /// Sequences that run at the same time; at most one per token of a step.
    pub max_num_seqs: usize,
    /// Sequences of one request that run at the same time: its choices, and those of its
    /// [group](super::Request::group).
    pub max_seqs_per_request: usize,
    /// Tokens per step, at most those of a batch of the engine. More give more throughput, fewer a
    /// shorter time between two tokens of an answer while prompts are computed.
    pub max_batched_tokens: usize,
    /// Requests that wait for their start. More are refused.
    pub max_queued: usize,
    /// True if sequences share the full pages of equal prefixes.
    pub prefix_cache: bool,
}

impl SchedulerOptions {
    /// The default options.
    pub const DEFAULT: Self = Self {
        max_num_seqs: 64,
        max_seqs_per_request: usize::MAX,
        max_batched_tokens: 2048,
        max_queued: 4096,
        prefix_cache: true,
    };

    /// Sets [`max_num_seqs`](Self::max_num_seqs).
    #[must_use]
    pub const fn with_max_num_seqs(mut self, max_num_seqs: usize) -> Self {
        self.max_num_seqs = max_num_seqs;
        self
    }

    /// Sets [`max_seqs_per_request`](Self::max_seqs_per_request).
    #[must_use]
    pub const fn with_max_seqs_per_request(mut self, max_seqs_per_request: usize) -> Self {
        self.max_seqs_per_request = max_seqs_per_request;
        self
    }

    /// Sets [`max_batched_tokens`](Self::max_batched_tokens).
    #[must_use]
    pub const fn with_max_batched_tokens(mut self, max_batched_tokens: usize) -> Self {
        self.max_batched_tokens = max_batched_tokens;
        self
    }

    /// Sets [`max_queued`](Self::max_queued).
    #[must_use]
    pub const fn with_max_queued(mut self, max_queued: usize) -> Self {
        self.max_queued = max_queued;
        self
    }

    /// Sets [`prefix_cache`](Self::prefix_cache).
    #[must_use]
    pub const fn with_prefix_cache(mut self, prefix_cache: bool) -> Self {
        self.prefix_cache = prefix_cache;
        self
    }

    /// The options that an engine can use.
    pub(super) fn for_engine(self, engine: &Engine) -> Result<Self, Error> {
        for (name, value) in [
            ("number of sequences", self.max_num_seqs),
            ("number of sequences per request", self.max_seqs_per_request),
            ("tokens per step", self.max_batched_tokens),
            ("length of the queue", self.max_queued),
        ] {
            if value == 0 {
                return Err(Error::InvalidOption { name, value, reason: "it must be at least 1" });
            }
        }
        if engine.pooling().is_some() {
            return Err(Error::LoadedToEmbed);
        }
        let max_batched_tokens = self.max_batched_tokens.min(engine.batch_tokens());
        Ok(Self {
            max_batched_tokens,
            // So that every sequence that decodes is in every step.
            max_num_seqs: self.max_num_seqs.min(max_batched_tokens),
            ..self
        })
    }
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}
