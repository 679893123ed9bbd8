//! Turns prompts into a stream of updates. Every generation passes this module: chats of this
//! crate, and every API of a server.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rf_chat::{ChatPrompt, Delta, OutputParser, Prompt};
use rf_engine::scheduler::{
    Constraint, Event, GroupId, Handle, Request, RequestId, Sink, SubmitError, TokenLogprob,
};
use rf_engine::{AdapterScales, GenerateOptions, MixedPrompt, Session, StopReason, Timings};

use crate::block_on::block_on;
use crate::error::Error;
use crate::events::{self, EventReceiver, EventSender};

/// A prompt as tokens, and how to continue it.
#[non_exhaustive]
pub struct Job {
    /// The prompt.
    pub prompt: MixedPrompt,
    /// The chat prompt, which contains the format of the answer; `None` for a text that is no
    /// message.
    pub chat: Option<Prompt>,
    /// How to continue.
    pub options: GenerateOptions,
    /// Number of answers.
    pub num_choices: usize,
    /// Jobs of a higher priority start first and are preempted last. Default 0.
    pub priority: i32,
    /// Log probabilities of the generated tokens, with as many alternatives at each position.
    pub logprobs: Option<usize>,
    /// Log probabilities of the prompt's tokens, with as many alternatives at each position.
    pub prompt_logprobs: Option<usize>,
    /// True if prompts that begin alike share what is computed. Default true.
    pub use_prefix_cache: bool,
    /// How much each adapter of the model changes the answer. Default:
    /// [`Model::adapter_scales`](crate::Model::adapter_scales).
    pub adapters: Option<AdapterScales>,
    /// A sequence of the model, such as that of an earlier turn. The tokens that it shares with the
    /// prompt are not computed again. Each choice returns its sequence with
    /// [`Update::Finished`]. [`Model::session`](crate::Model::session) makes an empty one.
    pub session: Option<Session>,
    /// The structure that the answer must have.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Sees every event on the thread of the engine, for metrics. It must not block.
    pub observer: Option<Observer>,
}

/// A callback for events on the thread of the engine.
pub type Observer = Box<dyn FnMut(&Event) + Send>;

impl Job {
    /// The continuation of a text.
    pub fn text(prompt: impl Into<MixedPrompt>, options: GenerateOptions) -> Self {
        Self {
            prompt: prompt.into(),
            chat: None,
            options,
            num_choices: 1,
            priority: 0,
            logprobs: None,
            prompt_logprobs: None,
            use_prefix_cache: true,
            adapters: None,
            session: None,
            constraint: None,
            observer: None,
        }
    }

    /// The answer to a conversation.
    pub fn chat(prompt: ChatPrompt, options: GenerateOptions) -> Self {
        let options = options.with_rendered_tokens(prompt.rendered_tokens);
        Self { chat: Some(prompt.prompt), ..Self::text(prompt.ids, options) }
    }

    /// Sets [`num_choices`](Self::num_choices).
    #[must_use]
    pub fn with_num_choices(mut self, num_choices: usize) -> Self {
        self.num_choices = num_choices;
        self
    }

    /// Sets [`priority`](Self::priority).
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets [`logprobs`](Self::logprobs).
    #[must_use]
    pub fn with_logprobs(mut self, logprobs: impl Into<Option<usize>>) -> Self {
        self.logprobs = logprobs.into();
        self
    }

    /// Sets [`prompt_logprobs`](Self::prompt_logprobs).
    #[must_use]
    pub fn with_prompt_logprobs(mut self, prompt_logprobs: impl Into<Option<usize>>) -> Self {
        self.prompt_logprobs = prompt_logprobs.into();
        self
    }

    /// Sets [`use_prefix_cache`](Self::use_prefix_cache).
    #[must_use]
    pub fn with_use_prefix_cache(mut self, use_prefix_cache: bool) -> Self {
        self.use_prefix_cache = use_prefix_cache;
        self
    }

    /// Sets [`adapters`](Self::adapters).
    #[must_use]
    pub fn with_adapters(mut self, adapters: impl Into<Option<AdapterScales>>) -> Self {
        self.adapters = adapters.into();
        self
    }

    /// Sets [`session`](Self::session).
    #[must_use]
    pub fn with_session(mut self, session: impl Into<Option<Session>>) -> Self {
        self.session = session.into();
        self
    }

    /// Sets [`constraint`](Self::constraint).
    #[must_use]
    pub fn with_constraint(mut self, constraint: Option<Box<dyn Constraint>>) -> Self {
        self.constraint = constraint;
        self
    }

