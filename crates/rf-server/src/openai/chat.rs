//! `POST /v1/chat/completions`.

use std::collections::{HashMap, HashSet};
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
use crate::api::custom_tools;
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
    /// False if the answer has no reasoning.
    include_reasoning: Option<bool>,
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
    let conversation: ConversationFields = fields.read()?;
    let form = AnswerForm {
        custom_tools: conversation.custom_tools(),
        has_reasoning: chat.include_reasoning.unwrap_or(true),
    };
    let prompt = rendered(&model, conversation.conversation()?).await?;
    let structure = fields.read::<GrammarFields>()?.structure()?;
    drop(fields);
    let job = Job::chat(prompt, params).with_structure(structure, &model).await?;
    let generation = Generation::submit(&model, vec![job], request_id)?;
    let head = Head { id: unique("chatcmpl-"), created: now(), model, form };
    if chat.stream.unwrap_or(false) {
        let include_usage = includes_usage(chat.stream_options);
        let encoder = Chunks { head, include_usage, inputs: HashMap::new() };
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
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<CalledFunction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<CalledCustomTool>,
}

#[derive(Serialize, JsonSchema)]
struct CalledFunction {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// JSON as text, or a part of it.
    arguments: String,
}

#[derive(Serialize, JsonSchema)]
struct CalledCustomTool {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    input: String,
}

/// The form that a request asks for.
struct AnswerForm {
    /// The names of the tools whose calls have a text.
    custom_tools: HashSet<String>,
    has_reasoning: bool,
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

impl AnswerForm {
    fn message(&self, Answer { content, reasoning, calls }: Answer) -> FullMessage {
        let has_content = !content.is_empty() || calls.is_empty();
        let reasoning = Some(reasoning).filter(|text| self.has_reasoning && !text.is_empty());
        let call = |AnswerCall { id, name, arguments, .. }| {
            let is_custom = self.custom_tools.contains(&name);
            let text = if is_custom { custom_tools::input(arguments) } else { arguments };
            CallJson::start(None, id, name, text, is_custom)
        };
        FullMessage {
            role: "assistant",
            content: has_content.then_some(content),
            refusal: (),
            reasoning_content: reasoning,
            tool_calls: (!calls.is_empty()).then(|| calls.into_iter().map(call).collect()),
        }
    }
}

impl CallJson {
    fn start(
        index: Option<usize>,
        id: String,
        name: String,
        text: String,
        is_custom: bool,
    ) -> Self {
        let kind = if is_custom { "custom" } else { "function" };
        let call = Self::part(index, Some(name), text, is_custom);
        Self { id: Some(id), kind: Some(kind), ..call }
    }

    fn part(index: Option<usize>, name: Option<String>, text: String, is_custom: bool) -> Self {
        let (function, custom) = if is_custom {
            (None, Some(CalledCustomTool { name, input: text }))
        } else {
            (Some(CalledFunction { name, arguments: text }), None)
        };
        Self { index, id: None, kind: None, function, custom }
    }
}

impl DeltaJson {
    fn call(call: CallJson) -> Self {
        Self { tool_calls: Some([call]), ..Self::default() }
    }
}

/// The fields that all chunks of a response share.
struct Head {
    id: String,
    created: u64,
    model: Arc<ServedModel>,
    form: AnswerForm,
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
            message: self.form.message(choice.answer),
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
    /// The arguments so far of the open calls of custom tools, by choice and number of the call.
    /// Their text is known when they are whole.
    inputs: HashMap<(usize, usize), String>,
}

impl Chunks {
    /// The part of the answer that a delta is; `None` for one that adds nothing to it.
    fn delta(&mut self, choice: usize, delta: Delta) -> Option<DeltaJson> {
        Some(match delta {
            Delta::Content(text) => DeltaJson { content: Some(text), ..DeltaJson::default() },
            Delta::Reasoning(_) if !self.head.form.has_reasoning => return None,
            Delta::Reasoning(text) => {
                DeltaJson { reasoning_content: Some(text), ..DeltaJson::default() }
            }
            Delta::CallStart { index, id, name } => {
                let is_custom = self.head.form.custom_tools.contains(&name);
                if is_custom {
                    self.inputs.insert((choice, index), String::new());
                }
                DeltaJson::call(CallJson::start(Some(index), id, name, String::new(), is_custom))
            }
            Delta::CallArguments { index, fragment } => {
                if let Some(arguments) = self.inputs.get_mut(&(choice, index)) {
                    *arguments += &fragment;
                    return None;
                }
                DeltaJson::call(CallJson::part(Some(index), None, fragment, false))
            }
            Delta::CallEnd { index, .. } => {
                let input = custom_tools::input(self.inputs.remove(&(choice, index))?);
                DeltaJson::call(CallJson::part(Some(index), None, input, true))
            }
        })
    }
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
                let delta = self.delta(index, delta);
                let head = &self.head;
                let logprobs = head.logprobs(&logprobs);
                // Tokens that add nothing yet have their log probabilities, too.
                if delta.is_none() && logprobs.is_none() {
                    return;
                }
                let delta = delta.unwrap_or_default();
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
