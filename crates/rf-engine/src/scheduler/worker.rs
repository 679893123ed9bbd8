//! The thread of the engine: takes messages, runs steps and passes on events.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use crate::engine::Engine;
use crate::scheduler::event::{Event, Observer, Sink};
use crate::scheduler::handle::{SchedulerMessage, SchedulerState};
use crate::scheduler::request::RequestId;
use crate::scheduler::stats::SchedulerStats;
use crate::scheduler::step_scheduler::StepScheduler;
use crate::speculation::Speculation;

/// The state of the thread.
pub(super) struct SchedulerThread {
    pub(super) engine: Engine,
    pub(super) speculation: Option<Speculation>,
    pub(super) steps: StepScheduler,
    pub(super) sinks: Sinks,
}

impl SchedulerThread {
    /// Serves requests until the shutdown.
    pub(super) fn run(mut self, inbox: &Receiver<SchedulerMessage>) {
        while self.receive(inbox) {
            self.step();
        }
        self.steps.cancel_all();
        self.step();
    }

    fn step(&mut self) {
        let Self { engine, speculation, steps, sinks } = self;
        let shared = Arc::clone(&sinks.shared);
        shared.work_clock().time(|| steps.step_observed(engine, speculation.as_mut(), sinks));
        let error = sinks.device_error.take();
        // A step without a token proves nothing.
        if std::mem::take(&mut sinks.has_tokens) || error.is_some() {
            shared.note_step(error);
        }
    }

    /// Takes all messages, and sleeps until there is one if there is nothing to compute. Returns
    /// false at the shutdown.
    fn receive(&mut self, inbox: &Receiver<SchedulerMessage>) -> bool {
        if self.steps.is_idle() && !inbox.recv().is_ok_and(|message| self.take(message)) {
            return false;
        }
        while let Ok(message) = inbox.try_recv() {
            if !self.take(message) {
                return false;
            }
        }
        true
    }

    /// Takes a message. Returns false at the shutdown.
    fn take(&mut self, message: SchedulerMessage) -> bool {
        match message {
            SchedulerMessage::Submit(submission, sink) => {
                let unfinished_choices = submission.choices.len();
                let receiver = EventReceiver { sink, unfinished_choices, is_queued: true };
                self.sinks.receivers.insert(submission.id, receiver);
                self.steps.enqueue(&mut self.engine, *submission);
            }
            SchedulerMessage::Cancel(id) => self.steps.cancel(id),
            SchedulerMessage::Call(work) => {
                self.sinks.shared.work_clock().time(|| work(&mut self.engine));
            }
            SchedulerMessage::Shutdown => return false,
        }
        true
    }
}

/// The receivers of the events of all requests.
pub(super) struct Sinks {
    shared: Arc<SchedulerState>,
    receivers: HashMap<RequestId, EventReceiver>,
    /// The error of the device in the present step.
    device_error: Option<String>,
    /// True if the present step has generated tokens.
    has_tokens: bool,
}

/// The receiver of a request's events. It is dropped after the last one.
struct EventReceiver {
    sink: Box<dyn Sink>,
    unfinished_choices: usize,
    /// True until the request starts, or ends before.
    is_queued: bool,
}

impl Sinks {
    pub(super) fn new(shared: Arc<SchedulerState>) -> Self {
        Self { shared, receivers: HashMap::new(), device_error: None, has_tokens: false }
    }
}

impl Observer for Sinks {
    fn event(&mut self, id: RequestId, event: Event) -> ControlFlow<()> {
        // After a `Break` the sink gets no more events.
        let Some(receiver) = self.receivers.get_mut(&id) else { return ControlFlow::Break(()) };
        if std::mem::take(&mut receiver.is_queued) {
            self.shared.end_queued();
        }
        match &event {
            Event::Finished { .. } => receiver.unfinished_choices -= 1,
            Event::Token { .. } => self.has_tokens = true,
            Event::Failed(error) => {
                tracing::warn!(request = %id, %error, "request failed");
                self.device_error = error.of_device().or(self.device_error.take());
                receiver.unfinished_choices = 0;
            }
            _ => {}
        }
        let sent = catch_unwind(AssertUnwindSafe(|| receiver.sink.event(event)));
        let sent = sent.unwrap_or(ControlFlow::Break(()));
        if sent.is_break() || receiver.unfinished_choices == 0 {
            self.receivers.remove(&id);
        }
        sent
    }

    fn note_stats(&mut self, stats_of_started: &dyn Fn() -> SchedulerStats) {
        self.shared.publish(&stats_of_started());
    }
}
