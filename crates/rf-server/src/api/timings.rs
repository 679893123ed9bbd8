//! The times of a request.

use rocmforge::engine::Timings;
use schemars::JsonSchema;
use serde::Serialize;

/// Times with the names of llama.cpp, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Timings")]
pub(crate) struct TimingsJson {
    cache_n: usize,
    prompt_n: usize,
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    predicted_n: usize,
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
}

impl From<&Timings> for TimingsJson {
    fn from(timings: &Timings) -> Self {
        let ms = |us: u64| us as f64 / 1e3;
        let per_token = |us: u64, tokens: usize| ms(us) / tokens.max(1) as f64;
        // The first token is a result of the prompt, so it takes no time of its own.
        let decoded = timings.generated_tokens.saturating_sub(1);
        Self {
            cache_n: timings.cached_tokens,
            prompt_n: timings.prompt_tokens,
            prompt_ms: ms(timings.prompt_us),
            prompt_per_token_ms: per_token(timings.prompt_us, timings.prompt_tokens),
            prompt_per_second: timings.prompt_tokens_per_second().unwrap_or(0.0),
            predicted_n: timings.generated_tokens,
            predicted_ms: ms(timings.decode_us),
            predicted_per_token_ms: per_token(timings.decode_us, decoded),
            predicted_per_second: timings.decode_tokens_per_second().unwrap_or(0.0),
        }
    }
}
