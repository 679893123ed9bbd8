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
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::access::RequestId;
use crate::answer::Answers;
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
#[derive(Debug, Deserialize)]
struct CommonFields {
    model: Option<String>,
    options: Option<SamplingFields>,
    stream: Option<bool>,
    think: Option<Value>,
    format: Option<Value>,
    keep_alive: Option<KeepAlive>,
}

#[derive(Debug, Deserialize)]
struct ChatFields {
    #[serde(default)]
    messages: Vec<InputMessage>,
    tools: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
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

#[derive(Debug, Deserialize)]
struct InputCall {
    function: InputFunction,
}

#[derive(Debug, Deserialize)]
struct InputFunction {
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Debug, Deserialize)]
struct GenerateFields {
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
    let conversation =
        Conversation { messages, tools, reasoning_effort, ..Conversation::default() };
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
        let conversation = Conversation { messages, reasoning_effort, ..Conversation::default() };
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
        Ok(Json(self.last(&choice.answer, end, usage)).into_response())
    }

    /// Answers a request without a prompt: it loads the model, or unloads it if that is to stay for
    /// no time.
    async fn load(app: &App, fields: &Fields, form: Form) -> Result<Response, ApiError> {
        let CommonFields { model: name, keep_alive, .. } = fields.read()?;
        let unloads = keep_alive == Some(KeepAlive::from(Duration::ZERO));
        let mut body = if unloads {
            let id = app.catalog().unload(name.as_deref(), ModelKind::Text)?;
            line(id, form, &Answer::default())
        } else {
            let model = app.model_for(name.as_deref(), keep_alive).await?;
            line(model.id(), form, &Answer::default())
        };
        body.insert("done".into(), json!(true));
        body.insert("done_reason".into(), json!(if unloads { "unload" } else { "load" }));
        Ok(Json(body).into_response())
    }

    /// One object of the stream.
    fn line(&self, answer: &Answer) -> Map<String, Value> {
        line(self.model.id(), self.form, answer)
    }

    /// The last object, with counts and times.
    fn last(
        &self,
        answer: &Answer,
        end: Option<(StopReason, Timings)>,
        usage: Usage,
    ) -> Map<String, Value> {
        let mut line = self.line(answer);
        let (reason, timings) = end.unwrap_or((StopReason::Eog, Timings::default()));
        let reason = match reason {
            StopReason::Length | StopReason::ContextFull | StopReason::ConstraintLimit => "length",
            _ => "stop",
        };
        for (name, value) in [
            ("done", json!(true)),
            ("done_reason", json!(reason)),
            ("total_duration", json!(nanoseconds(self.arrival))),
            ("load_duration", json!(self.load_ns)),
            ("prompt_eval_count", json!(usage.prompt_tokens)),
            ("prompt_eval_duration", json!(timings.prompt_us.saturating_mul(1000))),
            ("eval_count", json!(timings.generated_tokens)),
            ("eval_duration", json!(timings.decode_us.saturating_mul(1000))),
        ] {
            line.insert(name.into(), value);
        }
        line
    }
}

/// An object with a part of an answer.
fn line(model: &str, form: Form, answer: &Answer) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("model".into(), json!(model));
    line.insert("created_at".into(), json!(timestamp()));
    if form == Form::Text {
        line.insert("response".into(), json!(answer.content));
        if !answer.reasoning.is_empty() {
            line.insert("thinking".into(), json!(answer.reasoning));
        }
        return line;
    }
    let mut message = json!({ "role": "assistant", "content": answer.content });
    if !answer.reasoning.is_empty() {
        message["thinking"] = json!(answer.reasoning);
    }
    if !answer.calls.is_empty() {
        message["tool_calls"] = answer.calls.iter().map(tool_call).collect();
    }
    line.insert("message".into(), message);
    line
}

/// Arguments are an object here, not text.
fn tool_call(call: &AnswerCall) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({ "id": call.id, "function": { "name": call.name, "arguments": arguments } })
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

impl Lines {
    fn send(&self, answer: &Answer, out: &mut Frames) {
        let mut line = self.request.line(answer);
        line.insert("done".into(), json!(false));
        out.json(&line);
    }
}

impl Encoder for Lines {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Delta { delta, .. } => match delta {
                Delta::Content(content) => self.send(&Answer { content, ..Answer::default() }, out),
                Delta::Reasoning(reasoning) => {
                    self.send(&Answer { reasoning, ..Answer::default() }, out);
                }
                delta => {
                    let is_whole = matches!(delta, Delta::CallEnd { complete: true, .. });
                    self.called.extend([delta]);
                    if let Some(call) = self.called.calls.last().filter(|_| is_whole) {
                        let calls = vec![call.clone()];
                        self.send(&Answer { calls, ..Answer::default() }, out);
                    }
                }
            },
            Update::Finished { reason, timings, .. } => self.end = Some((reason, timings)),
            Update::Ended { usage } => {
                out.json(&self.request.last(&Answer::default(), self.end, usage));
            }
            Update::Failed(error) => out.json(&ApiError::from(error).body(Api::Ollama)),
            _ => {}
        }
    }
}
