//! The API of `OpenAI`, with the fields that llama.cpp and vLLM add.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod models;
pub(crate) mod render;
pub(crate) mod responses;
pub(crate) mod transcriptions;

use rocmforge::engine::StopReason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::is_cut_off;
use crate::api::timings::TimingsJson;
use crate::error::{Api, ApiError};
use crate::generation::Usage;
use crate::stream::Frames;

/// Options of a stream.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct StreamOptions {
    include_usage: Option<bool>,
}

/// A whole completion, or a chunk of a stream. `C` is the form of its choices.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CompletionOf{C}")]
pub(crate) struct Completion<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'static str,
    choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<TimingsJson>,
}

/// `stop`, `length` or `tool_calls`.
fn finish_reason(reason: StopReason, calls_tools: bool) -> &'static str {
    match reason {
        reason if is_cut_off(reason) => "length",
        _ if calls_tools => "tool_calls",
        _ => "stop",
    }
}

/// Counts of tokens.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Usage")]
struct UsageJson {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct PromptDetails {
    cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
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

/// Reads whether the last chunk of a stream has the usage.
fn includes_usage(options: Option<StreamOptions>) -> bool {
    options.and_then(|options| options.include_usage).unwrap_or(false)
}

/// The end of a stream that failed: clients raise the error of such a chunk.
fn fail(error: &ApiError, out: &mut Frames) {
    out.json(&error.body(Api::OpenAi));
    out.done();
}
