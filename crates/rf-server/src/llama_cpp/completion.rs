//! `POST /completion` and `POST /infill` of llama.cpp's server.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rocmforge::Answers;
use rocmforge::engine::{StopReason, Timings};
use rocmforge::messages::Delta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::is_cut_off;
use crate::api::logprobs::{ScoredToken, WithAlternatives, with_alternatives};
use crate::api::timings::TimingsJson;
use crate::body::Fields;
use crate::error::{Api, ApiError};
use crate::fields::{PromptItem, TextOr};
use crate::generation::{Generation, Job, TokenLogprob, Update, Usage};
use crate::grammar::GrammarFields;
use crate::infill::{self, ExtraFile};
use crate::prompt::{check_texts, on_blocking_pool};
use crate::request_id::RequestId;
use crate::sampling::{Params, SamplingFields, check_logprobs};
use crate::state::{App, ServedModel};
use crate::stream::{self, Encoder, Frames, Framing};

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "LlamaCppCompletionFields")]
pub(crate) struct CompletionFields {
    model: Option<String>,
    prompt: Option<TextOr<PromptItem>>,
    stream: Option<bool>,
    n_probs: Option<usize>,
    cache_prompt: Option<bool>,
}

/// Continues a text.
pub(crate) async fn completion(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let CompletionFields { prompt, .. } = fields.read()?;
    let (model, params, stream) = common(&app, &fields).await?;
    prompt.iter().try_for_each(|prompt| check_texts(&model, prompt))?;
    let prompt = on_blocking_pool(model.model(), move |model| match prompt {
        None => Err(ApiError::field("prompt", "expected a text or token ids")),
        Some(TextOr::Text(text)) => Ok(model.text_ids(&text)),
        // Ids and texts may be mixed; only the beginning of the prompt gets BOS.
        Some(TextOr::List(items)) => {
            let mut ids = Vec::new();
            for item in items {
                match item {
                    PromptItem::Id(id) => ids.push(id),
                    PromptItem::Text(text) if ids.is_empty() => ids = model.text_ids(&text),
                    PromptItem::Text(text) => ids.extend(model.rendered_ids(&text)),
                    PromptItem::Ids(_) => {
                        let message = "send one prompt per request, or use /v1/completions";
                        return Err(ApiError::field("prompt", message));
                    }
                }
            }
            Ok(ids)
        }
    });
    let prompt = prompt.await?;
    let structure = fields.read::<GrammarFields>()?.structure()?;
    drop(fields);
    let job = Job::text(prompt, params).with_structure(structure, &model).await?;
    answer(&model, job, stream, request_id).await
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct InfillFields {
    input_prefix: Option<String>,
    input_suffix: Option<String>,
    prompt: Option<String>,
    input_extra: Option<Vec<InputExtra>>,
}

#[derive(Deserialize, JsonSchema)]
struct InputExtra {
    filename: Option<String>,
    text: String,
}

/// Fills the gap between two texts.
pub(crate) async fn infill(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let infill: InfillFields = fields.read()?;
    let (model, params, stream) = common(&app, &fields).await?;
    drop(fields);
    let limit = model.prompt_limit();
    let prompt = on_blocking_pool(model.model(), move |model| {
        let file = |extra: InputExtra| ExtraFile {
            name: extra.filename.unwrap_or_else(|| "tmp".to_owned()),
            text: extra.text,
        };
        let files: Vec<_> = infill.input_extra.into_iter().flatten().map(file).collect();
        let prefix = infill.input_prefix.unwrap_or_default() + &infill.prompt.unwrap_or_default();
        let suffix = infill.input_suffix.unwrap_or_default();
        infill::ids(model, limit, (&prefix, &suffix), &files)
    });
    let prompt = prompt.await?;
    answer(&model, Job::text(prompt, params), stream, request_id).await
}

/// The model, the parameters, and whether to stream.
async fn common(app: &App, fields: &Fields) -> Result<(Arc<ServedModel>, Params, bool), ApiError> {
    let completion: CompletionFields = fields.read()?;
    let model = app.model(completion.model.as_deref()).await?;
    let sampling: SamplingFields = fields.read()?;
    let mut params = sampling.params(model.model(), model.sampling())?;
    if params.num_choices > 1 {
        return Err(ApiError::field("n", "use /v1/completions for more than one choice"));
    }
    let n_probs = check_logprobs("n_probs", completion.n_probs.unwrap_or(0))?;
    params.logprobs = (n_probs > 0).then_some(n_probs);
    params.use_prefix_cache = completion.cache_prompt.unwrap_or(true);
    Ok((model, params, completion.stream.unwrap_or(false)))
}

async fn answer(
    model: &Arc<ServedModel>,
    job: Job,
    stream: bool,
    request_id: RequestId,
) -> Result<Response, ApiError> {
    let generation = Generation::submit(model, vec![job], request_id)?;
    if stream {
        let encoder = Lines { model: Arc::clone(model), end: None };
        return Ok(stream::response(generation, encoder, Framing::Events));
    }
    let Answers { mut choices, usage, .. } = generation.answers().await?;
    let choice = choices.pop().unwrap_or_default();
    let Some(end) = choice.end else {
        return Err(ApiError::internal(&"a generation ended without a choice"));
    };
    let ended = Ended { reason: end.reason, stop_string: choice.stop_string, timings: end.timings };
    let body = CompletionJson {
        content: choice.answer.content,
        completion_probabilities: probabilities(model, &choice.logprobs),
        ..CompletionJson::last(model, &ended, usage)
    };
    Ok(Json(body).into_response())
}

/// A whole text, or a part of one in a stream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LlamaCppCompletion")]
pub(crate) struct CompletionJson<'a> {
    index: usize,
    content: String,
    stop: bool,
    #[serde(flatten)]
    end: Option<CompletionEnd<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_probabilities: Option<Vec<WithAlternatives<ProbableToken>>>,
}

