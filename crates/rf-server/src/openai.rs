//! The API of `OpenAI`, with the fields that llama.cpp and vLLM add.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod responses;

use rocmforge::engine::Tokenizer;
use rocmforge::engine::{StopReason, Timings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::generation::{TokenLogprob, Usage};

/// Options of a stream.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    include_usage: Option<bool>,
}

/// `stop`, `length` or `tool_calls`.
pub(crate) fn finish_reason(reason: StopReason, calls_tools: bool) -> &'static str {
    match reason {
        StopReason::Length | StopReason::ContextFull | StopReason::ConstraintLimit => "length",
        _ if calls_tools => "tool_calls",
        _ => "stop",
    }
}

/// Counts of tokens.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct UsageJson {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct CompletionDetails {
    reasoning_tokens: usize,
}

impl From<Usage> for UsageJson {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_tokens: usage.prompt_tokens + usage.completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: usage.cached_tokens },
            completion_tokens_details: CompletionDetails {
                reasoning_tokens: usage.reasoning_tokens,
            },
        }
    }
}

/// Times with the names of llama.cpp, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
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

/// The text of a token, which need not be whole characters.
pub(crate) fn piece(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    tokenizer.piece(id).unwrap_or_default()
}

/// Log probabilities as JSON has no infinity.
pub(crate) fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

/// The tokens of a message with their log probabilities.
pub(crate) fn chat_logprobs(tokenizer: &Tokenizer, logprobs: &[TokenLogprob]) -> Value {
    let token = |id: u32, logprob: f32| {
        let bytes = piece(tokenizer, id);
        let text = String::from_utf8_lossy(&bytes);
        json!({ "id": id, "token": text, "logprob": finite(logprob), "bytes": bytes })
    };
    let entry = |found: &TokenLogprob| {
        let mut entry = token(found.id, found.logprob);
        let top: Vec<_> = found.top.iter().map(|&(id, logprob)| token(id, logprob)).collect();
        entry["top_logprobs"] = Value::from(top);
        entry
    };
    json!({ "content": logprobs.iter().map(entry).collect::<Vec<_>>() })
}

/// Reads whether the last chunk of a stream has the usage.
fn includes_usage(options: Option<StreamOptions>) -> bool {
    options.and_then(|options| options.include_usage).unwrap_or(false)
}

/// The end of a stream that failed: clients raise the error of such a chunk.
pub(crate) fn fail(error: &ApiError, out: &mut crate::stream::Frames) {
    out.json(&error.body(crate::error::Api::OpenAi));
    out.done();
}

/// The version of the server, as clients use it to tell servers apart.
pub(crate) const FINGERPRINT: &str = concat!("rocmforge-", env!("CARGO_PKG_VERSION"));