    /// Sets [`observer`](Self::observer).
    #[must_use]
    pub fn with_observer(mut self, observer: impl Into<Option<Observer>>) -> Self {
        self.observer = observer.into();
        self
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("prompt_tokens", &self.prompt.len())
            .field("options", &self.options)
            .field("num_choices", &self.num_choices)
            .finish_non_exhaustive()
    }
}

/// Progress of a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Update {
    /// A prompt is being computed.
    Started {
        /// Index of the job.
        job: usize,
        /// Choices of every job.
        num_choices: usize,
        /// Tokens so far.
        usage: Usage,
    },
    /// A prompt has been computed whose log probabilities were requested.
    Prompt {
        /// Index of the job.
        job: usize,
        /// The log probabilities of its tokens.
        prompt: PromptLogprobs,
    },
    /// The message of a choice grows.
    Delta {
        /// Index of the choice, counted over all jobs.
        choice: usize,
        /// The piece of the message.
        delta: Delta,
        /// The tokens of the piece and those before it, if requested.
        logprobs: Vec<GeneratedToken>,
    },
    /// A choice is complete.
    Finished {
        /// Index of the choice, counted over all jobs.
        choice: usize,
        /// The reason for its end.
        reason: StopReason,
        /// The stop string that ended it, if one did.
        stop_string: Option<String>,
        /// True if the message asks for tools: it has calls, and none is cut off.
        calls_tools: bool,
        /// Token counts and times.
        timings: Timings,
        /// The sequence of the choice, if the job came with a [`session`](Job::session).
        session: Option<Box<Session>>,
    },
    /// All choices are complete. This is the last update.
    Ended {
        /// Tokens of all jobs.
        usage: Usage,
    },
    /// The request failed. This is the last update.
    Failed(Error),
}

/// Tokens of a request, of all its prompts and choices together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompts.
    pub prompt_tokens: usize,
    /// Tokens of the prompts that were not computed, because the cache had them.
    pub cached_tokens: usize,
    /// Generated tokens.
    pub completion_tokens: usize,
    /// Generated tokens that were reasoning.
    pub reasoning_tokens: usize,
}

/// A token with its log probability, and the most probable ones in its place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GeneratedToken {
    /// The token.
    pub id: u32,
    /// The natural logarithm of its probability.
    pub logprob: f32,
    /// The most probable tokens with their log probabilities, in descending order.
    pub top: Vec<(u32, f32)>,
}

/// The tokens of a prompt with their log probabilities.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PromptLogprobs {
    /// The first token, which nothing predicts.
    pub first: u32,
    /// The tokens after the first one.
    pub rest: Vec<GeneratedToken>,
}

impl GeneratedToken {
    fn new(id: u32, found: TokenLogprob) -> Self {
        Self { id, logprob: found.logprob, top: found.top }
    }
}

/// Events that may wait. A reader that is slower than this many tokens loses its request, and
/// nobody else waits for it.
const BUFFERED_EVENTS: usize = 2048;

/// A running request. Dropping it cancels what is not finished.
///
/// It is read by [`next`](Self::next) and [`poll_update`](Self::poll_update), or, blocking, by
/// [`wait`](Self::wait).
#[derive(Debug)]
pub struct Generation {
    receiver: EventReceiver,
    sequences: Sequences,
    ready: VecDeque<Update>,
    choices: Vec<Choice>,
    choices_per_job: usize,
    unfinished: usize,
    usage: Usage,
    ended: bool,
    /// The tokens of the prompts whose log probabilities are requested.
    prompts: Vec<Vec<u32>>,
}

#[derive(Debug)]
struct Choice {
    parser: OutputParser,
    logprobs: Vec<GeneratedToken>,
    /// Tokens since the last piece of the message.
    unread_tokens: usize,
}

/// Keeps a model, and with it its thread, alive until a request has ended.
pub(crate) type Alive = Arc<dyn Any + Send + Sync>;

