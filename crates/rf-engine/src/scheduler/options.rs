//! Options of a scheduler.

use crate::engine::Engine;
use crate::error::Error;

/// Options of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Sequences that run at the same time; at most one per token of a step.
    pub max_num_seqs: usize,
    /// Tokens per step, at most those of a batch of the engine. More give more throughput, fewer a
    /// shorter time between two tokens of an answer while prompts are computed.
    pub max_batched_tokens: usize,
    /// Requests that wait for their start. More are refused.
    pub max_queued: usize,
    /// True if sequences share the full pages of equal prefixes.
    pub prefix_cache: bool,
}

impl SchedulerOptions {
    /// The options that an engine can use.
    pub(super) fn for_engine(self, engine: &Engine) -> Result<Self, Error> {
        for (name, value) in [
            ("number of sequences", self.max_num_seqs),
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
        Self { max_num_seqs: 64, max_batched_tokens: 2048, max_queued: 4096, prefix_cache: true }
    }
}
