//! `POST /v1/completions`.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rocmforge::Answers;
use rocmforge::engine::{DecodeOptions, Model, Tokenizer};
use rocmforge::messages::Delta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Completion, StreamOptions, UsageJson, fail, finish_reason, includes_usage};
use crate::api::FINGERPRINT;
use crate::api::logprobs::{finite, piece};
use crate::api::timings::TimingsJson;
use crate::body::Fields;
use crate::error::ApiError;
use crate::fields::{Logprobs, PromptItem, TextOr};
use crate::generation::{Generation, Job, PromptLogprobs, TokenLogprob, Update};
use crate::grammar::GrammarFields;
use crate::infill;
use crate::longest_token::TextLimit;
use crate::prompt::{check_texts, on_blocking_pool};
use crate::request_id::{RequestId, unique};
use crate::sampling::{SamplingFields, check_logprobs};
use crate::state::{App, ServedModel, now};
use crate::stream::{self, Encoder, Frames, Framing};

/// The fields of a request, besides those of sampling.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CompletionFields {
    pub(super) model: Option<String>,
    pub(super) prompt: Option<TextOr<PromptItem>>,
    pub(super) suffix: Option<String>,
    echo: Option<bool>,
    logprobs: Option<Logprobs>,
    best_of: Option<usize>,
    pub(super) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    cache_prompt: Option<bool>,
}

/// Most prompts of one request.
const MAX_PROMPTS: usize = 1024;

/// Continues texts.
pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let completion: CompletionFields = fields.read()?;
    let model = app.model(completion.model.as_deref()).await?;
    let sampling: SamplingFields = fields.read()?;
    let mut params = sampling.params(model.model(), model.sampling())?;
    params.logprobs = match completion.logprobs {
        None | Some(Logprobs::Flag(false)) => None,
        Some(Logprobs::Flag(true)) => Some(1),
        Some(Logprobs::Count(count)) => Some(check_logprobs("logprobs", count)?),
    };
    params.use_prefix_cache = completion.cache_prompt.unwrap_or(true);
    if completion.best_of.is_some_and(|best_of| best_of > params.num_choices) {
        return Err(ApiError::field("best_of", "more than `n` is not supported"));
    }
    let echo = completion.echo.unwrap_or(false);
    params.prompt_logprobs = params.logprobs.filter(|_| echo);
    let echoes_logprobs = params.prompt_logprobs.is_some();
    let prompts = read_prompts(&model, completion.prompt, completion.suffix).await?;
    let echoed =
        if echo { prompts.iter().map(|prompt| prompt.text.clone()).collect() } else { vec![] };
    let choices_per_prompt = params.num_choices;
    let structure = fields.read::<GrammarFields>()?.structure()?;
    drop(fields);
    let mut jobs = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let mut job = Job::text(prompt.ids, params.clone());
        // All have the same structure, which is compiled once.
        let compiled = jobs.first().and_then(|first: &Job| first.request.constraint.as_ref());
        match compiled {
            Some(compiled) => job.request.constraint = Some(compiled.fork()),
            None => job = job.with_structure(structure.clone(), &model).await?,
        }
        jobs.push(job);
    }
    let generation = Generation::submit(&model, jobs, request_id)?;
    let (id, created) = (unique("cmpl-"), now());
    let head = Head { id, created, model, echoed, echoes_logprobs, choices_per_prompt };
    if completion.stream.unwrap_or(false) {
        let include_usage = includes_usage(completion.stream_options);
        let encoder = Chunks { head, include_usage, offsets: Vec::new() };
        return Ok(stream::response(generation, encoder, Framing::Events));
    }
    let answer = generation.answers().await?;
    Ok(head.completion(answer))
}

/// Tokenizes the prompts of a request.
pub(super) async fn read_prompts(
    model: &Arc<ServedModel>,
    prompt: Option<TextOr<PromptItem>>,
    suffix: Option<String>,
) -> Result<Vec<Prompt>, ApiError> {
    prompt.iter().try_for_each(|prompt| check_texts(model, prompt))?;
    let limit = model.prompt_limit();
    on_blocking_pool(model.model(), move |model| prompts(model, limit, prompt, suffix)).await
}

/// A prompt as text and as ids.
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
}

