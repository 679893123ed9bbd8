//! The API of Ollama: answers and models.

pub(crate) mod embed;
pub(crate) mod models;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chrono::{SecondsFormat, Utc};
use rocmforge::engine::{Model, StopReason, Timings};
use rocmforge::messages::{Answer, AnswerCall, Conversation, Delta, Message, MessageCall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::RequestId;
use crate::answer::Answers;
use crate::api::{is_cut_off, parsed_arguments};
use crate::body::Fields;
use crate::entry::ModelKind;
use crate::error::{Api, ApiError};
use crate::generation::{Generation, Job, Update, Usage};
use crate::grammar::Structure;
use crate::infill;
use crate::keep_alive::KeepAlive;
use crate::prompt::{beside, chat_prompt, check_length, rendered, tools};
use crate::sampling::{Params, SamplingFields};
use crate::state::{App, ServedModel};
use crate::stream::{self, Encoder, Frames, Framing};

/// Fields of both kinds of requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaFields")]
pub(crate) struct CommonFields {
    model: Option<String>,
    options: Option<SamplingFields>,
    stream: Option<bool>,
    think: Option<Value>,
    format: Option<Value>,
    /// A duration such as `5m`, or seconds.
    #[schemars(with = "Option<Value>")]
    keep_alive: Option<KeepAlive>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaChatFields")]
pub(crate) struct ChatFields {
    #[serde(default)]
    messages: Vec<InputMessage>,
    tools: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaMessage")]
struct InputMessage {
    role: String,
    #[serde(default)]
    content: String,
    thinking: Option<String>,
    #[serde(default)]
    images: Vec<String>,
    #[serde(default)]
    tool_calls: Vec<InputCall>,
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
    #[serde(default)]
    prompt: String,
    suffix: Option<String>,
    system: Option<String>,
    raw: Option<bool>,
    #[serde(default)]
    images: Vec<String>,
}

/// `POST /api/chat`.
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let ChatFields { messages, tools: functions } = fields.read()?;
    if messages.is_empty() {
        return Request::load(&app, &fields, Form::Chat).await;
    }
    let request = Request::read(&app, &fields, Form::Chat).await?;
    let message = |(index, message): (usize, InputMessage)| {
        refuse_images(&message.images, &format!("messages[{index}].images"))?;
        let call = |call: InputCall| MessageCall {
            id: String::new(),
            name: call.function.name,
            arguments: call.function.arguments,
        };
        Ok(Message {
            reasoning: message.thinking,
            tool_calls: message.tool_calls.into_iter().map(call).collect(),
            name: message.tool_name,
            ..Message::new(message.role, message.content)
        })
    };
    let messages =
        messages.into_iter().enumerate().map(message).collect::<Result<_, ApiError>>()?;
    let tools = tools(functions)?;
    let reasoning_effort = request.effort();
    let conversation = Conversation::default()
        .with_messages(messages)
        .with_tools(tools)
        .with_reasoning_effort(reasoning_effort);
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
    refuse_images(&generate.images, "images")?;
    if generate.prompt.is_empty() {
        return Request::load(&app, &fields, Form::Text).await;
    }
    let request = Request::read(&app, &fields, Form::Text).await?;
    let reasoning_effort = request.effort();
    let params = request.params.clone();
    let most = request.model.longest_prompt_bytes();
    check_length(&generate.prompt, most)?;
    let job = beside(request.model.model(), move |model: &Model| {
        if let Some(suffix) = generate.suffix.filter(|suffix| !suffix.is_empty()) {
            let ids = infill::ids(model, &generate.prompt, &suffix, &[])?;
            return Ok(Job::text(ids, params));
        }
        if generate.raw.unwrap_or(false) || model.chat_template().is_none() {
            return Ok(Job::text(model.text_ids(&generate.prompt), params));
        }
        let system = generate.system.map(|text| Message::new("system", text));
        let user = Message::new("user", generate.prompt);
        let messages = system.into_iter().chain([user]).collect();
        let conversation =
            Conversation::default().with_messages(messages).with_reasoning_effort(reasoning_effort);
        Ok(Job::chat(chat_prompt(model, &conversation, most)?, params))
    });
    let job = job.await?;
    request.answer(job, request_id).await
}

fn refuse_images(images: &[String], path: &str) -> Result<(), ApiError> {
    if images.is_empty() { Ok(()) } else { Err(ApiError::field(path, "the model reads text only")) }
}

/// True if the text is the content of a message, or stands alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Chat,
    Text,
}

/// A request, apart from its prompt.
struct Request {
    model: Arc<ServedModel>,
    params: Params,
    stream: bool,
    think: Option<Value>,
    format: Option<Value>,
    form: Form,
    arrival: Instant,
    /// How long the request waited for its model.
    load_ns: u64,
}

impl Request {
    async fn read(app: &App, fields: &Fields, form: Form) -> Result<Self, ApiError> {
        let arrival = Instant::now();
        let mut common: CommonFields = fields.read()?;
        let model = app.model_for(common.model.as_deref(), common.keep_alive).await?;
        let load_ns = nanoseconds(arrival);
        let mut sampling = common.options.take().unwrap_or_default();
        // One answer is all that the format has room for.
        (sampling.n, sampling.n_cmpl) = (None, None);
        let params = sampling.params(model.model(), &app.options().sampling)?;
        let stream = common.stream.unwrap_or(true);
        let CommonFields { think, format, .. } = common;
        Ok(Self { model, params, stream, think, format, form, arrival, load_ns })
    }

    /// The effort of reasoning.
    fn effort(&self) -> Option<String> {
        match &self.think {
            Some(Value::Bool(false)) => Some("none".to_owned()),
            Some(Value::String(effort)) => Some(effort.clone()),
            _ => None,
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
        let Answers { mut choices, usage, .. } = Answers::collect(generation).await?;
        let choice = choices.pop().unwrap_or_default();
        let end = choice.end.map(|end| (end.reason, end.timings));
        Ok(Json(self.last(choice.answer, end, usage)).into_response())
    }

    /// Answers a request without a prompt: it loads the model, or unloads it if that is to stay for
    /// no time.
    async fn load(app: &App, fields: &Fields, form: Form) -> Result<Response, ApiError> {
        let CommonFields { model: name, keep_alive, .. } = fields.read()?;
        let unloads = keep_alive == Some(KeepAlive::from(Duration::ZERO));
        let (line, reason) = if unloads {
            let id = app.catalog().unload(name.as_deref(), ModelKind::Text)?;
            (line(id, form, Answer::default()), "unload")
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

/// An object with a part of an answer, or with all of it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Line {
    model: String,
    created_at: String,
    #[serde(flatten)]
    content: LineContent,
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_reason: Option<&'static str>,
    #[serde(flatten)]
    totals: Option<Totals>,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum LineContent {
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
struct LineMessage {
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
    arguments: Value,
}

/// Counts, and times in nanoseconds.
#[derive(Serialize, JsonSchema)]
struct Totals {
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
    prompt_eval_duration: u64,
    eval_count: usize,
    eval_duration: u64,
}

impl From<AnswerCall> for LineCall {
    fn from(AnswerCall { id, name, arguments, .. }: AnswerCall) -> Self {
        let arguments = parsed_arguments(&arguments);
        Self { id, function: LineFunction { name, arguments } }
    }
}

/// An object with a part of an answer.
fn line(model: &str, form: Form, Answer { content, reasoning, calls }: Answer) -> Line {
    let thinking = (!reasoning.is_empty()).then_some(reasoning);
    let content = match form {
        Form::Text => LineContent::Text { response: content, thinking },
        Form::Chat => LineContent::Chat {
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
        done: false,
        done_reason: None,
        totals: None,
    }
}

/// The time since `start`, in nanoseconds.
fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The time now, as Ollama writes it.
fn timestamp() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Nanos, true)
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
            Update::Delta { delta: delta @ (Delta::Content(_) | Delta::Reasoning(_)), .. } => {
                let mut answer = Answer::default();
                answer.extend([delta]);
                out.json(&self.request.line(answer));
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
