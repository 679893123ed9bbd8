//! The API of Ollama: answers and models.

pub(crate) mod embed;
pub(crate) mod embeddings;
pub(crate) mod line;
pub(crate) mod manage;
pub(crate) mod models;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rocmforge::engine::{Model, StopReason, Timings};
use rocmforge::messages::{Answer, Conversation, Delta, Message, MessageCall};
use rocmforge::{Answers, media_marker};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use self::line::{Line, LineForm, LineToken, Totals, line};
use crate::api::is_cut_off;
use crate::api::logprobs::{WithAlternatives, with_alternatives};
use crate::attachments::{Attachment, IllustratedConversation, from_base64};
use crate::body::Fields;
use crate::entry::ModelKind;
use crate::error::{Api, ApiError};
use crate::generation::{Generation, Job, TokenLogprob, Update, Usage};
use crate::grammar::Structure;
use crate::infill;
use crate::keep_alive::KeepAlive;
use crate::prompt::{chat_prompt, on_blocking_pool, rendered, tools};
use crate::request_id::RequestId;
use crate::sampling::{Params, SamplingFields, check_logprobs};
use crate::state::{App, ServedModel};
use crate::stream::{self, Encoder, Frames, Framing};

/// Fields of both kinds of requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaFields")]
pub(crate) struct CommonFields {
    model: Option<String>,
    options: Option<SamplingFields>,
    stream: Option<bool>,
    think: Option<Think>,
    format: Option<Value>,
    /// True if the tokens come with their log probabilities.
    logprobs: Option<bool>,
    /// Alternatives of each token.
    top_logprobs: Option<usize>,
    /// A duration such as `5m`, or seconds.
    #[schemars(with = "Option<Value>")]
    keep_alive: Option<KeepAlive>,
}

