//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rocmforge::messages::{Answer, AnswerCall, Delta};
use rocmforge::{Answers, Choice};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::responses::InputTokens;
use super::{Completion, StreamOptions, UsageJson, fail, finish_reason, includes_usage};
use crate::api::FINGERPRINT;
use crate::api::conversation::ConversationFields;
use crate::api::logprobs::{ScoredToken, WithAlternatives, with_alternatives};
use crate::api::timings::TimingsJson;
use crate::body::Fields;
use crate::error::ApiError;
use crate::generation::{Generation, Job, TokenLogprob, Update};
use crate::grammar::GrammarFields;
use crate::prompt::rendered;
use crate::request_id::{RequestId, unique};
use crate::sampling::{SamplingFields, check_logprobs};
use crate::state::{App, ServedModel, now};
use crate::stream::{self, Encoder, Frames, Framing};

/// The fields of a request, besides those of sampling.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ChatFields {
    pub(super) model: Option<String>,
    pub(super) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    cache_prompt: Option<bool>,
}

/// Answers a conversation.
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let chat: ChatFields = fields.read()?;
    let model = app.model(chat.model.as_deref()).await?;
    let sampling: SamplingFields = fields.read()?;
    let mut params = sampling.params(model.model(), model.sampling())?;
    params.logprobs = logprobs(&chat)?;
    params.use_prefix_cache = chat.cache_prompt.unwrap_or(true);
    let conversation = fields.read::<ConversationFields>()?.conversation()?;
    let prompt = rendered(&model, conversation).await?;
    let structure = fields.read::<GrammarFields>()?.structure()?;
    let job = Job::chat(prompt, params).with_structure(structure, &model).await?;
    let generation = Generation::submit(&model, vec![job], request_id)?;
    let head = Head { id: unique("chatcmpl-"), created: now(), model };
    if chat.stream.unwrap_or(false) {
        let include_usage = includes_usage(chat.stream_options);
        let encoder = Chunks { head, include_usage };
        return Ok(stream::response(generation, encoder, Framing::Events));
    }
    let answer = generation.answers().await?;
    Ok(Json(head.completion(answer)).into_response())
}

/// `POST /v1/chat/completions/input_tokens`.
pub(crate) async fn input_tokens(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<InputTokens>, ApiError> {
    let ChatFields { model, .. } = fields.read()?;
    let model = app.model(model.as_deref()).await?;
    let conversation = fields.read::<ConversationFields>()?.conversation()?;
    let prompt = rendered(&model, conversation).await?;
    Ok(Json(InputTokens::new(prompt.ids.len())))
}

fn logprobs(chat: &ChatFields) -> Result<Option<usize>, ApiError> {
    let top = check_logprobs("top_logprobs", chat.top_logprobs.unwrap_or(0))?;
    // llama.cpp and some clients ask for alternatives only.
    let wanted = chat.logprobs.unwrap_or(chat.top_logprobs.is_some());
    Ok(wanted.then_some(top))
}

/// A choice of a whole answer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FullChoice {
    index: usize,
    message: FullMessage,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize, JsonSchema)]
struct FullMessage {
    role: &'static str,
    /// The text, unless there are calls instead of one.
    content: Option<String>,
    /// Always null.
    refusal: (),
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<CallJson>>,
}

/// A choice of a chunk.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChunkChoice {
    index: usize,
    delta: DeltaJson,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "Delta")]
struct DeltaJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallJson; 1]>,
}

/// A call of a tool. In a stream it has an index, and its id and name come once.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Call")]
struct CallJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: CalledFunction,
}

#[derive(Serialize, JsonSchema)]
struct CalledFunction {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// JSON as text, or a part of it.
    arguments: String,
}

/// The tokens of a message with their log probabilities.
#[derive(Serialize, JsonSchema)]
struct ChatLogprobs {
    content: Vec<WithAlternatives<ChatToken>>,
}

#[derive(Serialize, JsonSchema)]
struct ChatToken {
    id: u32,
    token: String,
    logprob: f64,
    bytes: Vec<u8>,
}

impl From<ScoredToken> for ChatToken {
    fn from(ScoredToken { id, text, bytes, logprob }: ScoredToken) -> Self {
        Self { id, token: text, logprob, bytes }
    }
}

impl From<Answer> for FullMessage {
    fn from(Answer { content, reasoning, calls }: Answer) -> Self {
        let has_content = !content.is_empty() || calls.is_empty();
        Self {
            role: "assistant",
            content: has_content.then_some(content),
            refusal: (),
            reasoning_content: (!reasoning.is_empty()).then_some(reasoning),
            tool_calls: (!calls.is_empty())
                .then(|| calls.into_iter().map(CallJson::from).collect()),
        }
    }
}

