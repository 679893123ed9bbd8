//! Checks of requests: what can never be served is refused, and the rest is prepared.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::adapters::AdapterScales;
use crate::engine::Engine;
use crate::generation::{GenerateOptions, GenerationState};
use crate::media::{MediaError, MixedPrompt, PromptMedia, is_row};
use crate::model::Model;
use crate::scheduler::constraint::TimedConstraint;
use crate::scheduler::event::RequestError;
use crate::scheduler::options::SchedulerOptions;
use crate::scheduler::request::{GroupId, Request, RequestId};
use crate::scheduler::submit_error::SubmitError;
use crate::session::Session;
use crate::stop::StopStrings;

/// A context with fewer tokens is not shifted: half of it is no text to continue.
const LEAST_SHIFTED_TOKENS: usize = 4;

/// A request that was checked.
pub(super) struct Submission {
    pub(super) id: RequestId,
    pub(super) request: ActiveRequest,
    pub(super) prompt: Vec<u32>,
    pub(super) media: Arc<PromptMedia>,
    /// At least one.
    pub(super) choices: Vec<Choice>,
    pub(super) priority: i32,
    pub(super) group: GroupId,
    pub(super) prompt_logprobs: Option<usize>,
    pub(super) adapters: AdapterScales,
    pub(super) session: Option<Session>,
}

/// The part of a request that its choices share.
pub(super) struct ActiveRequest {
    pub(super) arrival: Instant,
    pub(super) prompt_tokens: usize,
    pub(super) logprobs: Option<usize>,
    pub(super) use_prefix_cache: bool,
    /// True if the request limits the number of tokens, not only the room for them.
    pub(super) is_limited: bool,
    /// True if the request came with a session.
    pub(super) returns_session: bool,
    /// Choices without a final event.
    pub(super) unfinished_choices: usize,
    pub(super) start: Option<Start>,
    /// Set when the request ends before its choices do.
    pub(super) end: Option<RequestEnd>,
}

/// The first batch of a request.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) time: Instant,
    pub(super) cached_tokens: usize,
}

/// The reason for the early end of a request.
pub(super) enum RequestEnd {
    Cancelled,
    Failed(RequestError),
}

/// One answer to a request.
pub(super) struct Choice {
    pub(super) index: usize,
    pub(super) generation: GenerationState,
    pub(super) constraint: Option<TimedConstraint>,
    /// How many of the most probable tokens are enough to choose from; `None` if all logits are
    /// needed.
    pub(super) best_needed: Option<usize>,
    /// True if a full context drops its older half instead of ending the choice.
    pub(super) shifts: bool,
}

impl Choice {
    /// The time that the constraint took for the newest token.
    pub(super) fn constraint_time(&self) -> Duration {
        self.constraint.as_ref().map_or(Duration::ZERO, TimedConstraint::token_time)
    }

    /// Returns true if the text so far is all that the constraint can check.
    pub(super) fn gave_up(&self) -> bool {
        self.generation.generated_tokens() > 0
            && self.constraint.as_ref().is_some_and(TimedConstraint::gave_up)
    }
}

/// The room and the vocabulary of an engine, which requests must keep to.
#[derive(Clone, Debug)]
pub(super) struct RequestLimits {
    pub(super) model: Arc<Model>,
    pub(super) kv_tokens: usize,
    context_tokens: usize,
    media_width: Option<usize>,
    /// Tokens of a step.
    step_tokens: usize,
}

impl RequestLimits {
    pub(super) fn new(engine: &Engine, options: &SchedulerOptions) -> Self {
        Self {
            model: Arc::clone(engine.model()),
            kv_tokens: engine.kv_tokens(),
            context_tokens: engine.context_tokens(),
            media_width: engine.media_width(),
            step_tokens: options.max_batched_tokens,
        }
    }

    /// The largest number of tokens of a sequence: the context, or the KV cache if it is smaller.
    pub(super) fn max_sequence_tokens(&self) -> usize {
        self.context_tokens.min(self.kv_tokens)
    }

    /// Checks a request and prepares its choices.
    pub(super) fn check(&self, request: Request) -> Result<Submission, SubmitError> {
        let Request { prompt, options, num_choices, mut constraint, .. } = request;
        let MixedPrompt { ids: prompt, media } = prompt;
        let (prompt_tokens, most_tokens) = (prompt.len(), self.max_sequence_tokens());
        let vocab_size = self.model.config().vocab_size;
        if prompt.is_empty() {
            return Err(SubmitError::EmptyPrompt);
        }
        if prompt_tokens > most_tokens {
            return Err(SubmitError::PromptTooLong { prompt_tokens, most_tokens });
        }
        let is_unknown = |id: &&u32| **id as usize >= vocab_size && !is_row(**id);
        if let Some(&id) = prompt.iter().find(is_unknown) {
            return Err(SubmitError::UnknownToken { id, vocab_size });
        }
        media.check(self.media_width, self.step_tokens)?;
        if !media.is_empty() && request.prompt_logprobs.is_some() {
            return Err(MediaError::Logprobs.into());
        }
        if !(1..=Request::MAX_CHOICES).contains(&num_choices) {
            return Err(SubmitError::NumChoices { num_choices, most: Request::MAX_CHOICES });
        }
        let of_session = request.session.as_ref().map(Session::adapters);
        let default = of_session.unwrap_or(self.model.adapter_scales()).clone();
        let adapters = request.adapters.unwrap_or(default);
        adapters.check(self.model.adapters().len())?;
        let shifts =
            options.context_shift && media.is_empty() && most_tokens >= LEAST_SHIFTED_TOKENS;
        // The last token is not computed, so it needs no room.
        let room = if shifts { usize::MAX } else { most_tokens - prompt_tokens + 1 };
        let is_limited = options.max_tokens.is_some();
        let max_tokens = options.max_tokens.unwrap_or(usize::MAX).min(room);
        let mut options = GenerateOptions { max_tokens: Some(max_tokens), ..options };
        let mut choices = Vec::with_capacity(num_choices);
        let mut seed = options.sampler.seed;
        let stops = StopStrings::new(&options.stop);
        for index in 0..num_choices {
            options.sampler.seed = seed.map(|seed| seed.wrapping_add(index as u64));
            let generation = GenerationState::new(&prompt, &options, &stops)?;
            // An unset seed is drawn once, so that it repeats all choices.
            seed.get_or_insert(generation.seed());
            let is_last = index + 1 == num_choices;
            let constraint =
                if is_last { constraint.take() } else { constraint.as_ref().map(|c| c.fork()) };
            let takes_best = constraint.is_none()
                && request.logprobs.is_none()
                && request.prompt_logprobs.is_none();
            let best_needed = generation.best_needed().filter(|_| takes_best);
            let constraint = constraint.map(TimedConstraint::new);
            choices.push(Choice { index, generation, constraint, best_needed, shifts });
        }
        let active = ActiveRequest {
            arrival: Instant::now(),
            prompt_tokens,
            logprobs: request.logprobs,
            // Logits of cached tokens are not there.
            use_prefix_cache: request.use_prefix_cache && request.prompt_logprobs.is_none(),
            is_limited,
            returns_session: request.session.is_some(),
            unfinished_choices: num_choices,
            start: None,
            end: None,
        };
        Ok(Submission {
            id: RequestId(0),
            request: active,
            prompt,
            media: Arc::new(media),
            choices,
            priority: request.priority,
            group: request.group.unwrap_or_else(GroupId::unique),
            prompt_logprobs: request.prompt_logprobs,
            adapters,
            session: request.session,
        })
    }
}