/// The field `think`: it turns reasoning on or off, or sets its effort.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected true, false or an effort")]
enum Think {
    Flag(bool),
    Effort(String),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaChatFields")]
pub(crate) struct ChatFields {
    messages: Option<Vec<InputMessage>>,
    tools: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaMessage")]
struct InputMessage {
    role: String,
    content: Option<String>,
    thinking: Option<String>,
    images: Option<Vec<String>>,
    tool_calls: Option<Vec<InputCall>>,
    tool_name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct InputCall {
    function: InputFunction,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct InputFunction {
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct GenerateFields {
    prompt: Option<String>,
    suffix: Option<String>,
    system: Option<String>,
    raw: Option<bool>,
    images: Option<Vec<String>>,
}

/// `POST /api/chat`.
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let ChatFields { messages, tools: functions } = fields.read()?;
    let messages = messages.unwrap_or_default();
    if messages.is_empty() {
        return Request::load(&app, &fields, LineForm::Chat).await;
    }
    let request = Request::read(&app, &fields, LineForm::Chat).await?;
    drop(fields);
    let mut attachments = Vec::new();
    let message = |(index, message): (usize, InputMessage)| {
        let path = format!("messages[{index}].images");
        let marks = marks(message.images, &path, &mut attachments)?;
        let call = |call: InputCall| MessageCall {
            id: String::new(),
            name: call.function.name,
            arguments: call.function.arguments,
        };
        Ok(Message {
            reasoning: message.thinking,
            tool_calls: message.tool_calls.into_iter().flatten().map(call).collect(),
            name: message.tool_name,
            ..Message::new(message.role, marks + &message.content.unwrap_or_default())
        })
    };
    let messages =
        messages.into_iter().enumerate().map(message).collect::<Result<_, ApiError>>()?;
    let tools = tools(functions.as_deref())?;
    let reasoning_effort = request.effort();
    let conversation = Conversation::default()
        .with_messages(messages)
        .with_tools(tools)
        .with_reasoning_effort(reasoning_effort);
    let conversation = IllustratedConversation { conversation, attachments, field: "messages" };
    let prompt = rendered(&request.model, conversation).await?;
    let job = Job::chat(prompt, request.params.clone());
    request.answer(job, request_id).await
}

/// `POST /api/generate`.
pub(crate) async fn generate(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let generate: GenerateFields = fields.read()?;
    let mut attachments = Vec::new();
    let marks = marks(generate.images, "images", &mut attachments)?;
    let prompt = generate.prompt.unwrap_or_default();
    if prompt.is_empty() {
        return Request::load(&app, &fields, LineForm::Text).await;
    }
    let request = Request::read(&app, &fields, LineForm::Text).await?;
    drop(fields);
    let reasoning_effort = request.effort();
    let params = request.params.clone();
    let limit = request.model.prompt_limit();
    limit.check(&prompt)?;
    if !attachments.is_empty() {
        let system = generate.system.map(|text| Message::new("system", text));
        let messages = system.into_iter().chain([Message::new("user", marks + &prompt)]);
        let conversation = Conversation::default()
            .with_messages(messages.collect())
            .with_reasoning_effort(reasoning_effort);
        let conversation = IllustratedConversation { conversation, attachments, field: "images" };
        let prompt = rendered(&request.model, conversation).await?;
        return request.answer(Job::chat(prompt, params), request_id).await;
    }
    let default_system = request.model.system().map(str::to_owned);
    let job = on_blocking_pool(request.model.model(), move |model: &Model| {
        if let Some(suffix) = generate.suffix.filter(|suffix| !suffix.is_empty()) {
            let ids = infill::ids(model, limit, (&prompt, &suffix), &[])?;
            return Ok(Job::text(ids, params));
        }
        if generate.raw.unwrap_or(false) || model.chat_template().is_none() {
            return Ok(Job::text(model.text_ids(&prompt), params));
        }
        let system = generate.system.or(default_system);
        let system = system.map(|text| Message::new("system", text));
        let user = Message::new("user", prompt);
        let messages = system.into_iter().chain([user]).collect();
        let conversation =
            Conversation::default().with_messages(messages).with_reasoning_effort(reasoning_effort);
        Ok(Job::chat(chat_prompt(model, &conversation, limit)?, params))
    });
    let job = job.await?;
    request.answer(job, request_id).await
}

/// Adds pictures in base64 to `attachments`, and returns their marks, which are before the text.
fn marks(
    sent: Option<Vec<String>>,
    path: &str,
    attachments: &mut Vec<Attachment>,
) -> Result<String, ApiError> {
    let sent = sent.unwrap_or_default();
    for (index, data) in sent.iter().enumerate() {
        attachments.push(from_base64(data, &format!("{path}[{index}]"))?);
    }
    Ok(media_marker().repeat(sent.len()))
}

/// A request, apart from its prompt.
struct Request {
    model: Arc<ServedModel>,
    params: Params,
    stream: bool,
    think: Option<Think>,
    format: Option<Value>,
    form: LineForm,
    arrival: Instant,
    /// How long the request waited for its model.
    load_ns: u64,
}

impl Request {
    async fn read(app: &App, fields: &Fields, form: LineForm) -> Result<Self, ApiError> {
        let arrival = Instant::now();
        let mut common: CommonFields = fields.read()?;
        let model = app.model_for(common.model.as_deref(), common.keep_alive).await?;
        let load_ns = nanoseconds(arrival);
        let mut sampling = common.options.take().unwrap_or_default();
        // One answer is all that the format has room for.
        (sampling.n, sampling.n_cmpl) = (None, None);
        let mut params = sampling.params(model.model(), model.sampling())?;
        let top = check_logprobs("top_logprobs", common.top_logprobs.unwrap_or(0))?;
        params.logprobs = common.logprobs.unwrap_or(false).then_some(top);
        let stream = common.stream.unwrap_or(true);
        let CommonFields { think, format, .. } = common;
        Ok(Self { model, params, stream, think, format, form, arrival, load_ns })
    }

    /// The effort of reasoning.
    fn effort(&self) -> Option<String> {
        match &self.think {
            Some(Think::Flag(false)) => Some("none".to_owned()),
            Some(Think::Effort(effort)) => Some(effort.clone()),
            Some(Think::Flag(true)) | None => None,
        }
    }

    async fn answer(self, job: Job, request_id: RequestId) -> Result<Response, ApiError> {
        let structure = Structure::of_ollama(self.format.clone())?;
        let job = job.with_structure(structure, &self.model).await?;
        let generation = Generation::submit(&self.model, vec![job], request_id)?;
        if self.stream {
            let encoder = Lines { request: self, end: None, called: Answer::default() };
            return Ok(stream::response(generation, encoder, Framing::Lines));
        }
        let Answers { mut choices, usage, .. } = generation.answers().await?;
        let choice = choices.pop().unwrap_or_default();
        let end = choice.end.map(|end| (end.reason, end.timings));
        let logprobs = self.logprobs(&choice.logprobs);
        Ok(Json(Line { logprobs, ..self.last(choice.answer, end, usage) }).into_response())
    }

    /// Answers a request without a prompt: it loads the model, or unloads it if that is to stay for
    /// no time.
    async fn load(app: &App, fields: &Fields, form: LineForm) -> Result<Response, ApiError> {
        let CommonFields { model: name, keep_alive, .. } = fields.read()?;
        let unloads = keep_alive == Some(KeepAlive::from(Duration::ZERO));
        let (line, reason) = if unloads {
            app.note_model(name.as_deref(), ModelKind::Text)?;
            let id = app.catalog().unload(name.as_deref(), ModelKind::Text)?;
            (line(&id, form, Answer::default()), "unload")
        } else {
            let model = app.model_for(name.as_deref(), keep_alive).await?;
            (line(model.id(), form, Answer::default()), "load")
        };
        Ok(Json(Line { done: true, done_reason: Some(reason), ..line }).into_response())
    }

    /// One object of the stream.
    fn line(&self, answer: Answer) -> Line {
        line(self.model.id(), self.form, answer)
    }

    fn logprobs(&self, found: &[TokenLogprob]) -> Option<Vec<WithAlternatives<LineToken>>> {
        let tokenizer = self.model.model().tokenizer();
        (!found.is_empty()).then(|| with_alternatives(tokenizer, found))
    }

    /// The last object, with counts and times.
    fn last(&self, answer: Answer, end: Option<(StopReason, Timings)>, usage: Usage) -> Line {
        let (reason, timings) = end.unwrap_or((StopReason::Eog, Timings::default()));
        Line {
            done: true,
            done_reason: Some(if is_cut_off(reason) { "length" } else { "stop" }),
            totals: Some(Totals {
                total_duration: nanoseconds(self.arrival),
                load_duration: self.load_ns,
                prompt_eval_count: usage.prompt_tokens,
                prompt_eval_duration: timings.prompt_us.saturating_mul(1000),
                eval_count: timings.generated_tokens,
                eval_duration: timings.decode_us.saturating_mul(1000),
            }),
            ..self.line(answer)
        }
    }
}

/// The time since `start`, in nanoseconds.
fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The stream of an answer: one object per line.
struct Lines {
    request: Request,
    end: Option<(StopReason, Timings)>,
    /// The calls so far. Each is sent when it is whole.
    called: Answer,
}

impl Encoder for Lines {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Delta {
                delta: delta @ (Delta::Content(_) | Delta::Reasoning(_)),
                logprobs,
                ..
            } => {
                let mut answer = Answer::default();
                answer.extend([delta]);
                let logprobs = self.request.logprobs(&logprobs);
                out.json(&Line { logprobs, ..self.request.line(answer) });
            }
            Update::Delta { delta, .. } => {
                let is_whole = matches!(delta, Delta::CallEnd { complete: true, .. });
                self.called.extend([delta]);
                if let Some(call) = self.called.calls.last().filter(|_| is_whole) {
                    let calls = vec![call.clone()];
                    out.json(&self.request.line(Answer { calls, ..Answer::default() }));
                }
            }
            Update::Finished { reason, timings, .. } => self.end = Some((reason, timings)),
            Update::Ended { usage } => {
                out.json(&self.request.last(Answer::default(), self.end, usage));
            }
            Update::Failed(error) => out.json(&ApiError::from(error).body(Api::Ollama)),
            _ => {}
        }
    }
}
