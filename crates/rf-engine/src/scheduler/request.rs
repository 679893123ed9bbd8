//! Requests.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::adapters::AdapterScales;
use crate::generation::GenerateOptions;
use crate::media::MixedPrompt;
use crate::scheduler::constraint::Constraint;
use crate::session::Session;
use crate::setters::setters;

/// The id of a request, unique within a scheduler. Ids ascend in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(super) u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Requests that take turns as one, such as the prompts of one call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(u64);

impl GroupId {
    /// An id that no other group of this process has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A prompt and how to continue it.
#[non_exhaustive]
pub struct Request {
    /// The prompt. One with media does not shift its context.
    pub prompt: MixedPrompt,
    /// How to continue. Unless the context shifts, `max_tokens` beyond the context or the KV cache
    /// is clamped, and without it the end is
    /// [`StopReason::ContextFull`](crate::StopReason::ContextFull). Choice `i` uses `seed + i`.
    pub options: GenerateOptions,
    /// Number of answers, at most [`MAX_CHOICES`](Self::MAX_CHOICES).
    pub num_choices: usize,
    /// Requests of a higher priority start first and are preempted last. Default 0.
    pub priority: i32,
    /// The group to which the request belongs. Groups take turns, not requests. `None` makes the
    /// request a group by itself.
    pub group: Option<GroupId>,
    /// Log probabilities of the generated tokens, with as many of the most probable tokens at each
    /// position.
    pub logprobs: Option<usize>,
    /// Log probabilities of the prompt's tokens, with as many of the most probable tokens at each
    /// position. All of the prompt is computed then, without the prefix cache.
    pub prompt_logprobs: Option<usize>,
    /// Restricts the output.
    pub constraint: Option<Box<dyn Constraint>>,
    /// True if the prefix cache is used for this request, if it is on at all. Default true.
    pub use_prefix_cache: bool,
    /// How much each adapter of the model changes the answer. Default: the scales of
    /// [`session`](Self::session), and without one those of
    /// [`Model::adapter_scales`](crate::Model::adapter_scales).
    pub adapters: Option<AdapterScales>,
    /// A sequence of the same engine. The tokens that it shares with the prompt are not computed
    /// again, unless other requests need its pages. Each choice returns its sequence with
    /// [`Event::Finished`](super::Event::Finished).
    pub session: Option<Session>,
}

impl Request {
    /// The largest number of choices.
    pub const MAX_CHOICES: usize = 128;

    /// A request for one answer.
    pub fn new(prompt: impl Into<MixedPrompt>, options: GenerateOptions) -> Self {
        Self {
            prompt: prompt.into(),
            options,
            num_choices: 1,
            priority: 0,
            group: None,
            logprobs: None,
            prompt_logprobs: None,
            constraint: None,
            use_prefix_cache: true,
            adapters: None,
            session: None,
        }
    }

    setters! {
        with_num_choices(num_choices: usize);
        with_priority(priority: i32);
        with_group(group: impl Into<Option<GroupId>>);
        with_logprobs(logprobs: impl Into<Option<usize>>);
        with_prompt_logprobs(prompt_logprobs: impl Into<Option<usize>>);
        with_constraint(constraint: Option<Box<dyn Constraint>>);
        with_use_prefix_cache(use_prefix_cache: bool);
        with_adapters(adapters: impl Into<Option<AdapterScales>>);
        with_session(session: impl Into<Option<Session>>);
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("prompt_tokens", &self.prompt.len())
            .field("options", &self.options)
            .field("num_choices", &self.num_choices)
            .field("priority", &self.priority)
            .field("group", &self.group)
            .field("logprobs", &self.logprobs)
            .field("prompt_logprobs", &self.prompt_logprobs)
            .field("is_constrained", &self.constraint.is_some())
            .field("use_prefix_cache", &self.use_prefix_cache)
            .field("adapters", &self.adapters)
            .field("session_tokens", &self.session.as_ref().map(Session::len))
            .finish()
    }
}