impl From<AnswerCall> for CallJson {
    fn from(AnswerCall { id, name, arguments, .. }: AnswerCall) -> Self {
        Self::start(None, id, CalledFunction { name: Some(name), arguments })
    }
}

impl CallJson {
    fn start(index: Option<usize>, id: String, function: CalledFunction) -> Self {
        Self { index, id: Some(id), kind: Some("function"), function }
    }
}

impl DeltaJson {
    fn of(delta: Delta) -> Option<Self> {
        Some(match delta {
            Delta::Content(text) => Self { content: Some(text), ..Self::default() },
            Delta::Reasoning(text) => Self { reasoning_content: Some(text), ..Self::default() },
            Delta::CallStart { index, id, name } => {
                let function = CalledFunction { name: Some(name), arguments: String::new() };
                Self::call(CallJson::start(Some(index), id, function))
            }
            Delta::CallArguments { index, fragment } => {
                let function = CalledFunction { name: None, arguments: fragment };
                Self::call(CallJson { index: Some(index), id: None, kind: None, function })
            }
            Delta::CallEnd { .. } => return None,
        })
    }

    fn call(call: CallJson) -> Self {
        Self { tool_calls: Some([call]), ..Self::default() }
    }
}

/// The fields that all chunks of a response share.
struct Head {
    id: String,
    created: u64,
    model: Arc<ServedModel>,
}

impl Head {
    fn body<C>(&self, object: &'static str, choices: Vec<C>) -> Completion<'_, C> {
        Completion {
            id: &self.id,
            object,
            created: self.created,
            model: self.model.id(),
            system_fingerprint: FINGERPRINT,
            choices,
            usage: None,
            timings: None,
        }
    }

    fn completion(&self, answer: Answers) -> Completion<'_, FullChoice> {
        let usage = Some(UsageJson::from(answer.usage));
        let timings = answer.timings().map(TimingsJson::from);
        let choice = |(index, choice): (usize, Choice)| FullChoice {
            index,
            message: choice.answer.into(),
            logprobs: self.logprobs(&choice.logprobs),
            finish_reason: choice.end.map(|end| finish_reason(end.reason, end.calls_tools)),
        };
        let choices = answer.choices.into_iter().enumerate().map(choice).collect();
        Completion { usage, timings, ..self.body("chat.completion", choices) }
    }

    fn chunk(&self, choice: Option<ChunkChoice>) -> Completion<'_, ChunkChoice> {
        self.body("chat.completion.chunk", choice.into_iter().collect())
    }

    fn logprobs(&self, logprobs: &[TokenLogprob]) -> Option<ChatLogprobs> {
        let tokenizer = self.model.model().tokenizer();
        (!logprobs.is_empty())
            .then(|| ChatLogprobs { content: with_alternatives(tokenizer, logprobs) })
    }
}

/// The stream of a conversation.
struct Chunks {
    head: Head,
    include_usage: bool,
}

impl Encoder for Chunks {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        let head = &self.head;
        match update {
            Update::Started { num_choices, .. } => {
                for index in 0..num_choices {
                    let delta = DeltaJson {
                        role: Some("assistant"),
                        content: Some(String::new()),
                        ..DeltaJson::default()
                    };
                    let choice = ChunkChoice { index, delta, logprobs: None, finish_reason: None };
                    out.json(&head.chunk(Some(choice)));
                }
            }
            Update::Delta { choice: index, delta, logprobs } => {
                let Some(delta) = DeltaJson::of(delta) else { return };
                let logprobs = head.logprobs(&logprobs);
                let choice = ChunkChoice { index, delta, logprobs, finish_reason: None };
                out.json(&head.chunk(Some(choice)));
            }
            Update::Finished { choice: index, reason, calls_tools, timings, .. } => {
                let finish_reason = Some(finish_reason(reason, calls_tools));
                let delta = DeltaJson::default();
                let choice = ChunkChoice { index, delta, logprobs: None, finish_reason };
                let timings = Some(TimingsJson::from(&timings));
                out.json(&Completion { timings, ..head.chunk(Some(choice)) });
            }
            Update::Ended { usage } => {
                if self.include_usage {
                    let usage = Some(UsageJson::from(usage));
                    out.json(&Completion { usage, ..head.chunk(None) });
                }
                out.done();
            }
            Update::Failed(error) => fail(&error.into(), out),
            _ => {}
        }
    }
}
