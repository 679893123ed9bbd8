//! Requests of every API that generates, as jobs of their model.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use rocmforge::engine::scheduler::{RequestError, SubmitError};
use rocmforge::engine::{MixedPrompt, StopReason};
use rocmforge::messages::Delta;
use rocmforge::{Answers, Error};

use crate::error::{ApiError, ApiErrorKind};
use crate::grammar::{Structure, compiling};
use crate::keys::SequencePermit;
use crate::metrics::{Rejection, RequestMeter};
use crate::prompt::RenderedChat;
use crate::record::RequestRecord;
use crate::request_id::RequestId;
use crate::sampling::Params;
use crate::state::ServedModel;
use crate::token_rules::TokenRules;

pub(crate) use rocmforge::{GeneratedToken as TokenLogprob, PromptLogprobs, Update, Usage};

/// A prompt and how to continue it.
pub(crate) struct Job {
    pub(crate) request: rocmforge::Job,
    token_rules: TokenRules,
    /// True if the answer may have one call only.
    single_call: bool,
}

impl Job {
    /// The continuation of a text.
    pub(crate) fn text(prompt: impl Into<MixedPrompt>, params: Params) -> Self {
        let request = rocmforge::Job::text(prompt, params.options)
            .with_num_choices(params.num_choices)
            .with_priority(params.priority)
            .with_logprobs(params.logprobs)
            .with_prompt_logprobs(params.prompt_logprobs)
            .with_use_prefix_cache(params.use_prefix_cache)
            .with_adapters(params.adapters);
        Self { request, token_rules: params.token_rules, single_call: false }
    }

    /// The answer to a conversation.
    pub(crate) fn chat(prompt: impl Into<RenderedChat>, params: Params) -> Self {
        let RenderedChat { chat, ids } = prompt.into();
        let mut job = Self::text(ids, params);
        job.request.options.rendered_tokens = chat.rendered_tokens;
        job.request.chat = Some(chat.prompt);
        job
    }

    /// Adds the structure that the answer must have. Compiling it ends no later than the request
    /// waits for it, unless the compiler is at work already.
    pub(crate) async fn with_structure(
        mut self,
        structure: Structure,
        model: &Arc<ServedModel>,
    ) -> Result<Self, ApiError> {
        self.single_call = structure.single_call();
        if structure.is_free(self.request.chat.as_ref()) {
            return Ok(self);
        }
        let served = Arc::clone(model);
        compiling(move || {
            let job = &mut self.request;
            job.constraint = structure.constraint(&*served.compiler()?, job.chat.as_ref())?;
            Ok(self)
        })
        .await
    }

    /// `is_queued` becomes true once the queue has the job.
    fn into_job(self, model: &ServedModel, is_queued: &Arc<AtomicBool>) -> rocmforge::Job {
        let Self { request: mut job, token_rules, .. } = self;
        let trace = RequestRecord::current().and_then(|record| record.trace().cloned());
        let metrics = Arc::clone(model.metrics());
        let mut meter = RequestMeter::new(metrics, &job, model.adapter_name(), trace)
            .with_is_queued(Arc::clone(is_queued));
        job.observer = Some(Box::new(move |event| meter.event(event)));
        job.constraint =
            token_rules.constraint(model.model(), job.chat.as_ref(), job.constraint.take());
        job.adapters = job.adapters.or_else(|| model.adapter_scales());
        if model.shifts_context() {
            job.options.context_shift = true;
            // An answer that no token ends would never end. llama.cpp has the same limit.
            let trained = model.model().config().context_length;
            let most = trained.max(model.handle().max_sequence_tokens());
            let room = most.saturating_sub(job.prompt.len()).max(1);
            job.options.max_tokens.get_or_insert(room);
        }
        job
    }
}

/// A running request. Dropping it cancels what is not finished.
pub(crate) struct Generation {
    /// `None` after it was cut off.
    running: Option<rocmforge::Generation>,
    /// Completes when the server cuts running requests off.
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    request_id: RequestId,
    /// True if calls after the first one are left out.
    single_call: bool,
    record: Option<Arc<RequestRecord>>,
    has_failed: bool,
    _permit: Option<SequencePermit>,
    /// It stays loaded until the end.
    _model: Arc<ServedModel>,
}

