//! The times of one request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The times of a request, from when it was due.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestTimes {
    /// Time to the first token in seconds.
    pub first_token_s: f64,
    /// Times between the events of the stream in seconds.
    pub gaps_s: Vec<f64>,
    /// Time to the end of the answer in seconds.
    pub total_s: f64,
    /// Tokens of the prompt, as the server counted them.
    pub prompt_tokens: usize,
    /// Tokens of the answer, as the server counted them.
    pub generated_tokens: usize,
    /// Tokens of the prompt that the server found in its cache, where it says so.
    pub cached_tokens: Option<usize>,
}

/// The `usage` of an answer.
#[derive(Deserialize)]
pub(super) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<usize>,
}

impl RequestTimes {
    /// The times of a request whose events arrived at `events` and whose answer ended at `total`,
    /// both from when it was due.
    pub(super) fn new(events: &[Duration], total: Duration, usage: Usage) -> Self {
        let seconds = |time: &Duration| time.as_secs_f64();
        Self {
            first_token_s: events.first().map_or(total, Clone::clone).as_secs_f64(),
            gaps_s: events.windows(2).map(|pair| seconds(&pair[1]) - seconds(&pair[0])).collect(),
            total_s: total.as_secs_f64(),
            prompt_tokens: usage.prompt_tokens,
            generated_tokens: usage.completion_tokens,
            cached_tokens: usage.prompt_tokens_details.and_then(|details| details.cached_tokens),
        }
    }
}
