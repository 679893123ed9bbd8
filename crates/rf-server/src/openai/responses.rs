//! `/v1/responses`, with the latest responses in memory.

mod fields;
pub(crate) mod head;
mod input;
mod items;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod stream;
mod tools;

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rocmforge::Answers;
use rocmforge::engine::StopReason;
use rocmforge::messages::{Conversation, Message};
use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use self::fields::ResponsesFields;
use self::head::{Head, ResponseRecord};
use self::input::ItemReader;
use self::settings::{RepeatedFields, ResponseSettings};
use self::store::{Owner, ResponseStore};
use self::tools::OfferedTools;
use crate::api::is_cut_off;
use crate::attachments::{IllustratedConversation, IllustratedMessages};
use crate::body::Fields;
use crate::error::{ApiError, ApiErrorKind};
use crate::fields::TextOr;
use crate::generation::{Generation, Job};
use crate::grammar::GrammarFields;
use crate::path::Id;
use crate::prompt::{rendered, tool_choice};
use crate::request_id::RequestId;
use crate::sampling::SamplingFields;
use crate::state::App;
use crate::stream::{Framing, response};

/// Answers a conversation.
pub(crate) async fn responses(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, ApiError> {
    let mut request: ResponsesFields = fields.read()?;
    let model = app.model(request.model.as_deref()).await?;
    let sampling: SamplingFields = fields.read()?;
    let params = sampling.params(model.model(), model.sampling())?;
    let owner = Owner::of(&headers);
    let messages = request.messages(app.responses(), owner)?;
    let tools = request.offered_tools()?;
    let conversation = request.conversation(&messages, &tools)?;
    let prompt = rendered(&model, conversation).await?;
    let record = request.store.unwrap_or(true).then(|| ResponseRecord {
        app,
        owner,
        conversation: messages,
    });
    let settings = ResponseSettings::new(&mut request, fields.read::<RepeatedFields>()?, &params);
    let head = Head::new(&model, settings).with_tools(tools).with_record(record);
    let structure = fields.read::<GrammarFields>()?.structure()?;
    drop(fields);
    let job = Job::chat(prompt, params).with_structure(structure, &model).await?;
    let generation = Generation::submit(&model, vec![job], request_id)?;
    if request.stream.unwrap_or(false) {
        return Ok(response(generation, stream::Events::new(head), Framing::Events));
    }
    let Answers { mut choices, usage, .. } = generation.answers().await?;
    let choice = choices.pop().unwrap_or_default();
    let reason = choice.end.map_or(StopReason::Eog, |end| end.reason);
    let items = items::output(choice.answer, head.tools(), is_cut_off(reason));
    Ok(Json(head.ended(items, reason, usage)).into_response())
}

/// The number of tokens of a conversation.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InputTokens {
    object: &'static str,
    input_tokens: usize,
}

impl InputTokens {
    pub(crate) fn new(input_tokens: usize) -> Self {
        Self { object: "response.input_tokens", input_tokens }
    }
}

/// `POST /v1/responses/input_tokens`.
pub(crate) async fn input_tokens(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Json<InputTokens>, ApiError> {
    let request: ResponsesFields = fields.read()?;
    let model = app.model(request.model.as_deref()).await?;
    let conversation = request.into_conversation(app.responses(), &headers)?;
    let prompt = rendered(&model, conversation).await?;
    Ok(Json(InputTokens::new(prompt.ids.len())))
}

/// `GET /v1/responses/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let stored = app.responses().response(Owner::of(&headers), &id).ok_or_else(not_stored)?;
    Ok(([(CONTENT_TYPE, "application/json")], stored.json.clone()).into_response())
}

/// The answer to a request that deletes a response.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeletedResponse {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// `DELETE /v1/responses/{id}`.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Json<DeletedResponse>, ApiError> {
    if !app.responses().remove(Owner::of(&headers), &id) {
        return Err(not_stored());
    }
    Ok(Json(DeletedResponse { id, object: "response", deleted: true }))
}

fn not_stored() -> ApiError {
    ApiError::new(ApiErrorKind::NotFound, "the response is not stored")
}

impl ResponsesFields {
    /// The conversation of a request with these headers.
    pub(crate) fn into_conversation(
        mut self,
        store: &ResponseStore,
        headers: &HeaderMap,
    ) -> Result<IllustratedConversation, ApiError> {
        let messages = self.messages(store, Owner::of(headers))?;
        self.conversation(&messages, &self.offered_tools()?)
    }

    /// The conversation so far, without the instructions.
    fn messages(
        &mut self,
        store: &ResponseStore,
        owner: Owner,
    ) -> Result<IllustratedMessages, ApiError> {
        let mut conversation = match &self.previous_response_id {
            None => IllustratedMessages::default(),
            Some(id) => {
                let previous = store.response(owner, id).ok_or_else(|| {
                    let message = "the response is not stored any more: send the whole \
                                   conversation as `input`";
                    let error = ApiError::field("previous_response_id", message);
                    error.of_kind(ApiErrorKind::NotFound).with_code("previous_response_not_found")
                })?;
                previous.conversation.clone()
            }
        };
        match self.input.take() {
            None => return Err(ApiError::field("input", "expected a text or a list of items")),
            Some(TextOr::Text(text)) => {
                input::push(&mut conversation.messages, Message::new("user", text));
            }
            Some(TextOr::List(items)) => {
                ItemReader { store, owner }.add(items, &mut conversation)?;
            }
        }
        Ok(conversation)
    }

    fn offered_tools(&self) -> Result<OfferedTools, ApiError> {
        OfferedTools::of(self.tools.as_deref().unwrap_or_default())
    }

    fn conversation(
        &self,
        illustrated: &IllustratedMessages,
        tools: &OfferedTools,
    ) -> Result<IllustratedConversation, ApiError> {
        let instructions = self.instructions.iter().map(|text| Message::new("system", text));
        let effort = self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.clone());
        let messages = illustrated.messages.iter().cloned();
        let conversation = Conversation::default()
            .with_messages(instructions.chain(messages).collect())
            .with_tools(tools.tools.clone())
            .with_tool_choice(tool_choice(self.tool_choice.as_ref())?)
            .with_reasoning_effort(effort);
        let attachments = illustrated.attachments.clone();
        Ok(IllustratedConversation { conversation, attachments, field: "input" })
    }
}