impl Prompt {
    fn of_text(model: &Model, text: String) -> Self {
        Self { ids: model.text_ids(&text), text }
    }

    fn of_ids(model: &Model, ids: Vec<u32>) -> Result<Self, ApiError> {
        let options = DecodeOptions::default().with_render_special(true);
        let text = model
            .tokenizer()
            .decode(&ids, options)
            .map_err(|error| ApiError::field("prompt", error))?;
        Ok(Self { text, ids })
    }
}

fn prompts(
    model: &Model,
    limit: TextLimit,
    prompt: Option<TextOr<PromptItem>>,
    suffix: Option<String>,
) -> Result<Vec<Prompt>, ApiError> {
    let items = match prompt {
        None => return Err(ApiError::field("prompt", "expected a text or token ids")),
        Some(TextOr::Text(text)) => match suffix.filter(|suffix| !suffix.is_empty()) {
            Some(suffix) => {
                let ids = infill::ids(model, limit, (&text, &suffix), &[])?;
                return Ok(vec![Prompt { text, ids }]);
            }
            None => return Ok(vec![Prompt::of_text(model, text)]),
        },
        Some(TextOr::List(items)) => items,
    };
    if items.len() > MAX_PROMPTS && !matches!(items[0], PromptItem::Id(_)) {
        let message = format!("{} prompts; the maximum is {MAX_PROMPTS}", items.len());
        return Err(ApiError::field("prompt", message));
    }
    let mut ids = Vec::new();
    let mut prompts = Vec::new();
    for item in items {
        match item {
            PromptItem::Id(id) => ids.push(id),
            PromptItem::Ids(ids) => prompts.push(Prompt::of_ids(model, ids)?),
            PromptItem::Text(text) => prompts.push(Prompt::of_text(model, text)),
        }
    }
    match (ids.is_empty(), prompts.is_empty()) {
        (true, false) => Ok(prompts),
        (false, true) => Ok(vec![Prompt::of_ids(model, ids)?]),
        (true, true) => Err(ApiError::field("prompt", "the list is empty")),
        (false, false) => Err(ApiError::field("prompt", "ids and texts are mixed in one list")),
    }
}

/// The fields that all chunks of a response share.
struct Head {
    id: String,
    created: u64,
    model: Arc<ServedModel>,
    /// The prompts, if they are part of the text.
    echoed: Vec<String>,
    /// True if the prompts come with log probabilities.
    echoes_logprobs: bool,
    choices_per_prompt: usize,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct TextChoice<'a> {
    text: Cow<'a, str>,
    index: usize,
    logprobs: Option<TextLogprobs>,
    finish_reason: Option<&'static str>,
}

/// The tokens of a text with their log probabilities. The first one of a prompt has none.
#[derive(Default, Serialize, JsonSchema)]
struct TextLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
    /// The alternatives of each token, by text.
    top_logprobs: Vec<Option<Map<String, Value>>>,
    /// The character at which each token begins.
    text_offset: Vec<usize>,
}

impl Head {
    fn body<'a>(&'a self, choices: Vec<TextChoice<'a>>) -> Completion<'a, TextChoice<'a>> {
        Completion {
            id: &self.id,
            object: "text_completion",
            created: self.created,
            model: self.model.id(),
            system_fingerprint: FINGERPRINT,
            choices,
            usage: None,
            timings: None,
        }
    }

    fn echoed(&self, choice: usize) -> Option<&str> {
        self.echoed.get(choice / self.choices_per_prompt).map(String::as_str)
    }

    fn completion(&self, answer: Answers) -> Response {
        let timings = answer.timings().map(TimingsJson::from);
        let usage = Some(UsageJson::from(answer.usage));
        let prompts = &answer.prompts;
        let choice = |(index, choice): (usize, rocmforge::Choice)| {
            let prompt = prompts.get(index / self.choices_per_prompt).and_then(Option::as_ref);
            let tokens = prompt.into_iter().flat_map(entries).chain(generated(&choice.logprobs));
            let logprobs = self.logprobs(tokens, &mut 0);
            let text = self.echoed(index).unwrap_or_default().to_owned() + &choice.answer.content;
            let finish_reason = choice.end.map(|end| finish_reason(end.reason, end.calls_tools));
            TextChoice { text: text.into(), index, logprobs, finish_reason }
        };
        let choices = answer.choices.into_iter().enumerate().map(choice).collect();
        Json(Completion { usage, timings, ..self.body(choices) }).into_response()
    }

    /// Log probabilities of tokens, of which the first one begins at character `offset`.
    fn logprobs<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>>,
        offset: &mut usize,
    ) -> Option<TextLogprobs> {
        let tokenizer = self.model.model().tokenizer();
        let mut logprobs = TextLogprobs::default();
        for (id, found) in entries {
            let token = String::from_utf8_lossy(&piece(tokenizer, id)).into_owned();
            logprobs.text_offset.push(*offset);
            *offset += token.chars().count();
            logprobs.tokens.push(token);
            logprobs.token_logprobs.push(found.map(|found| finite(found.logprob)));
            logprobs.top_logprobs.push(found.map(|found| top(tokenizer, found)));
        }
        (!logprobs.tokens.is_empty()).then_some(logprobs)
    }
}

