//! The objects of an answer: one for each line of a stream.

use chrono::{SecondsFormat, Utc};
use rocmforge::messages::{Answer, AnswerCall};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::arguments_object;
use crate::api::logprobs::{ScoredToken, WithAlternatives};

/// True if the text is the content of a message, or stands alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LineForm {
    Chat,
    Text,
}

/// An object with a part of an answer, or with all of it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Line {
    pub(super) model: String,
    pub(super) created_at: String,
    #[serde(flatten)]
    pub(super) content: LineContent,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<Vec<WithAlternatives<LineToken>>>,
    pub(super) done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) done_reason: Option<&'static str>,
    #[serde(flatten)]
    pub(super) totals: Option<Totals>,
}

/// A token with its log probability.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OllamaToken")]
pub(super) struct LineToken {
    token: String,
    logprob: f64,
    bytes: Vec<u8>,
}

impl From<ScoredToken> for LineToken {
    fn from(ScoredToken { text, bytes, logprob, .. }: ScoredToken) -> Self {
        Self { token: text, logprob, bytes }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum LineContent {
    Chat {
        message: LineMessage,
    },
    Text {
        response: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking: Option<String>,
    },
}

#[derive(Serialize, JsonSchema)]
pub(super) struct LineMessage {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<LineCall>>,
}

#[derive(Serialize, JsonSchema)]
struct LineCall {
    id: String,
    function: LineFunction,
}

/// Arguments are an object here, not text.
#[derive(Serialize, JsonSchema)]
struct LineFunction {
    name: String,
    #[schemars(with = "Value")]
    arguments: Box<RawValue>,
}

/// Counts, and times in nanoseconds.
#[derive(Serialize, JsonSchema)]
pub(super) struct Totals {
    pub(super) total_duration: u64,
    pub(super) load_duration: u64,
    pub(super) prompt_eval_count: usize,
    pub(super) prompt_eval_duration: u64,
    pub(super) eval_count: usize,
    pub(super) eval_duration: u64,
}

impl From<AnswerCall> for LineCall {
    fn from(AnswerCall { id, name, arguments, .. }: AnswerCall) -> Self {
        let arguments = arguments_object(&arguments);
        Self { id, function: LineFunction { name, arguments } }
    }
}

/// An object with a part of an answer.
pub(super) fn line(
    model: &str,
    form: LineForm,
    Answer { content, reasoning, calls }: Answer,
) -> Line {
    let thinking = (!reasoning.is_empty()).then_some(reasoning);
    let content = match form {
        LineForm::Text => LineContent::Text { response: content, thinking },
        LineForm::Chat => LineContent::Chat {
            message: LineMessage {
                role: "assistant",
                content,
                thinking,
                tool_calls: (!calls.is_empty())
                    .then(|| calls.into_iter().map(LineCall::from).collect()),
            },
        },
    };
    Line {
        model: model.to_owned(),
        created_at: timestamp(),
        content,
        logprobs: None,
        done: false,
        done_reason: None,
        totals: None,
    }
}

/// The time now, as Ollama writes it.
fn timestamp() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Nanos, true)
}
