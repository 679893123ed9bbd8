//! The fields of a request.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::input::InputItem;
use crate::fields::TextOr;

/// The fields of a request, besides those of sampling.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ResponsesFields {
    pub(super) model: Option<String>,
    pub(super) input: Option<TextOr<InputItem>>,
    pub(super) instructions: Option<String>,
    /// The response whose conversation this one continues.
    pub(super) previous_response_id: Option<String>,
    /// False if later requests do not refer to the response.
    pub(super) store: Option<bool>,
    pub(super) stream: Option<bool>,
    pub(super) tools: Option<Vec<Value>>,
    pub(super) tool_choice: Option<Value>,
    pub(super) reasoning: Option<Reasoning>,
}

/// The reasoning that a request asks for.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Reasoning {
    pub(super) effort: Option<String>,
    pub(super) summary: Option<String>,
}