/// A token with its log probability; the first one of a prompt has none.
type Entry<'a> = (u32, Option<&'a TokenLogprob>);

fn entries(prompt: &PromptLogprobs) -> impl Iterator<Item = Entry<'_>> {
    std::iter::once((prompt.first, None)).chain(generated(&prompt.rest))
}

fn generated(logprobs: &[TokenLogprob]) -> impl Iterator<Item = Entry<'_>> {
    logprobs.iter().map(|found| (found.id, Some(found)))
}

/// The alternatives of a token, by text.
fn top(tokenizer: &Tokenizer, found: &TokenLogprob) -> Map<String, Value> {
    let entry = |&(id, logprob): &(u32, f32)| {
        let text = String::from_utf8_lossy(&piece(tokenizer, id)).into_owned();
        (text, Value::from(finite(logprob)))
    };
    found.top.iter().map(entry).collect()
}

/// The stream of texts.
struct Chunks {
    head: Head,
    include_usage: bool,
    /// Characters of each choice so far, for log probabilities.
    offsets: Vec<usize>,
}

impl Chunks {
    fn choice<'a>(
        &mut self,
        index: usize,
        text: &str,
        logprobs: impl Iterator<Item = Entry<'a>>,
        out: &mut Frames,
    ) {
        if self.offsets.len() <= index {
            self.offsets.resize(index + 1, 0);
        }
        let logprobs = self.head.logprobs(logprobs, &mut self.offsets[index]);
        let choice = TextChoice { text: text.into(), index, logprobs, finish_reason: None };
        out.json(&self.head.body(vec![choice]));
    }
}

impl Encoder for Chunks {
    fn encode(&mut self, update: Update, out: &mut Frames) {
        match update {
            Update::Started { job, num_choices, .. } => {
                if self.head.echoes_logprobs {
                    return;
                }
                for index in job * num_choices..(job + 1) * num_choices {
                    if let Some(text) = self.head.echoed(index).map(str::to_owned) {
                        self.choice(index, &text, std::iter::empty(), out);
                    }
                }
            }
            Update::Prompt { job, prompt } => {
                let num_choices = self.head.choices_per_prompt;
                for index in job * num_choices..(job + 1) * num_choices {
                    let text = self.head.echoed(index).unwrap_or_default().to_owned();
                    self.choice(index, &text, entries(&prompt), out);
                }
            }
            Update::Delta { choice, delta: Delta::Content(text), logprobs } => {
                self.choice(choice, &text, generated(&logprobs), out);
            }
            // Texts have neither reasoning nor calls.
            Update::Finished { choice, reason, calls_tools, timings, .. } => {
                let choice = TextChoice {
                    text: Cow::Borrowed(""),
                    index: choice,
                    logprobs: None,
                    finish_reason: Some(finish_reason(reason, calls_tools)),
                };
                let timings = Some(TimingsJson::from(&timings));
                out.json(&Completion { timings, ..self.head.body(vec![choice]) });
            }
            Update::Ended { usage } => {
                if self.include_usage {
                    let usage = Some(UsageJson::from(usage));
                    out.json(&Completion { usage, ..self.head.body(Vec::new()) });
                }
                out.done();
            }
            Update::Failed(error) => fail(&error.into(), out),
            _ => {}
        }
    }
}
