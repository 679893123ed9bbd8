//! The handle of a scheduler: checks requests and passes them to its thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::engine::Engine;
use crate::model::Model;
use crate::scheduler::event::Sink;
use crate::scheduler::options::SchedulerOptions;
use crate::scheduler::request::{Request, RequestId};
use crate::scheduler::stats::SchedulerStats;
use crate::scheduler::submission::{RequestLimits, Submission};
use crate::scheduler::submit_error::SubmitError;
use crate::scheduler::work_clock::{WorkClock, WorkTime};

/// Submits requests to a scheduler, from any thread. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<SchedulerState>,
}

/// The state that handles and the thread share.
#[derive(Debug)]
pub(super) struct SchedulerState {
    limits: RequestLimits,
    max_num_seqs: usize,
    max_queued: usize,
    /// `None` after the shutdown. Sending under the read lock makes the shutdown the last message.
    sender: RwLock<Option<Sender<SchedulerMessage>>>,
    next_id: AtomicU64,
    /// Requests that have not started.
    queued: AtomicUsize,
    stats: Mutex<SchedulerStats>,
    work_clock: WorkClock,
    device_failure: Mutex<Option<DeviceFailure>>,
}

/// A device that failed in the last step or steps. One that is lost fails in every step from then
/// on, and only a new process has it back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFailure {
    /// The steps that have failed one after the other.
    pub steps: u32,
    /// The error of the last one.
    pub error: String,
}

/// A message to the thread.
pub(super) enum SchedulerMessage {
    /// A new request, and the receiver of its events.
    Submit(Box<Submission>, Box<dyn Sink>),
    /// A request is no longer needed.
    Cancel(RequestId),
    /// Work on the engine between two steps.
    Call(Box<dyn FnOnce(&mut Engine) + Send>),
    /// The end.
    Shutdown,
}

impl Handle {
    pub(super) fn new(
        engine: &Engine,
        options: &SchedulerOptions,
    ) -> (Self, Receiver<SchedulerMessage>) {
        let (sender, receiver) = channel();
        let stats = SchedulerStats {
            kv_pages_total: engine.kv_stats().total_pages,
            ..SchedulerStats::default()
        };
        let shared = SchedulerState {
            limits: RequestLimits::new(engine, options),
            max_num_seqs: options.max_num_seqs,
            max_queued: options.max_queued,
            sender: RwLock::new(Some(sender)),
            next_id: AtomicU64::new(1),
            queued: AtomicUsize::new(0),
            stats: Mutex::new(stats),
            work_clock: WorkClock::default(),
            device_failure: Mutex::default(),
        };
        (Self { shared: Arc::new(shared) }, receiver)
    }

    pub(super) fn shared(&self) -> Arc<SchedulerState> {
        Arc::clone(&self.shared)
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.shared.limits.model
    }

    /// The largest number of tokens of a sequence: the context, or the KV cache if it is smaller.
    pub fn max_sequence_tokens(&self) -> usize {
        self.shared.limits.max_sequence_tokens()
    }

    /// Tokens of the KV cache, which all sequences share.
    pub fn kv_tokens(&self) -> usize {
        self.shared.limits.kv_tokens
    }

    /// The largest number of sequences that run at the same time.
    pub fn max_num_seqs(&self) -> usize {
        self.shared.max_num_seqs
    }

    /// Submits a request. Its events go to `sink`.
    ///
    /// # Errors
    ///
    /// If the request is invalid or can never fit, the queue is full, or the scheduler has ended.
    pub fn submit(
        &self,
        request: Request,
        sink: impl Sink + 'static,
    ) -> Result<RequestId, SubmitError> {
        let shared = &*self.shared;
        let mut submission = shared.limits.check(request)?;
        let sender = shared.sender.read().unwrap_or_else(PoisonError::into_inner);
        let sender = sender.as_ref().ok_or(SubmitError::ShuttingDown)?;
        let room = |queued: usize| (queued < shared.max_queued).then_some(queued + 1);
        shared
            .queued
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .map_err(|_| SubmitError::QueueFull { max_queued: shared.max_queued })?;
        submission.id = RequestId(shared.next_id.fetch_add(1, Ordering::Relaxed));
        let id = submission.id;
        let message = SchedulerMessage::Submit(Box::new(submission), Box::new(sink));
        sender.send(message).map_err(|_| {
            shared.end_queued();
            SubmitError::ShuttingDown
        })?;
        Ok(id)
    }

    /// Runs `work` on the thread of the engine between two steps and waits for its result: to save
    /// and restore sessions, or to measure. No request advances meanwhile. A sink, which runs on
    /// that thread, must not call it. A panic of `work` continues here.
    ///
    /// # Errors
    ///
    /// [`SubmitError::ShuttingDown`] if the scheduler has ended.
    pub fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, SubmitError> {
        let (result, results) = channel();
        let work = Box::new(move |engine: &mut Engine| {
            let done = catch_unwind(AssertUnwindSafe(|| work(engine)));
            // The caller waits for it.
            drop(result.send(done));
        });
        {
            let sender = self.shared.sender.read().unwrap_or_else(PoisonError::into_inner);
            let sender = sender.as_ref().ok_or(SubmitError::ShuttingDown)?;
            sender.send(SchedulerMessage::Call(work)).map_err(|_| SubmitError::ShuttingDown)?;
        }
        let done = results.recv().map_err(|_| SubmitError::ShuttingDown)?;
        Ok(done.unwrap_or_else(|payload| resume_unwind(payload)))
    }

    /// Ends a request with [`StopReason::Cancelled`](crate::StopReason::Cancelled) before the next
    /// step. Does nothing if it has ended already.
    pub fn cancel(&self, id: RequestId) {
        let sender = self.shared.sender.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.as_ref() {
            // If sending fails, all requests have ended already.
            drop(sender.send(SchedulerMessage::Cancel(id)));
        }
    }

    /// The state after the last step.
    pub fn stats(&self) -> SchedulerStats {
        let stats = *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = self.shared.queued.load(Ordering::Relaxed);
        SchedulerStats { waiting: stats.waiting + queued, ..stats }
    }

    /// The times of the thread's work. A device that hangs never ends a step.
    pub fn work_time(&self) -> WorkTime {
        self.shared.work_clock.read()
    }

    /// The failure of the device in the last step, if it failed.
    pub fn device_failure(&self) -> Option<DeviceFailure> {
        self.shared.device_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses further requests and ends the thread.
    pub(super) fn close(&self) {
        let mut sender = self.shared.sender.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.take() {
            // If sending fails, the thread has ended already.
            drop(sender.send(SchedulerMessage::Shutdown));
        }
    }
}

impl SchedulerState {
    /// A step has ended, with an error of the device or without one.
    pub(super) fn note_step(&self, error: Option<String>) {
        let mut failure = self.device_failure.lock().unwrap_or_else(PoisonError::into_inner);
        let steps = failure.as_ref().map_or(0, |failure| failure.steps);
        *failure = error.map(|error| DeviceFailure { steps: steps.saturating_add(1), error });
    }

    pub(super) fn work_clock(&self) -> &WorkClock {
        &self.work_clock
    }

    /// A request has started, or ended before.
    pub(super) fn end_queued(&self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }

    /// Publishes the statistics. Their waiting sequences are preempted ones; requests that have not
    /// started are counted in `queued`.
    pub(super) fn publish(&self, stats: &SchedulerStats) {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = *stats;
    }
}
