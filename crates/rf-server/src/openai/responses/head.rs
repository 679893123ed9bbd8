//! The states of a response.

use std::sync::Arc;

use rocmforge::engine::StopReason;
use schemars::JsonSchema;
use serde::Serialize;

use super::input::push;
use super::items::Item;
use super::settings::ResponseSettings;
use super::store::{Owner, StoredItem, StoredResponse};
use super::tools::OfferedTools;
use crate::api::is_cut_off;
use crate::attachments::IllustratedMessages;
use crate::error::ApiError;
use crate::generation::Usage;
use crate::request_id::unique;
use crate::state::{App, ServedModel, now};

/// A response in one of its states.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Response")]
pub(crate) struct ResponseJson<'a> {
    id: &'a str,
    object: &'static str,
    created_at: u64,
    completed_at: Option<u64>,
    status: &'static str,
    error: Option<FailureJson>,
    incomplete_details: Option<IncompleteDetails>,
    model: &'a str,
    output: Vec<Item>,
    usage: Option<ResponseUsage>,
    #[serde(flatten)]
    settings: &'a ResponseSettings,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResponseFailure")]
struct FailureJson {
    code: &'static str,
    message: String,
}

#[derive(Serialize, JsonSchema)]
struct IncompleteDetails {
    reason: &'static str,
}

/// Counts of tokens.
#[derive(Serialize, JsonSchema)]
struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: InputDetails,
    output_tokens: usize,
    output_tokens_details: OutputDetails,
    total_tokens: usize,
}

#[derive(Serialize, JsonSchema)]
struct InputDetails {
    cached_tokens: usize,
}

#[derive(Serialize, JsonSchema)]
struct OutputDetails {
    reasoning_tokens: usize,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails { cached_tokens: usage.cached_tokens },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: usage.reasoning_tokens },
            total_tokens: usage.prompt_tokens + usage.completion_tokens,
        }
    }
}

/// The fields that all states of a response share.
pub(super) struct Head {
    id: String,
    created: u64,
    model: String,
    settings: ResponseSettings,
    tools: OfferedTools,
    record: Option<ResponseRecord>,
}

/// Where a response is stored, and the conversation that it ends.
pub(super) struct ResponseRecord {
    pub(super) app: Arc<App>,
    pub(super) owner: Owner,
    pub(super) conversation: IllustratedMessages,
}

impl Head {
    pub(super) fn new(model: &ServedModel, settings: ResponseSettings) -> Self {
        Self {
            id: unique("resp_"),
            created: now(),
            model: model.id().to_owned(),
            settings,
            tools: OfferedTools::default(),
            record: None,
        }
    }

    /// Sets the tools that the answer may call.
    pub(super) fn with_tools(self, tools: OfferedTools) -> Self {
        Self { tools, ..self }
    }

    /// Stores the response at its end.
    pub(super) fn with_record(self, record: Option<ResponseRecord>) -> Self {
        Self { record, ..self }
    }

    pub(super) fn tools(&self) -> &OfferedTools {
        &self.tools
    }

    /// The response before its end.
    pub(super) fn begun(&self) -> ResponseJson<'_> {
        ResponseJson {
            id: &self.id,
            object: "response",
            created_at: self.created,
            completed_at: None,
            status: "in_progress",
            error: None,
            incomplete_details: None,
            model: &self.model,
            output: Vec::new(),
            usage: None,
            settings: &self.settings,
        }
    }

    /// The response at its end, which is stored from now on.
    pub(super) fn ended(
        &self,
        output: Vec<Item>,
        reason: StopReason,
        usage: Usage,
    ) -> ResponseJson<'_> {
        let cut_off = is_cut_off(reason);
        let response = ResponseJson {
            status: if cut_off { "incomplete" } else { "completed" },
            completed_at: (!cut_off).then(now),
            incomplete_details: cut_off
                .then_some(IncompleteDetails { reason: "max_output_tokens" }),
            output,
            usage: Some(usage.into()),
            ..self.begun()
        };
        if let Some(ResponseRecord { app, owner, conversation }) = &self.record {
            let mut conversation = conversation.clone();
            let answer = response.output.iter().cloned().filter_map(Item::into_message);
            answer.for_each(|message| push(&mut conversation.messages, message));
            let stored = |item: &Item| StoredItem {
                id: item.id().to_owned(),
                message: item.clone().into_message(),
            };
            app.responses().insert(StoredResponse {
                id: self.id.clone(),
                owner: *owner,
                conversation,
                items: response.output.iter().map(stored).collect(),
                // Serialisation of our own types fails only for maps whose keys are no strings.
                json: serde_json::to_string(&response).unwrap_or_default(),
            });
        }
        response
    }

    /// The response that ended with an error.
    pub(super) fn failed(&self, error: &ApiError) -> ResponseJson<'_> {
        let error = FailureJson { code: "server_error", message: error.message.clone() };
        ResponseJson { status: "failed", error: Some(error), ..self.begun() }
    }
}
