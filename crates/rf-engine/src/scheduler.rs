//! Continuous batching: many requests on one engine.
//!
//! A [`StepScheduler`] serves requests in steps on an engine of the caller. [`Engine::generate`]
//! drives one with a single request. A [`Scheduler`] runs one on a thread, which owns the engine:
//! requests arrive over a channel ([`Handle::submit`]), and each one passes its tokens to a
//! [`Sink`].
//!
//! There is no separate prefill: a *step* is one batch with a budget of tokens. Sequences that
//! decode take one token each, and prompts fill the rest of the budget in chunks.
//!
//! - Requests start in order of priority, then of arrival.
//! - When pages of the KV cache run out, the last sequence in that order is *preempted*: it gives
//!   its pages back and waits. It keeps its tokens and the state of its sampler, so it continues
//!   with the same answer once its tokens are computed again. The first sequence always advances,
//!   because a request that cannot fit alone is refused on arrival.
//! - Full pages are shared through the prefix cache of `rf-kv`, and choices of one request share
//!   the pages of their prompt until they write.
//! - A cancelled request, or one whose sink breaks, frees its pages before the next step.
//! - Without requests the thread sleeps on its channel. [`Handle::call`] lends the engine to other
//!   work between two steps.
//!
//! The answer to a request does not depend on what else is in the batch.
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::mpsc;
//!
//! use rf_engine::sampling::SamplerConfig;
//! use rf_engine::scheduler::{Event, Request, Scheduler, SchedulerOptions};
//! use rf_engine::{Engine, EngineOptions, GenerateOptions, Model};
//! use rf_graph::ReferenceBackend;
//!
//! let model = Model::open("../../golden/arch/smollm3.gguf")?;
//! let options = EngineOptions { context_tokens: Some(64), ..EngineOptions::default() };
//! let engine = Engine::load(model, &ReferenceBackend, options, &mut |_| ())?;
//! let scheduler = Scheduler::start(engine, SchedulerOptions::default())?;
//!
//! let (sender, events) = mpsc::channel();
//! let options = GenerateOptions {
//!     sampler: SamplerConfig::greedy(),
//!     max_tokens: Some(4),
//!     ignore_eos: true,
//!     ..GenerateOptions::default()
//! };
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
mod worker;

use std::thread::JoinHandle;

use crate::engine::Engine;
use crate::error::Error;
use crate::speculation::Speculation;

pub use self::constraint::{Constraint, ConstraintError, TokenMask};
pub use self::event::{Event, RequestError, Sink};
pub use self::handle::Handle;
pub use self::options::SchedulerOptions;
pub use self::request::{Request, RequestId};
pub use self::stats::{FinishedCounts, SchedulerStats};
pub use self::step_scheduler::StepScheduler;
pub use self::submit_error::SubmitError;
pub use crate::sampling::TokenLogprob;

use self::worker::{Sinks, Worker};

/// Serves requests on an engine, which a thread of its own runs. Dropping it ends all requests and
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
        let worker = Worker { engine, speculation, steps, sinks: Sinks::new(handle.shared()) };
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
