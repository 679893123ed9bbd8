//! Continuous batching: the only loop that generates.
//!
//! A [`StepScheduler`] holds requests and their sequences. Each [`StepScheduler::step`] borrows the
//! engine, computes one batch, and passes the events of its requests on. Two doors lead to it, so
//! they have the same features:
//!
//! - [`Engine::generate`] drives one with a single request, on the thread of the caller.
//! - [`Scheduler`] runs one on a thread, which owns the engine. Requests arrive over a channel
//!   ([`Handle::submit`]), and each one passes its events to a [`Sink`], which must not block.
//!   [`Handle::call`] runs other work on the engine between two steps. Without requests the thread
//!   sleeps.
//!
//! The answer to a request does not depend on what else is in the batch.
//!
//! # Steps
//!
//! A sequence is a list of tokens of which the first ones are computed. There is no prefill phase:
//! a step is one batch with a budget of tokens. Each sequence that decodes takes one token, and
//! prompts fill the rest of the budget in chunks: one half in order of priority, then of turn, and
//! the other half the shortest rest of a prompt first. So neither a long prompt nor many short ones
//! keep others from being computed, and each takes at most twice as long as in either order alone.
//!
//! # Turns
//!
//! Requests take turns, not their sequences. A *group* is a request with its choices, or several
//! requests that were submitted together ([`Request::group`]). Of the groups that wait, the one
//! with the fewest running sequences starts its next sequence, and of several the one that has
//! waited longest since its last start. If there is no slot, or there are no pages, a group that
//! runs at least two sequences more than it loses its last one. So a request starts in the next
//! step unless as many groups as there are slots run, and then it waits for those before it only.
//!
//! Full pages enter the prefix cache as soon as they are computed. A new request waits while a
//! running one computes its next page, because computing the page twice would take longer. The
//! choices of a request fork its pages after the prompt; the pool copies a shared page on the first
//! write.
//!
//! Masks of constraints are computed on another thread while the backend computes the batch. The
//! sampler, the constraint and the sink of a request run under `catch_unwind`, so a panic fails
//! only this request. A failure of the backend fails the requests of the batch.
//!
//! # When pages run out
//!
//! Waiting sequences start while their tokens fit and every running sequence keeps a page to grow.
//! Admission counts the pages of both groups: those of the whole sequence, and those that its
//! window spans with one step.
//!
//! If pages run out nevertheless, a running sequence is *preempted*: it loses its KV pages, and
//! keeps its tokens, sampler, decoder and constraint. It is the last one of the group with the most
//! sequences, among those of the lowest priority. Resuming it is a prefill over its own tokens. A
//! choice that starts late resumes the same way. The first sequence always advances, because a
//! prompt that cannot fit alone is refused, and `max_tokens` is clamped unless the context shifts.
//!
//! A request may bring a [`Session`](crate::Session). Its common prefix with the prompt is not
//! computed again, and the last event returns it. If such a request waits, the pages of its session
//! are released before a running sequence is preempted.
//!
//! A sequence whose context is full ends, or drops the older half of its tokens
//! ([`context_shift`](crate::GenerateOptions::context_shift)). A shift empties the cache of the
//! sequence, and the next steps compute the remaining tokens at their new positions.
//!
//! # Files
//!
//! | file | content |
//! |---|---|
//! | `step_scheduler.rs` | the step, last events |
//! | `step_scheduler/plan.rs`, `step_scheduler/admission.rs` | the tokens of a step; the start of waiting sequences |
//! | `step.rs` | one batch: masks, sampling, forced tokens |
//! | `sequence.rs`, `waiting.rs` | sequences, their order, context shifts; those that wait, whose turn it is |
//! | `submission.rs` | the check of a request, and its parts |
//! | `drafter.rs` | the length of a draft for a sequence that runs alone |
//! | `handle.rs`, `worker.rs`, `work_clock.rs` | the thread: messages, sinks, statistics, times |
//!
//! # Example
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::mpsc;
//!
//! use rf_engine::sampling::SamplerConfig;
//! use rf_engine::scheduler::{Event, Request, Scheduler, SchedulerOptions};
//! use rf_engine::{Engine, EngineOptions, GenerateOptions, Model};
//! use rf_oracle::ReferenceBackend;
//!
//! let model = Model::open("../../golden/arch/smollm3.gguf")?;
//! let options = EngineOptions::default().with_context_tokens(Some(64));
//! let engine = Engine::load(model, &ReferenceBackend, options, &mut |_| ())?;
//! let scheduler = Scheduler::start(engine, SchedulerOptions::default())?;
//!
//! let (sender, events) = mpsc::channel();
//! let options = GenerateOptions::default()
//!     .with_sampler(SamplerConfig::greedy())
//!     .with_max_tokens(4)
//!     .with_ignore_eos(true);
//! let sink = move |event| match sender.send(event) {
//!     Ok(()) => ControlFlow::Continue(()),
//!     Err(_) => ControlFlow::Break(()),
//! };
//! scheduler.handle().submit(Request::new(vec![1, 2, 3], options), sink)?;
//! let tokens = events.iter().filter(|event| matches!(event, Event::Token { .. })).count();
//! assert_eq!(tokens, 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod constraint;
mod drafter;
mod event;
mod handle;
mod options;
mod request;
mod sequence;
mod stats;
mod step;
mod step_scheduler;
mod submission;
mod submit_error;
mod waiting;
mod work_clock;
mod worker;

use std::thread::JoinHandle;

use crate::engine::Engine;
use crate::error::Error;
use crate::speculation::Speculation;

pub use self::constraint::{Constraint, ConstraintError, TokenMask};
pub use self::event::{Event, RequestError, Sink};
pub use self::handle::{DeviceFailure, Handle};
pub use self::options::SchedulerOptions;
pub use self::request::{GroupId, Request, RequestId};
pub use self::stats::{FinishedCounts, SchedulerStats};
pub use self::step_scheduler::StepScheduler;
pub use self::submit_error::SubmitError;
pub use self::work_clock::WorkTime;
pub use crate::sampling::TokenLogprob;

use self::worker::{SchedulerThread, Sinks};

/// Serves requests on an engine, which a separate thread runs. Dropping it ends all requests and
/// waits for the thread.
#[derive(Debug)]
pub struct Scheduler {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Scheduler {
    /// Starts the thread of an engine.
    ///
    /// # Errors
    ///
    /// If an option is 0, the engine was loaded to embed, or the thread cannot be started.
    pub fn start(engine: Engine, options: SchedulerOptions) -> Result<Self, Error> {
        Self::start_with_drafts(engine, None, options)
    }

    /// [`start`](Self::start) with drafts for a sequence that runs alone. With several sequences a
    /// step needs none to be a large batch.
    ///
    /// # Errors
    ///
    /// The errors of [`start`](Self::start).
    pub fn start_with_drafts(
        engine: Engine,
        speculation: Option<Speculation>,
        options: SchedulerOptions,
    ) -> Result<Self, Error> {
        let steps = StepScheduler::new(&engine, options)?;
        let (handle, inbox) = Handle::new(&engine, steps.options());
        let worker =
            SchedulerThread { engine, speculation, steps, sinks: Sinks::new(handle.shared()) };
        let thread = std::thread::Builder::new()
            .name("rf-engine".into())
            .spawn(move || worker.run(&inbox))
            .map_err(Error::Thread)?;
        Ok(Self { handle, thread: Some(thread) })
    }

    /// A handle to submit requests. It may outlive the scheduler.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Ends all requests with [`StopReason::Cancelled`](crate::StopReason::Cancelled) and waits for
    /// the thread.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the scheduler panicked");
        }
    }
}
