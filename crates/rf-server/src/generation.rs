//! From prompts to a stream of updates. Every API that generates goes through here.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rf_chat::{ChatPrompt, Delta, OutputParser, Prompt};
use rf_engine::scheduler::{
    Constraint, Event, Handle, Request, RequestError, RequestId as SequenceId, Sink, SubmitError,
};
use rf_engine::{StopReason, Timings};

use crate::access::RequestId;
use crate::error::{ApiError, Kind};
use crate::events::{self, EventReceiver, EventSender};
use crate::grammar::Structure;
use crate::metrics::RequestMeter;
use crate::prompt::beside;
use crate::sampling::Params;
use crate::state::ServedModel;

/// A prompt and how to continue it.
pub(crate) struct Job {
    pub(crate) prompt: Vec<u32>,
    pub(crate) params: Params,
    /// How to read the answer; `None` for a text that is no message.
    pub(crate) chat: Option<Prompt>,
    /// The structure that the answer must have.
    pub(crate) constraint: Option<Box<dyn Constraint>>,
}

impl Job {
    /// The continuation of a text.
    pub(crate) fn text(prompt: Vec<u32>, params: Params) -> Self {
        Self { prompt, params, chat: None, constraint: None }
    }

    /// The answer to a conversation.
    pub(crate) fn chat(prompt: ChatPrompt, mut params: Params) -> Self {
        params.options.rendered_tokens = prompt.rendered_tokens;
        Self { prompt: prompt.ids, params, chat: Some(prompt.prompt), constraint: None }
    }

    /// Adds the structure that the answer must have.
    pub(crate) async fn with_structure(
        mut self,
        structure: Structure,
        model: &Arc<ServedModel>,
    ) -> Result<Self, ApiError> {
        if structure.is_free(self.chat.as_ref()) {
            return Ok(self);
        }
        let served = Arc::clone(model);
        beside(model.model(), move |_| {
            self.constraint = structure.constraint(&*served.compiler()?, self.chat.as_ref())?;
            Ok(self)
        })
        .await
    }
}

/// The events since the last update.
#[derive(Debug)]
pub(crate) enum Update {
    /// A prompt is being computed.
    Started { job: usize, num_choices: usize, usage: Usage },
    /// A prompt has been computed whose log probabilities were asked for.
    Prompt { job: usize, prompt: PromptLogprobs },
    /// The message of a choice grows.
    Delta { choice: usize, delta: Delta, logprobs: Vec<TokenLogprob> },
    /// A choice is complete.
    Finished {
        choice: usize,
        reason: StopReason,
        /// The stop string that ended it, if one did.
        stop_string: Option<String>,
        calls_tools: bool,
        timings: Timings,
    },
    /// All choices are complete. This is the last update.
    Ended { usage: Usage },
    /// The request failed. This is the last update.
    Failed(ApiError),
}

/// Tokens of a request, of all its prompts and choices together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the unit")]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    /// Tokens of the prompts that were not computed, because the cache had them.
    pub(crate) cached_tokens: usize,
    pub(crate) completion_tokens: usize,
    /// Those of the completion that were reasoning.
    pub(crate) reasoning_tokens: usize,
}

/// The log probability of a token, and of the most probable ones in its place.
#[derive(Clone, Debug)]
pub(crate) struct TokenLogprob {
    pub(crate) id: u32,
    pub(crate) logprob: f32,
    pub(crate) top: Vec<(u32, f32)>,
}

/// The tokens of a prompt with their log probabilities.
#[derive(Debug)]
pub(crate) struct PromptLogprobs {
    /// The first token, which nothing predicts.
    pub(crate) first: u32,
    pub(crate) rest: Vec<TokenLogprob>,
}

impl TokenLogprob {
    fn new(id: u32, found: rf_engine::scheduler::TokenLogprob) -> Self {
        Self { id, logprob: found.logprob, top: found.top }
    }
}

/// Updates of a request that waits, as events: a reader that is slower than this many tokens loses
/// its request, and nobody else waits for it.
const BUFFERED_EVENTS: usize = 2048;

