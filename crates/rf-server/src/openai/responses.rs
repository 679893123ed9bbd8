//! `POST /v1/responses`, without stored responses: every request has its whole conversation.

mod items;
mod stream;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rf_chat::Conversation;
use rf_engine::StopReason;
use rf_tokenizer::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{RequestId, unique};
use crate::answer::Answer;
use crate::body::Fields;
use crate::error::ApiError;
use crate::fields::TextOr;
use crate::generation::{Generation, Job, Usage};
use crate::grammar::GrammarFields;
use crate::prompt::{beside, chat_prompt, tool_choice, tools};
use crate::sampling::SamplingFields;
use crate::state::{App, ServedModel, now};
use crate::stream::{Framing, response};

/// The fields of a request, besides those of sampling.
#[derive(Debug, Deserialize)]
struct ResponsesFields {
    model: Option<String>,
    input: Option<TextOr<items::InputItem>>,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    stream: Option<bool>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    reasoning: Option<Reasoning>,
}

#[derive(Debug, Deserialize)]
struct Reasoning {
    effort: Option<String>,
}

/// Answers a conversation.
pub(crate) async fn responses(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let request: ResponsesFields = fields.read()?;
    let model = app.model(request.model.as_deref())?;
    let sampling: SamplingFields = fields.read()?;
    let params = sampling.params(model.model(), &app.options().sampling)?;
    if request.previous_response_id.is_some() {
        let message = "responses are not stored: send the whole conversation as `input`";
        return Err(ApiError::field("previous_response_id", message));
    }
    let mut messages: Vec<_> =
        request.instructions.iter().map(|text| Message::new("system", text)).collect();
    messages.extend(match request.input {
        None => return Err(ApiError::field("input", "expected a text or a list of items")),
        Some(TextOr::Text(text)) => vec![Message::new("user", text)],
        Some(TextOr::List(items)) => items::messages(items)?,
    });
    // The others are tools of OpenAI's own servers.
    let is_function = |tool: &Value| tool["type"] == "function";
    let functions = request.tools.map(|tools| tools.into_iter().filter(is_function).collect());
    let conversation = Conversation {
        messages,
        tools: tools(functions)?,
        tool_choice: tool_choice(request.tool_choice.as_ref())?,
        reasoning_effort: request.reasoning.and_then(|reasoning| reasoning.effort),
        ..Conversation::default()
    };
    let prompt = beside(model.model(), move |model| chat_prompt(model, &conversation)).await?;
    let head = Head::new(model, request.instructions, params.options.max_tokens);
    let structure = fields.read::<GrammarFields>()?.structure()?;
    let job = Job::chat(prompt, params, model.model()).with_structure(structure, model).await?;
    let generation = Generation::submit(model, vec![job], request_id)?;
    if request.stream.unwrap_or(false) {
        return Ok(response(generation, stream::Events::new(head), Framing::Events));
    }
    let Answer { mut choices, usage } = Answer::collect(generation).await?;
    let choice = choices.pop().unwrap_or_default();
    let reason = choice.end.map_or(StopReason::Eog, |end| end.reason);
    let body = head.ended(items::output(choice, is_cut_off(reason)), reason, usage);
    Ok(Json(body).into_response())
}

fn is_cut_off(reason: StopReason) -> bool {
    matches!(reason, StopReason::Length | StopReason::ContextFull)
}

/// What all states of a response have in common.
struct Head {
    id: String,
    created: u64,
    model: String,
    instructions: Option<String>,
    max_tokens: Option<usize>,
}

impl Head {
    fn new(model: &ServedModel, instructions: Option<String>, max_tokens: Option<usize>) -> Self {
        let model = model.id().to_owned();
        Self { id: unique("resp_"), created: now(), model, instructions, max_tokens }
    }

    /// The response before its end.
    fn begun(&self) -> Value {
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "in_progress",
            "error": null,
            "incomplete_details": null,
            "instructions": self.instructions,
            "max_output_tokens": self.max_tokens,
            "model": self.model,
            "output": [],
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": { "effort": null, "summary": null },
            "store": false,
            "temperature": null,
            "text": { "format": { "type": "text" } },
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "truncation": "disabled",
            "usage": null,
            "user": null,
            "metadata": {},
        })
    }

    /// The response at its end.
    fn ended(&self, output: Vec<Value>, reason: StopReason, usage: Usage) -> Value {
        let mut body = self.begun();
        body["output"] = Value::from(output);
        if is_cut_off(reason) {
            body["status"] = json!("incomplete");
            body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        } else {
            body["status"] = json!("completed");
        }
        body["usage"] = json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": { "cached_tokens": usage.cached_tokens },
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        });
        body
    }
}
