//! The handle of a scheduler: checks requests and passes them to its thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use crate::engine::Engine;
use crate::generation::Generation;
use crate::model::Model;
use crate::sampling;
use crate::scheduler::options::SchedulerOptions;
use crate::scheduler::request::{Request, RequestId};
use crate::scheduler::sequence::{Choice, Submission};
use crate::scheduler::stats::SchedulerStats;

/// Submits requests to a scheduler, from any thread. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// The state that handles and the thread share.
#[derive(Debug)]
pub(super) struct Shared {
    model: Arc<Model>,
    context_tokens: usize,
    kv_tokens: usize,
    max_num_seqs: usize,
    max_queued: usize,
    /// `None` after the shutdown. Sending under the read lock makes the shutdown the last message.
    sender: RwLock<Option<Sender<Message>>>,
    next_id: AtomicU64,
    /// Requests that have not started.
    queued: AtomicUsize,
    stats: Mutex<SchedulerStats>,
}

/// A message to the thread.
pub(super) enum Message {
    /// A new request.
    Submit(Submission),
    /// A request is no longer needed.
    Cancel(RequestId),
    /// The end.
    Shutdown,
}

/// The reason for refusing a request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Too many requests wait. Try again later.
    #[error("the queue is full: {max_queued} requests wait; try again later")]
    QueueFull {
        /// The largest number of waiting requests.
        max_queued: usize,
    },
    /// The scheduler has ended.
    #[error("the scheduler is shutting down")]
    ShuttingDown,
    /// The prompt has no tokens.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The prompt fits neither now nor later.
    #[error(
        "the prompt has {prompt_tokens} tokens and there is room for {most_tokens}; use a shorter \
         prompt, or a larger context and KV cache"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the context, or of the KV cache if they are fewer.
        most_tokens: usize,
    },
    /// A token id is not in the vocabulary.
    #[error("token id {id} is not in the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A sampling parameter is out of range.
    #[error(transparent)]
    Sampling(#[from] sampling::Error),
    /// The number of choices is out of range.
    #[error("the number of choices is {num_choices}, expected 1 to {most}")]
    NumChoices {
        /// The number.
        num_choices: usize,
        /// The largest number.
        most: usize,
    },
    /// [`GenerateOptions::context_shift`](crate::GenerateOptions::context_shift) is set.
    #[error("a scheduled request cannot shift its context: a full context ends it")]
    ContextShift,
}

impl Handle {
    pub(super) fn new(engine: &Engine, options: &SchedulerOptions) -> (Self, Receiver<Message>) {
        let (sender, receiver) = channel();
        let stats = SchedulerStats {
            kv_pages_total: engine.kv_stats().total_pages,
            ..SchedulerStats::default()
        };
        let shared = Shared {
            model: Arc::clone(engine.model()),
            context_tokens: engine.context_tokens(),
            kv_tokens: engine.kv_tokens(),
            max_num_seqs: options.max_num_seqs,
            max_queued: options.max_queued,
            sender: RwLock::new(Some(sender)),
            next_id: AtomicU64::new(1),
            queued: AtomicUsize::new(0),
            stats: Mutex::new(stats),
        };
        (Self { shared: Arc::new(shared) }, receiver)
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.shared.model
    }

    /// The largest number of tokens of a sequence: the context, or the KV cache if it is smaller.
    pub fn max_sequence_tokens(&self) -> usize {
        self.shared.context_tokens.min(self.shared.kv_tokens)
    }

    /// Tokens of the KV cache, which all sequences share.
    pub fn kv_tokens(&self) -> usize {
        self.shared.kv_tokens
    }

    /// The largest number of sequences that run at the same time.
    pub fn max_num_seqs(&self) -> usize {
        self.shared.max_num_seqs
    }