/// A running request. Dropping it cancels what is not finished.
pub(crate) struct Generation {
    receiver: EventReceiver,
    sequences: Sequences,
    ready: VecDeque<Update>,
    choices: Vec<Choice>,
    choices_per_job: usize,
    unfinished: usize,
    usage: Usage,
    ended: bool,
    request_id: RequestId,
    /// The tokens of the prompts whose log probabilities are wanted.
    prompts: Vec<Vec<u32>>,
    /// It stays loaded until the end.
    _model: Arc<ServedModel>,
}

struct Choice {
    parser: OutputParser,
    logprobs: Vec<TokenLogprob>,
    /// Tokens since the last piece of the message.
    unread_tokens: usize,
}

/// Sequences that are cancelled when the request ends before them.
struct Sequences {
    handle: Handle,
    ids: Vec<SequenceId>,
}

impl Drop for Sequences {
    fn drop(&mut self) {
        for id in &self.ids {
            self.handle.cancel(*id);
        }
    }
}

impl Generation {
    /// Puts prompts into the queue of a model. All have the same number of choices.
    pub(crate) fn submit(
        model: &Arc<ServedModel>,
        jobs: Vec<Job>,
        request_id: RequestId,
    ) -> Result<Self, ApiError> {
        let (sender, receiver) = events::queue(BUFFERED_EVENTS);
        let choices_per_job = jobs.first().map_or(1, |job| job.params.num_choices);
        let mut choices = Vec::with_capacity(jobs.len() * choices_per_job);
        let mut sequences = Sequences { handle: model.handle().clone(), ids: Vec::new() };
        let wants_prompt = |job: &&Job| job.params.prompt_logprobs.is_some();
        let prompts = jobs.iter().filter(wants_prompt).map(|job| job.prompt.clone()).collect();
        for (index, job) in jobs.into_iter().enumerate() {
            let params = &job.params;
            choices.extend((0..choices_per_job).map(|_| Choice {
                parser: job.chat.as_ref().map_or_else(OutputParser::plain, Prompt::parser),
                logprobs: Vec::new(),
                unread_tokens: 0,
            }));
            let meter = RequestMeter::new(Arc::clone(model.metrics()), params);
            let sink = Forward { job: index, sender: sender.clone(), meter };
            let request = Request {
                num_choices: params.num_choices,
                priority: params.priority,
                logprobs: params.logprobs,
                prompt_logprobs: params.prompt_logprobs,
                constraint: job.constraint,
                use_prefix_cache: params.use_prefix_cache,
                ..Request::new(job.prompt, params.options.clone())
            };
            let sequence = model.handle().submit(request, sink).map_err(|error| {
                model.metrics().count_rejected();
                refusal(&error)
            })?;
            sequences.ids.push(sequence);
        }
        Ok(Self {
            receiver,
            sequences,
            ready: VecDeque::new(),
            unfinished: choices.len(),
            choices,
            choices_per_job,
            usage: Usage::default(),
            ended: false,
            request_id,
            prompts,
            _model: Arc::clone(model),
        })
    }

