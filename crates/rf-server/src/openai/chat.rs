//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rocmforge::messages::{AnswerCall, Delta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::messages::ConversationFields;
use super::{
    FINGERPRINT, StreamOptions, TimingsJson, UsageJson, chat_logprobs, fail, finish_reason,
    includes_usage,
};
use crate::access::{RequestId, unique};
use crate::answer::{Answers, Choice};
use crate::body::Fields;
use crate::error::ApiError;
use crate::generation::{Generation, Job, Update};
use crate::grammar::GrammarFields;
use crate::prompt::rendered;
use crate::sampling::{SamplingFields, check_logprobs};
use crate::state::{App, ServedModel, now};
use crate::stream::{self, Encoder, Frames, Framing};

/// The fields of a request, besides those of sampling.
#[derive(Debug, Deserialize)]
struct ChatFields {
    model: Option<String>,
    stream: Option<bool>,
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
    let mut params = sampling.params(model.model(), &app.options().sampling)?;
    params.logprobs = logprobs(&chat)?;
    params.use_prefix_cache = chat.cache_prompt.unwrap_or(true);
    let conversation = fields.read::<ConversationFields>()?.conversation()?;
    let prompt = rendered(&model, conversation).await?;
    let structure = fields.read::<GrammarFields>()?.structure()?;
    let job = Job::chat(prompt, params).with_structure(structure, &model).await?;
    let generation = Generation::submit(&model, vec![job], request_id)?;
    let head = Head::new(&model);
    if chat.stream.unwrap_or(false) {
        let include_usage = includes_usage(chat.stream_options);
        let encoder = Chunks { head, model, include_usage };
        return Ok(stream::response(generation, encoder, Framing::Events));
    }
    let answer = Answers::collect(generation).await?;
    Ok(Json(completion(&head, &model, &answer)).into_response())
}

fn logprobs(chat: &ChatFields) -> Result<Option<usize>, ApiError> {
    let top = check_logprobs("top_logprobs", chat.top_logprobs.unwrap_or(0))?;
    // llama.cpp and some clients ask for alternatives only.
    let wanted = chat.logprobs.unwrap_or(chat.top_logprobs.is_some());
    Ok(wanted.then_some(top))
}

/// The fields that all chunks of a response share.
struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn new(model: &ServedModel) -> Self {
        Self { id: unique("chatcmpl-"), created: now(), model: model.id().to_owned() }
    }
}

fn completion(head: &Head, model: &ServedModel, answer: &Answers) -> Value {
    let choices = answer.choices.iter().enumerate();
    let choices: Vec<_> =
        choices.map(|(index, choice)| full_choice(index, choice, model)).collect();
    let mut body = json!({
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": FINGERPRINT,
        "choices": choices,
        "usage": UsageJson::from(answer.usage),
    });
    if let Some(timings) = answer.timings() {
        body["timings"] = json!(TimingsJson::from(timings));
    }
    body
}

fn full_choice(index: usize, choice: &Choice, model: &ServedModel) -> Value {
    let answer = &choice.answer;
    let mut message = json!({ "role": "assistant", "content": answer.content, "refusal": null });
    if !answer.reasoning.is_empty() {
        message["reasoning_content"] = json!(answer.reasoning);
    }
    if !answer.calls.is_empty() {
        if answer.content.is_empty() {
            message["content"] = Value::Null;
        }
        let call = |call: &AnswerCall| {
            let function = json!({ "name": call.name, "arguments": call.arguments });
            json!({ "id": call.id, "type": "function", "function": function })
        };
        message["tool_calls"] = answer.calls.iter().map(call).collect();
    }
    let logprobs = (!choice.logprobs.is_empty())
        .then(|| chat_logprobs(model.model().tokenizer(), &choice.logprobs));
    let reason = choice.end.map(|end| finish_reason(end.reason, end.calls_tools));
    json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": reason })
}

/// The stream of a conversation.
struct Chunks {
    head: Head,
    model: Arc<ServedModel>,
    include_usage: bool,
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'static str,
    choices: &'a [ChunkChoice],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<TimingsJson>,
}

#[derive(Serialize)]
struct ChunkChoice {
    index: usize,
    delta: DeltaJson,
    logprobs: Option<Value>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct DeltaJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Value>,
}

impl DeltaJson {
    fn of(delta: Delta) -> Option<Self> {
        Some(match delta {
            Delta::Content(text) => Self { content: Some(text), ..Self::default() },
            Delta::Reasoning(text) => Self { reasoning_content: Some(text), ..Self::default() },
            Delta::CallStart { index, id, name } => {
                let function = json!({ "name": name, "arguments": "" });
                let call =
                    json!({ "index": index, "id": id, "type": "function", "function": function });
                Self { tool_calls: Some(json!([call])), ..Self::default() }
            }
            Delta::CallArguments { index, fragment } => {
                let call = json!({ "index": index, "function": { "arguments": fragment } });
                Self { tool_calls: Some(json!([call])), ..Self::default() }
            }
            Delta::CallEnd { .. } => return None,
        })
    }
}

impl Chunks {
    fn chunk<'a>(&'a self, choices: &'a [ChunkChoice]) -> Chunk<'a> {
        Chunk {
            id: &self.head.id,
            object: "chat.completion.chunk",
            created: self.head.created,
            model: &self.head.model,
            system_fingerprint: FINGERPRINT,
            choices,
            usage: None,
            timings: None,
        }
    }

    fn choice(&self, choice: ChunkChoice, out: &mut Frames) {
        out.json(&self.chunk(&[choice]));
    }
}

impl Encoder for Chunks {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Started { num_choices, .. } => {
                for index in 0..num_choices {
                    let delta = DeltaJson {
                        role: Some("assistant"),
                        content: Some(String::new()),
                        ..DeltaJson::default()
                    };
                    let choice = ChunkChoice { index, delta, logprobs: None, finish_reason: None };
                    self.choice(choice, out);
                }
            }
            Update::Delta { choice, delta, logprobs } => {
                let Some(delta) = DeltaJson::of(delta) else { return };
                let logprobs = (!logprobs.is_empty())
                    .then(|| chat_logprobs(self.model.model().tokenizer(), &logprobs));
                let choice = ChunkChoice { index: choice, delta, logprobs, finish_reason: None };
                self.choice(choice, out);
            }
            Update::Finished { choice, reason, calls_tools, timings, .. } => {
                let choice = ChunkChoice {
                    index: choice,
                    delta: DeltaJson::default(),
                    logprobs: None,
                    finish_reason: Some(finish_reason(reason, calls_tools)),
                };
                let choices = [choice];
                let timings = Some(TimingsJson::from(&timings));
                out.json(&Chunk { timings, ..self.chunk(&choices) });
            }
            Update::Ended { usage } => {
                if self.include_usage {
                    let usage = Some(UsageJson::from(usage));
                    out.json(&Chunk { usage, ..self.chunk(&[]) });
                }
                out.done();
            }
            Update::Failed(error) => fail(&error.into(), out),
            _ => {}
        }
    }
}