/// The fields of a text that has ended.
#[derive(Serialize, JsonSchema)]
struct CompletionEnd<'a> {
    model: &'a str,
    tokens_predicted: usize,
    tokens_evaluated: usize,
    tokens_cached: usize,
    truncated: bool,
    stop_type: &'static str,
    /// The stop string that ended the text; empty if none did.
    stopping_word: &'a str,
    timings: TimingsJson,
}

#[derive(Serialize, JsonSchema)]
struct ProbableToken {
    id: u32,
    token: String,
    bytes: Vec<u8>,
    logprob: f64,
}

impl From<ScoredToken> for ProbableToken {
    fn from(ScoredToken { id, text, bytes, logprob }: ScoredToken) -> Self {
        Self { id, token: text, bytes, logprob }
    }
}

/// The end of a text.
struct Ended {
    reason: StopReason,
    stop_string: Option<String>,
    timings: Timings,
}

impl<'a> CompletionJson<'a> {
    /// A part of a text.
    fn part(content: String) -> Self {
        Self { index: 0, content, stop: false, end: None, completion_probabilities: None }
    }

    /// The last object of a stream, which has no text.
    fn last(model: &'a ServedModel, ended: &'a Ended, usage: Usage) -> Self {
        let Ended { reason, stop_string, timings } = ended;
        let stop_type = match *reason {
            reason if is_cut_off(reason) => "limit",
            StopReason::StopString => "word",
            _ => "eos",
        };
        let end = CompletionEnd {
            model: model.id(),
            tokens_predicted: timings.generated_tokens,
            tokens_evaluated: usage.prompt_tokens,
            tokens_cached: usage.cached_tokens,
            // The last token is not computed, so it needs no room in the context.
            truncated: *reason == StopReason::ContextFull
                || timings.prompt_tokens + timings.generated_tokens
                    > model.handle().max_sequence_tokens() + 1,
            stop_type,
            stopping_word: stop_string.as_deref().unwrap_or_default(),
            timings: TimingsJson::from(timings),
        };
        Self { stop: true, end: Some(end), ..Self::part(String::new()) }
    }
}

fn probabilities(
    model: &ServedModel,
    logprobs: &[TokenLogprob],
) -> Option<Vec<WithAlternatives<ProbableToken>>> {
    (!logprobs.is_empty()).then(|| with_alternatives(model.model().tokenizer(), logprobs))
}

/// The stream of a text.
struct Lines {
    model: Arc<ServedModel>,
    end: Option<Ended>,
}

impl Encoder for Lines {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Delta { delta: Delta::Content(text), logprobs, .. } => {
                let completion_probabilities = probabilities(&self.model, &logprobs);
                out.json(&CompletionJson {
                    completion_probabilities,
                    ..CompletionJson::part(text)
                });
            }
            // Texts have neither reasoning nor calls.
            Update::Finished { reason, stop_string, timings, .. } => {
                self.end = Some(Ended { reason, stop_string, timings });
            }
            Update::Ended { usage } => {
                if let Some(ended) = &self.end {
                    out.json(&CompletionJson::last(&self.model, ended, usage));
                }
            }
            Update::Failed(error) => out.json(&ApiError::from(error).body(Api::OpenAi)),
            _ => {}
        }
    }
}