    /// The next update; `None` after the last one. Without `wants_tokens`, the tokens of a choice
    /// may wait for its end.
    pub(crate) fn poll_update(
        &mut self,
        cx: &mut Context<'_>,
        wants_tokens: bool,
    ) -> Poll<Option<Update>> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Poll::Ready(Some(update));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.receiver.poll(cx, wants_tokens)) {
                Some((job, event)) => self.receive(job, event),
                None => self.fail(self.lost()),
            }
        }
    }

    /// The next update, for those who need the whole answer; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<Update> {
        poll_fn(|cx| self.poll_update(cx, false)).await
    }

    fn receive(&mut self, job: usize, event: Event) {
        let first_choice = job * self.choices_per_job;
        match event {
            Event::Started { cached_tokens, prompt_tokens, .. } => {
                self.usage.prompt_tokens += prompt_tokens;
                self.usage.cached_tokens += cached_tokens;
                let (num_choices, usage) = (self.choices_per_job, self.usage);
                self.ready.push_back(Update::Started { job, num_choices, usage });
            }
            Event::Prompt { logprobs } => {
                let ids = self.prompts.get_mut(job).map(std::mem::take).unwrap_or_default();
                let mut ids = ids.into_iter();
                let first = ids.next().unwrap_or_default();
                let rest = ids.zip(logprobs).map(|(id, found)| TokenLogprob::new(id, found));
                let prompt = PromptLogprobs { first, rest: rest.collect() };
                self.ready.push_back(Update::Prompt { job, prompt });
            }
            Event::Token { choice, id, text, logprob } => {
                self.usage.completion_tokens += 1;
                if let Some(state) = self.choices.get_mut(first_choice + choice) {
                    state.unread_tokens += 1;
                }
                let logprob = logprob.map(|found| TokenLogprob::new(id, found));
                self.text(first_choice + choice, &text, logprob);
            }
            // Our own cancellations drop the receiver, so this is the end of the scheduler.
            Event::Finished { reason: StopReason::Cancelled, .. } => self.fail(shutting_down()),
            Event::Finished { choice, reason, text, stop_string, timings, .. } => {
                let index = first_choice + choice;
                self.text(index, &text, None);
                let Some(state) = self.choices.get_mut(index) else { return };
                let rest = state.parser.finish();
                let calls_tools = state.parser.calls_tools();
                self.deltas(index, rest);
                self.ready.push_back(Update::Finished {
                    choice: index,
                    reason,
                    stop_string,
                    calls_tools,
                    timings,
                });
                self.unfinished = self.unfinished.saturating_sub(1);
                if self.unfinished == 0 {
                    self.ready.push_back(Update::Ended { usage: self.usage });
                    self.ended = true;
                }
            }
            Event::Failed(error) => self.fail(failure(&error)),
            _ => {}
        }
    }

    fn text(&mut self, index: usize, text: &str, logprob: Option<TokenLogprob>) {
        let Some(state) = self.choices.get_mut(index) else { return };
        state.logprobs.extend(logprob);
        let deltas = state.parser.push(text);
        self.deltas(index, deltas);
    }

    /// Tokens are reported with the first piece of text that they belong to.
    fn deltas(&mut self, choice: usize, deltas: Vec<Delta>) {
        let Some(state) = self.choices.get_mut(choice) else { return };
        // Markers, which are no piece themselves, count with the piece that they lead to.
        if let Some(first) = deltas.first() {
            let tokens = std::mem::take(&mut state.unread_tokens);
            if matches!(first, Delta::Reasoning(_)) {
                self.usage.reasoning_tokens += tokens;
            }
        }
        for delta in deltas {
            let logprobs = std::mem::take(&mut state.logprobs);
            self.ready.push_back(Update::Delta { choice, delta, logprobs });
        }
    }

    fn fail(&mut self, error: ApiError) {
        self.ready.push_back(Update::Failed(error));
        self.ended = true;
    }

    /// Why the events ended before the last choice.
    fn lost(&self) -> ApiError {
        if self.receiver.has_overflowed() {
            let message = format!(
                "the answer was read too slowly: more than {BUFFERED_EVENTS} tokens were waiting"
            );
            return ApiError::new(Kind::Timeout, message);
        }
        shutting_down()
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let Usage { prompt_tokens, cached_tokens, completion_tokens, .. } = self.usage;
        tracing::info!(
            request_id = self.request_id.as_str(),
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            complete = self.unfinished == 0,
            "generation"
        );
        if self.unfinished == 0 {
            self.sequences.ids.clear();
        }
    }
}

/// The engine's side: passes events on without ever waiting.
struct Forward {
    job: usize,
    sender: EventSender,
    meter: RequestMeter,
}

impl Sink for Forward {
    fn event(&mut self, event: Event) -> ControlFlow<()> {
        self.meter.event(&event);
        self.sender.send(self.job, event)
    }
}

fn shutting_down() -> ApiError {
    ApiError::new(Kind::Unavailable, "the server is shutting down")
}

/// Why a request was not taken.
fn refusal(error: &SubmitError) -> ApiError {
    let kind = match error {
        SubmitError::QueueFull { .. } => Kind::QueueFull,
        SubmitError::ShuttingDown => return shutting_down(),
        SubmitError::PromptTooLong { .. } => Kind::ContextExceeded,
        _ => Kind::InvalidRequest,
    };
    ApiError::new(kind, error.to_string())
}

/// Why a running request failed.
fn failure(error: &RequestError) -> ApiError {
    match error {
        // Biases and constraints of the request may rule out every token.
        RequestError::Sampling(_) | RequestError::Constraint(_) => {
            ApiError::invalid(error.to_string())
        }
        _ => ApiError::internal(error),
    }
}
