//! Token counts and times of a generation.

use std::time::Duration;

/// Token counts and times of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Computed tokens of the prompt.
    pub prompt_tokens: usize,
    /// Cached tokens of the prompt.
    pub cached_tokens: usize,
    /// Time in the queue: from the call, or the arrival at a scheduler, to the first batch.
    pub queue_us: u64,
    /// Time of prefill: from the first batch to the candidates for the first token.
    pub prompt_us: u64,
    /// Generated tokens.
    pub generated_tokens: usize,
    /// Tokens that were drafted, with speculative decoding.
    pub drafted_tokens: usize,
    /// Drafted tokens that were generated.
    pub accepted_tokens: usize,
    /// Time from the first generated token to the last.
    pub decode_us: u64,
    /// Time to first token (TTFT): from the call, or the arrival at a scheduler, to the first
    /// generated token.
    pub ttft_us: u64,
    /// How often a scheduler preempted the generation.
    pub preemptions: usize,
}

impl Timings {
    /// Adds the time of prompt tokens that were computed before the generation
    /// ([`Engine::prefill`](crate::Engine::prefill)).
    pub fn add_prefill(&mut self, tokens: usize, time: Duration) {
        self.prompt_tokens += tokens;
        self.cached_tokens = self.cached_tokens.saturating_sub(tokens);
        self.prompt_us += micros(time);
        self.ttft_us += micros(time);
    }

    /// Throughput of prefill, if any token was computed.
    pub fn prompt_tokens_per_second(&self) -> Option<f64> {
        per_second(self.prompt_tokens, self.prompt_us)
    }

    /// Throughput of decode. Prefill produces the first token, so this needs at least two.
    pub fn decode_tokens_per_second(&self) -> Option<f64> {
        per_second(self.generated_tokens.saturating_sub(1), self.decode_us)
    }

    /// The share of drafted tokens that were generated, if any token was drafted.
    pub fn acceptance(&self) -> Option<f64> {
        let drafted = self.drafted_tokens;
        (drafted > 0).then(|| self.accepted_tokens as f64 / drafted as f64)
    }
}

fn per_second(tokens: usize, us: u64) -> Option<f64> {
    (tokens > 0 && us > 0).then(|| tokens as f64 * 1e6 / us as f64)
}

/// A duration in microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
