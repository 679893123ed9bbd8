//! `POST /v1/responses`, without stored responses: every request has its whole conversation.

pub(crate) mod head;
mod items;
pub(crate) mod stream;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rocmforge::engine::StopReason;
use rocmforge::messages::{Conversation, Message};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use self::head::Head;
use crate::access::RequestId;
use crate::answer::Answers;
use crate::api::is_cut_off;
use crate::body::Fields;
use crate::error::ApiError;
use crate::fields::TextOr;
use crate::generation::{Generation, Job};
use crate::grammar::GrammarFields;
use crate::prompt::{rendered, tool_choice, tools};
use crate::sampling::SamplingFields;
use crate::state::App;
use crate::stream::{Framing, response};

/// The fields of a request, besides those of sampling.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ResponsesFields {
    model: Option<String>,
    input: Option<TextOr<items::InputItem>>,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    stream: Option<bool>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    reasoning: Option<Reasoning>,
}

#[derive(Debug, Deserialize, JsonSchema)]
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
    let model = app.model(request.model.as_deref()).await?;
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
    let conversation = Conversation::default()
        .with_messages(messages)
        .with_tools(tools(functions)?)
        .with_tool_choice(tool_choice(request.tool_choice.as_ref())?)
        .with_reasoning_effort(request.reasoning.and_then(|reasoning| reasoning.effort));
    let prompt = rendered(&model, conversation).await?;
    let head = Head::new(&model, request.instructions, params.options.max_tokens);
    let structure = fields.read::<GrammarFields>()?.structure()?;
    let job = Job::chat(prompt, params).with_structure(structure, &model).await?;
    let generation = Generation::submit(&model, vec![job], request_id)?;
    if request.stream.unwrap_or(false) {
        return Ok(response(generation, stream::Events::new(head), Framing::Events));
    }
    let Answers { mut choices, usage, .. } = Answers::collect(generation).await?;
    let choice = choices.pop().unwrap_or_default();
    let reason = choice.end.map_or(StopReason::Eog, |end| end.reason);
    let body = head.ended(items::output(choice.answer, is_cut_off(reason)), reason, usage);
    Ok(Json(body).into_response())
}