impl Generation {
    /// Puts prompts into the queue of a model. All have the same number of choices.
    pub(crate) fn submit(
        model: &Arc<ServedModel>,
        jobs: Vec<Job>,
        request_id: RequestId,
    ) -> Result<Self, ApiError> {
        let single_call = jobs.iter().any(|job| job.single_call);
        let metrics = model.metrics();
        let record = RequestRecord::current();
        let count = jobs.iter().map(|job| job.request.num_choices).sum();
        let priority = jobs.first().map_or(0, |job| job.request.priority);
        let permit = match &record {
            Some(record) => record.begin_sequences(count, priority).inspect_err(|error| {
                metrics.count_rejected(Rejection::of_key(error.kind));
            })?,
            None => None,
        };
        let is_queued = Arc::new(AtomicBool::new(false));
        let jobs = jobs.into_iter().map(|job| job.into_job(model, &is_queued)).collect();
        let running = model.loaded_model().submit(jobs).map_err(|error| {
            let error = ApiError::from(error);
            metrics.count_rejected(Rejection::of(error.kind));
            error
        })?;
        is_queued.store(true, Relaxed);
        Ok(Self {
            running: Some(running),
            cut: Box::pin(model.cut()),
            request_id,
            single_call,
            record,
            has_failed: false,
            _permit: permit,
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
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        let update = loop {
            match running.poll_update(cx, wants_tokens) {
                // With `tool_choice` `auto` no grammar limits the number of calls.
                Poll::Ready(Some(Update::Delta { delta, .. }))
                    if self.single_call && is_later_call(&delta) => {}
                update => break update,
            }
        };
        match &update {
            Poll::Pending => {
                ready!(self.cut.as_mut().poll(cx));
                self.fail(ApiErrorKind::Unavailable);
                self.end();
                return Poll::Ready(Some(Update::Failed(Error::ShuttingDown)));
            }
            Poll::Ready(Some(Update::Failed(error))) => {
                let kind = kind_of(error);
                self.fail(kind);
            }
            Poll::Ready(Some(Update::Finished { reason: StopReason::ConstraintLimit, .. })) => {
                let request_id = self.request_id.as_str();
                tracing::warn!(request_id, "an answer ends at the limit of its grammar");
            }
            Poll::Ready(_) => {}
        }
        update
    }

    /// Waits for the whole answers.
    pub(crate) async fn answers(mut self) -> Result<Answers, ApiError> {
        let mut answers = Answers::default();
        while let Some(update) = poll_fn(|cx| self.poll_update(cx, false)).await {
            answers.push(update)?;
        }
        Ok(answers)
    }

    fn fail(&mut self, kind: ApiErrorKind) {
        self.has_failed = true;
        if let Some(record) = &self.record {
            record.fail(Some(kind));
        }
    }

    /// Cancels what is not finished, and notes what was computed.
    fn end(&mut self) {
        let (Some(running), Some(record)) = (self.running.take(), &self.record) else { return };
        record.spend(running.usage());
        if !running.is_complete() && !self.has_failed {
            record.fail(None);
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns true for a part of a call after the first one.
fn is_later_call(delta: &Delta) -> bool {
    match delta {
        Delta::CallStart { index, .. }
        | Delta::CallArguments { index, .. }
        | Delta::CallEnd { index, .. } => *index > 0,
        Delta::Content(_) | Delta::Reasoning(_) => false,
    }
}

/// Why a request was refused, or failed while it ran.
impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        if let Error::Submit(SubmitError::PromptTooLong { prompt_tokens, most_tokens }) = &error {
            return Self::prompt_too_long(*prompt_tokens, *most_tokens);
        }
        match kind_of(&error) {
            ApiErrorKind::Internal => Self::internal(&error),
            ApiErrorKind::Unavailable => {
                Self::new(ApiErrorKind::Unavailable, "the server is shutting down")
            }
            kind => Self::new(kind, error.to_string()),
        }
    }
}

fn kind_of(error: &Error) -> ApiErrorKind {
    match error {
        Error::Submit(SubmitError::QueueFull { .. }) | Error::QueueFull { .. } => {
            ApiErrorKind::QueueFull
        }
        Error::Submit(SubmitError::ShuttingDown) | Error::ShuttingDown => ApiErrorKind::Unavailable,
        Error::Submit(SubmitError::PromptTooLong { .. }) => ApiErrorKind::ContextExceeded,
        Error::TooSlow { .. } => ApiErrorKind::Timeout,
        Error::Submit(_)
        | Error::Image(_)
        | Error::Sound(_)
        | Error::NoProjector
        | Error::NoAudioProjector
        | Error::MediaMarkers { .. }
        | Error::TooManyFiles { .. }
        | Error::Vision(rocmforge::VisionError::TooManyPatches { .. })
        // Biases and constraints of the request may rule out every token.
        | Error::Request(RequestError::Sampling(_) | RequestError::Constraint(_)) => {
            ApiErrorKind::InvalidRequest
        }
        _ => ApiErrorKind::Internal,
    }
}
