//! Statistics of a scheduler.

use crate::engine::TierStats;
use crate::generation::StopReason;

/// The state of a scheduler after its last step, and its counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerStats {
    /// Running sequences: one per choice of a request.
    pub running: usize,
    /// Requests that have not started, and preempted sequences.
    pub waiting: usize,
    /// Pages of the KV cache.
    pub kv_pages_total: usize,
    /// Pages that sequences hold; without idle pages of the prefix cache.
    pub kv_pages_used: usize,
    /// Tokens of prompts looked up in the prefix cache.
    pub prefix_cache_queries: u64,
    /// Tokens of prompts found in the prefix cache.
    pub prefix_cache_hits: u64,
    /// Pages of the prefix cache in host memory.
    pub host: TierStats,
    /// Pages of the prefix cache in a folder.
    pub disk: TierStats,
    /// Preemptions of sequences.
    pub preemptions: u64,
    /// Tokens of the prompts of all requests that have started, cached ones included.
    pub prompt_tokens: u64,
    /// Generated tokens.
    pub generation_tokens: u64,
    /// Steps, that is batches.
    pub steps: u64,
    /// Tokens computed in all steps, those that were computed again included.
    pub step_tokens: u64,
    /// Steps by their number of tokens: element `i` counts those with at most
    /// [`STEP_TOKEN_BOUNDS[i]`](Self::STEP_TOKEN_BOUNDS) tokens and more than the bound before, and
    /// the last one those with more.
    pub steps_by_tokens: [u64; NUM_STEP_BOUNDS + 1],
    /// Finished choices by reason.
    pub finished: FinishedCounts,
}

const NUM_STEP_BOUNDS: usize = 13;

impl SchedulerStats {
    /// Upper bounds of the tokens of a step, as vLLM has them.
    pub const STEP_TOKEN_BOUNDS: [usize; NUM_STEP_BOUNDS] =
        [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

    /// Counts a step.
    pub(super) fn count_step(&mut self, tokens: usize) {
        self.steps += 1;
        self.step_tokens += tokens as u64;
        self.steps_by_tokens[Self::STEP_TOKEN_BOUNDS.partition_point(|bound| *bound < tokens)] += 1;
    }
}

/// Finished choices by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishedCounts {
    /// [`StopReason::Eog`].
    pub eog: u64,
    /// [`StopReason::Length`].
    pub length: u64,
    /// [`StopReason::StopString`].
    pub stop_string: u64,
    /// [`StopReason::ContextFull`].
    pub context_full: u64,
    /// [`StopReason::Constraint`].
    pub constraint: u64,
    /// [`StopReason::ConstraintLimit`].
    pub constraint_limit: u64,
    /// [`StopReason::Cancelled`], also by a sink.
    pub cancelled: u64,
    /// Choices of requests that failed.
    pub failed: u64,
}

impl FinishedCounts {
    pub(super) fn count(&mut self, reason: StopReason) {
        *match reason {
            StopReason::Eog => &mut self.eog,
            StopReason::Length => &mut self.length,
            StopReason::StopString => &mut self.stop_string,
            StopReason::ContextFull => &mut self.context_full,
            StopReason::Constraint => &mut self.constraint,
            StopReason::ConstraintLimit => &mut self.constraint_limit,
            StopReason::Cancelled => &mut self.cancelled,
        } += 1;
    }
}
