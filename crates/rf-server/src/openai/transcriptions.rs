//! `POST /v1/audio/transcriptions`: the words of a sound, from a model that hears.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rocmforge::messages::{Conversation, Delta, Message};
use rocmforge::{Media, media_marker};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fail;
use crate::attachments::{Attachment, IllustratedConversation};
use crate::error::ApiError;
use crate::generation::{Generation, Job, Update, Usage};
use crate::multipart::Form;
use crate::prompt::rendered;
use crate::request_id::RequestId;
use crate::sampling::SamplingFields;
use crate::state::App;
use crate::stream::{self, Encoder, Frames, Framing};

/// What a model is asked for, unless the request has a prompt. It is that of llama.cpp.
const INSTRUCTION: &str = "Transcribe audio to text";

/// The fields of a request, besides the file and those of sampling.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct TranscriptionFields {
    model: Option<String>,
    /// What the model is asked for, instead of a transcription.
    prompt: Option<String>,
    /// The language of the sound, such as `en`.
    language: Option<String>,
    response_format: Option<TranscriptFormat>,
    stream: Option<bool>,
    temperature: Option<f32>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TranscriptFormat {
    Json,
    Text,
    Srt,
    VerboseJson,
    Vtt,
    DiarizedJson,
}

/// The answer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Transcription {
    text: String,
    usage: TranscriptionUsage,
}

/// An event of a stream.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type")]
pub(crate) enum TranscriptionEvent {
    #[serde(rename = "transcript.text.delta")]
    Delta { delta: String },
    #[serde(rename = "transcript.text.done")]
    Done { text: String, usage: TranscriptionUsage },
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
pub(crate) struct TranscriptionUsage {
    #[serde(rename = "type")]
    kind: &'static str,
    input_tokens: usize,
    output_tokens: usize,
    total_tokens: usize,
}

impl From<Usage> for TranscriptionUsage {
    fn from(usage: Usage) -> Self {
        Self {
            kind: "tokens",
            input_tokens: usage.prompt_tokens,
            output_tokens: usage.completion_tokens,
            total_tokens: usage.prompt_tokens + usage.completion_tokens,
        }
    }
}

/// Writes what is said in a sound.
pub(crate) async fn transcriptions(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    form: Form,
) -> Result<Response, ApiError> {
    let fields: TranscriptionFields = form.fields.read()?;
    let format = fields.response_format.unwrap_or(TranscriptFormat::Json);
    if !matches!(format, TranscriptFormat::Json | TranscriptFormat::Text) {
        let message = "the model gives no times: ask for json or text";
        return Err(ApiError::field("response_format", message));
    }
    let sound = Attachment::Sent(Media::audio(form.file("file")?));
    let model = app.model(fields.model.as_deref()).await?;
    let sampling: SamplingFields = form.fields.read()?;
    drop(form);
    let mut params = sampling.params(model.model(), model.sampling())?;
    if params.num_choices > 1 {
        return Err(ApiError::field("n", "a sound has one transcription"));
    }
    // A transcription is the likeliest text, unless the client wants another one.
    params.options.sampler.temperature = fields.temperature.unwrap_or(0.0);

    let mut text = fields.prompt.unwrap_or_else(|| INSTRUCTION.to_owned());
    if let Some(language) = fields.language.filter(|language| !language.is_empty()) {
        text = format!("{text} (language: {language})");
    }
    text.push_str(media_marker());
    let messages = vec![Message::new("user", text)];
    let conversation = IllustratedConversation {
        conversation: Conversation::default()
            .with_messages(messages)
            .with_reasoning_effort("none".to_owned()),
        attachments: vec![sound],
        field: "file",
    };
    let prompt = rendered(&model, conversation).await?;
    let job = Job::chat(prompt, params);
    let generation = Generation::submit(&model, vec![job], request_id)?;
    if fields.stream.unwrap_or(false) {
        return Ok(stream::response(generation, Events::default(), Framing::Events));
    }
    let answer = generation.answers().await?;
    let usage = answer.usage.into();
    let mut transcript = Transcript::default();
    for choice in &answer.choices {
        transcript.push(&choice.answer.content);
    }
    transcript.finish();
    let text = transcript.text;
    Ok(match format {
        TranscriptFormat::Text => text.into_response(),
        _ => Json(Transcription { text, usage }).into_response(),
    })
}

/// The text of an answer without its head: Qwen3-ASR writes `language English<asr_text>` before it.
#[derive(Default)]
struct Transcript {
    text: String,
    /// The beginning of the answer, as long as it may be a head.
    head: Option<String>,
    is_past_head: bool,
}

impl Transcript {
    const START: &str = "language ";
    const END: &str = "<asr_text>";
    /// The most bytes of a head: the names of languages are shorter.
    const MAX: usize = 64;

    /// Adds a piece of the answer, and returns what it adds to the text.
    fn push(&mut self, piece: &str) -> String {
        if self.is_past_head {
            self.text.push_str(piece);
            return piece.to_owned();
        }
        let head = self.head.get_or_insert_default();
        head.push_str(piece);
        if let Some((start, text)) = head.split_once(Self::END)
            && start.starts_with(Self::START)
            && start.len() <= Self::MAX
        {
            *head = text.to_owned();
        } else if head.len() <= Self::MAX
            && (head.starts_with(Self::START) || Self::START.starts_with(&**head))
        {
            return String::new();
        }
        self.finish()
    }

    /// Ends the head, and returns what it adds to the text.
    fn finish(&mut self) -> String {
        self.is_past_head = true;
        let text = self.head.take().unwrap_or_default();
        self.text.push_str(&text);
        text
    }
}

/// The stream of a transcription.
#[derive(Default)]
struct Events {
    transcript: Transcript,
}

impl Events {
    fn send(delta: String, out: &mut Frames) {
        if !delta.is_empty() {
            out.json(&TranscriptionEvent::Delta { delta });
        }
    }
}

impl Encoder for Events {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Delta { delta: Delta::Content(text), .. } => {
                Self::send(self.transcript.push(&text), out);
            }
            Update::Ended { usage } => {
                Self::send(self.transcript.finish(), out);
                let text = std::mem::take(&mut self.transcript.text);
                out.json(&TranscriptionEvent::Done { text, usage: usage.into() });
                out.done();
            }
            Update::Failed(error) => fail(&error.into(), out),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_qwen3_asr_is_left_out() {
        for (answer, expected) in [
            ("language English<asr_text>How are you?", "How are you?"),
            ("language None<asr_text>", ""),
            ("language matters, they say", "language matters, they say"),
            ("lang", "lang"),
            ("", ""),
            ("Say <asr_text> twice", "Say <asr_text> twice"),
            (
                "language and speech are not the same thing, as every child knows; <asr_text>",
                "language and speech are not the same thing, as every child knows; <asr_text>",
            ),
        ] {
            for length in 1..=answer.len().max(1) {
                let mut transcript = Transcript::default();
                let mut streamed = String::new();
                for piece in answer.as_bytes().chunks(length) {
                    streamed += &transcript.push(str::from_utf8(piece).unwrap());
                }
                streamed += &transcript.finish();
                assert_eq!(streamed, expected, "{answer} in pieces of {length}");
                assert_eq!(transcript.text, expected);
            }
        }
    }
}