    /// Submits a request. Its events go to its sink.
    ///
    /// # Errors
    ///
    /// If the request is invalid or can never fit, the queue is full, or the scheduler has ended.
    pub fn submit(&self, request: Request) -> Result<RequestId, SubmitError> {
        let mut submission = self.check(request)?;
        let shared = &*self.shared;
        let sender = shared.sender.read().unwrap_or_else(PoisonError::into_inner);
        let sender = sender.as_ref().ok_or(SubmitError::ShuttingDown)?;
        let room = |queued: usize| (queued < shared.max_queued).then_some(queued + 1);
        shared
            .queued
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .map_err(|_| SubmitError::QueueFull { max_queued: shared.max_queued })?;
        submission.id = RequestId(shared.next_id.fetch_add(1, Ordering::Relaxed));
        let id = submission.id;
        sender.send(Message::Submit(submission)).map_err(|_| {
            shared.end_queued();
            SubmitError::ShuttingDown
        })?;
        Ok(id)
    }

    /// Ends a request with [`StopReason::Cancelled`](crate::StopReason::Cancelled) before the next
    /// step. Does nothing if it has ended already.
    pub fn cancel(&self, id: RequestId) {
        let sender = self.shared.sender.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.as_ref() {
            // If sending fails, all requests have ended already.
            drop(sender.send(Message::Cancel(id)));
        }
    }

    /// The state after the last step.
    pub fn stats(&self) -> SchedulerStats {
        let stats = *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = self.shared.queued.load(Ordering::Relaxed);
        SchedulerStats { waiting: stats.waiting + queued, ..stats }
    }

    /// Refuses further requests and tells the thread to end.
    pub(super) fn close(&self) {
        let mut sender = self.shared.sender.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.take() {
            // If sending fails, the thread has ended already.
            drop(sender.send(Message::Shutdown));
        }
    }

    /// Checks a request and prepares its choices.
    fn check(&self, request: Request) -> Result<Submission, SubmitError> {
        let Request { prompt, options, num_choices, mut constraint, .. } = request;
        let (prompt_tokens, most_tokens) = (prompt.len(), self.max_sequence_tokens());
        let vocab_size = self.shared.model.config().vocab_size;
        if prompt.is_empty() {
            return Err(SubmitError::EmptyPrompt);
        }
        if prompt_tokens > most_tokens {
            return Err(SubmitError::PromptTooLong { prompt_tokens, most_tokens });
        }
        if let Some(&id) = prompt.iter().find(|id| **id as usize >= vocab_size) {
            return Err(SubmitError::UnknownToken { id, vocab_size });
        }
        if !(1..=Request::MAX_CHOICES).contains(&num_choices) {
            return Err(SubmitError::NumChoices { num_choices, most: Request::MAX_CHOICES });
        }
        if options.context_shift {
            return Err(SubmitError::ContextShift);
        }
        // The last token is not computed, so it needs no room.
        let room = most_tokens - prompt_tokens + 1;
        let max_tokens = options.max_tokens.unwrap_or(usize::MAX).min(room);
        let is_limited = options.max_tokens.is_some();
        let mut options = crate::GenerateOptions { max_tokens: Some(max_tokens), ..options };
        let mut choices = Vec::with_capacity(num_choices);
        let mut seed = options.sampler.seed;
        for index in 0..num_choices {
            options.sampler.seed = seed.map(|seed| seed.wrapping_add(index as u64));
            let generation = Generation::new(&prompt, &options)?;
            // An unset seed is drawn once, so that it repeats all choices.
            seed.get_or_insert(generation.seed());
            let is_last = index + 1 == num_choices;
            let constraint =
                if is_last { constraint.take() } else { constraint.as_ref().map(|c| c.fork()) };
            let takes_best = constraint.is_none()
                && request.logprobs.is_none()
                && request.prompt_logprobs.is_none();
            let best_needed = generation.best_needed().filter(|_| takes_best);
            choices.push(Choice { index, generation, constraint, best_needed });
        }
        Ok(Submission {
            id: RequestId(0),
            prompt,
            choices,
            priority: request.priority,
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            // Logits of cached tokens are not there.
            use_prefix_cache: request.use_prefix_cache && request.prompt_logprobs.is_none(),
            is_limited,
            sink: request.sink,
            arrival: Instant::now(),
        })
    }
}

impl Shared {
    /// A request has started or ended.
    pub(super) fn end_queued(&self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }

    /// Publishes the statistics. Their waiting sequences are those that have started before.
    pub(super) fn publish(&self, stats: &SchedulerStats) {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = *stats;
    }
}