/// Sequences that are cancelled when the request ends before them.
#[derive(Debug)]
struct Sequences {
    handle: Handle,
    _alive: Alive,
    ids: Vec<RequestId>,
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
    pub(crate) fn submit(handle: Handle, alive: Alive, jobs: Vec<Job>) -> Result<Self, Error> {
        let (sender, receiver) = events::queue(BUFFERED_EVENTS);
        // All jobs of a call take turns with other calls as one request.
        let group = GroupId::unique();
        let choices_per_job = jobs.first().map_or(1, |job| job.num_choices);
        let mut choices = Vec::with_capacity(jobs.len().saturating_mul(choices_per_job).min(1024));
        let mut sequences = Sequences { handle, _alive: alive, ids: Vec::new() };
        let wants_prompt = |job: &&Job| job.prompt_logprobs.is_some();
        let prompts =
            jobs.iter().filter(wants_prompt).map(|job| job.prompt.ids().to_vec()).collect();
        for (index, job) in jobs.into_iter().enumerate() {
            if job.num_choices > Request::MAX_CHOICES {
                let (num_choices, most) = (job.num_choices, Request::MAX_CHOICES);
                return Err(SubmitError::NumChoices { num_choices, most }.into());
            }
            choices.extend((0..choices_per_job).map(|_| Choice::new(job.chat.as_ref())));
            let sink = Forward { job: index, sender: sender.clone(), observer: job.observer };
            let request = Request::new(job.prompt, job.options)
                .with_num_choices(job.num_choices)
                .with_priority(job.priority)
                .with_group(group)
                .with_logprobs(job.logprobs)
                .with_prompt_logprobs(job.prompt_logprobs)
                .with_constraint(job.constraint)
                .with_adapters(job.adapters)
                .with_session(job.session)
                .with_use_prefix_cache(job.use_prefix_cache);
            sequences.ids.push(sequences.handle.submit(request, sink)?);
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
            prompts,
        })
    }

    /// The next update; `None` after the last one. Without `wants_tokens`, the tokens of a choice
    /// may wait for its end, which spares wake-ups.
    pub fn poll_update(
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
    pub async fn next(&mut self) -> Option<Update> {
        poll_fn(|cx| self.poll_update(cx, false)).await
    }

    /// Waits for the next update, as soon as there is text; `None` after the last one. It blocks
    /// the thread.
    pub fn wait(&mut self) -> Option<Update> {
        block_on(poll_fn(|cx| self.poll_update(cx, true)))
    }

    /// Tokens so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns true if all choices are complete.
    pub fn is_complete(&self) -> bool {
        self.unfinished == 0
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
                let rest = ids.zip(logprobs).map(|(id, found)| GeneratedToken::new(id, found));
                let prompt = PromptLogprobs { first, rest: rest.collect() };
                self.ready.push_back(Update::Prompt { job, prompt });
            }
            Event::Token { choice, id, text, logprob } => {
                self.usage.completion_tokens += 1;
                let Some(state) = self.choices.get_mut(first_choice + choice) else { return };
                state.unread_tokens += 1;
                state.logprobs.extend(logprob.map(|found| GeneratedToken::new(id, found)));
                let deltas = state.parser.push(&text);
                self.deltas(first_choice + choice, deltas);
            }
            // Our own cancellations drop the receiver, so this is the end of the scheduler.
            Event::Finished { reason: StopReason::Cancelled, .. } => self.fail(Error::ShuttingDown),
            Event::Finished { choice, reason, text, stop_string, timings, session } => {
                let index = first_choice + choice;
                let Some(state) = self.choices.get_mut(index) else { return };
                let mut rest = state.parser.push(&text);
                rest.extend(state.parser.finish());
                let calls_tools = state.parser.calls_tools();
                self.deltas(index, rest);
                self.ready.push_back(Update::Finished {
                    choice: index,
                    reason,
                    stop_string,
                    calls_tools,
                    timings,
                    session,
                });
                self.unfinished = self.unfinished.saturating_sub(1);
                if self.unfinished == 0 {
                    self.ready.push_back(Update::Ended { usage: self.usage });
                    self.ended = true;
                    self.sequences.ids.clear();
                }
            }
            Event::Failed(error) => self.fail(error.into()),
            _ => {}
        }
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

    fn fail(&mut self, error: Error) {
        self.ready.push_back(Update::Failed(error));
        self.ended = true;
    }

    /// Why the events ended before the last choice.
    fn lost(&self) -> Error {
        if self.receiver.has_overflowed() {
            return Error::TooSlow { most: BUFFERED_EVENTS };
        }
        Error::ShuttingDown
    }
}

impl Choice {
    fn new(prompt: Option<&Prompt>) -> Self {
        Self {
            parser: prompt.map_or_else(OutputParser::plain, Prompt::parser),
            logprobs: Vec::new(),
            unread_tokens: 0,
        }
    }
}

/// The engine's side: passes events on without ever waiting.
struct Forward {
    job: usize,
    sender: EventSender,
    observer: Option<Observer>,
}

impl Sink for Forward {
    fn event(&mut self, event: Event) -> ControlFlow<()> {
        if let Some(observer) = &mut self.observer {
            observer(&event);
        }
        self.sender.send(self.job, event)
    }
}
