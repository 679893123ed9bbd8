//! The Messages API of Anthropic.

pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod stream;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rocmforge::Answers;
use schemars::JsonSchema;
use serde::Serialize;

use self::input::MessagesFields;
use self::output::{MessageJson, Stop, stop_reason};
use crate::body::Fields;
use crate::error::ApiError;
use crate::fields::TextOr;
use crate::generation::{Generation, Job};
use crate::prompt::rendered;
use crate::request_id::{RequestId, unique};
use crate::sampling::SamplingFields;
use crate::state::App;
use crate::stream::{Framing, response};

/// `POST /v1/messages`.
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let mut request: MessagesFields = fields.read()?;
    let model = app.model(request.model.as_deref()).await?;
    let mut sampling: SamplingFields = fields.read()?;
    drop(fields);
    sampling.stop = request.stop_sequences.take().map(TextOr::List);
    sampling.thinking_token_budget = sampling.thinking_token_budget.or(request.reasoning_budget());
    let params = sampling.params(model.model(), model.sampling())?;
    let stream = request.stream.unwrap_or(false);
    let structure = request.structure()?;
    let conversation = request.conversation()?;
    let prompt = rendered(&model, conversation).await?;
    let job = Job::chat(prompt, params).with_structure(structure, &model).await?;
    let generation = Generation::submit(&model, vec![job], request_id)?;
    let id = unique("msg_");
    if stream {
        let encoder = stream::Events::new(id, model.id().to_owned());
        return Ok(response(generation, encoder, Framing::Events));
    }
    let Answers { mut choices, usage, .. } = generation.answers().await?;
    let choice = choices.pop().unwrap_or_default();
    let stop = Stop {
        stop_reason: choice.end.map(|end| stop_reason(end.reason, end.calls_tools)),
        stop_sequence: choice.stop_string,
    };
    let message = MessageJson::ended(&id, model.id(), choice.answer, stop, usage);
    Ok(Json(message).into_response())
}

/// The number of tokens of a conversation.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TokenCount {
    input_tokens: usize,
}

/// `POST /v1/messages/count_tokens`.
pub(crate) async fn count_tokens(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<TokenCount>, ApiError> {
    let request: MessagesFields = fields.read()?;
    let model = app.model(request.model.as_deref()).await?;
    let conversation = request.conversation()?;
    let prompt = rendered(&model, conversation).await?;
    Ok(Json(TokenCount { input_tokens: prompt.ids.len() }))
}
