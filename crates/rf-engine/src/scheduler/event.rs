//! Events: what a request passes to its receiver.

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::Error;
use crate::generation::StopReason;
use crate::sampling::{self, TokenLogprob};
use crate::scheduler::constraint::ConstraintError;
use crate::scheduler::request::RequestId;
use crate::scheduler::stats::SchedulerStats;
use crate::session::Session;
use crate::timings::Timings;

/// The receiver of a request's events. Closures of the same signature implement it.
pub trait Sink: Send {
    /// Takes an event. It runs on the thread of the engine, so it must not block.
    ///
    /// Returns `Break` if nobody takes events any more, or the receiver is too slow: the request
    /// ends at once, without another event. A panic has the same effect.
    fn event(&mut self, event: Event) -> ControlFlow<()>;
}

impl<F: FnMut(Event) -> ControlFlow<()> + Send> Sink for F {
    fn event(&mut self, event: Event) -> ControlFlow<()> {
        self(event)
    }
}

/// Takes the events of all requests.
pub(super) trait Observer {
    /// Takes an event. `Break` cancels the request.
    fn event(&mut self, id: RequestId, event: Event) -> ControlFlow<()>;

    /// The statistics have changed: before a batch is computed, before last events, when the pages
    /// of ended requests are free, and at the end of a step. They are without the requests that
    /// have not started.
    fn note_stats(&mut self, _stats_of_started: &dyn Fn() -> SchedulerStats) {}
}

impl<F: FnMut(RequestId, Event) -> ControlFlow<()>> Observer for F {
    fn event(&mut self, id: RequestId, event: Event) -> ControlFlow<()> {
        self(id, event)
    }
}

/// Something that happened to a request.
///
/// A request gives `Started` once, then `Token`s, and one `Finished` per choice. `Failed` ends the
/// whole request at any time. When the last event arrives, the pages of the choice are free, except
/// those of a returned session, and [`Handle::stats`](super::Handle::stats) counts it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The first batch with tokens of the request is about to be computed.
    Started {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Prompt tokens that are in the prefix cache.
        cached_tokens: usize,
        /// Seed of choice 0; choice `i` uses `seed + i`.
        seed: u64,
    },
    /// The log probabilities of the prompt's tokens except the first one, if requested. It comes
    /// before the first token.
    Prompt {
        /// Log probabilities, one per token.
        logprobs: Vec<TokenLogprob>,
    },
    /// A token was generated.
    Token {
        /// Index of the choice.
        choice: usize,
        /// The token.
        id: u32,
        /// Text that is now certain: whole characters that cannot begin a stop string. May be
        /// empty.
        text: String,
        /// Log probability of the token, if requested.
        logprob: Option<TokenLogprob>,
    },
    /// A choice ended.
    Finished {
        /// Index of the choice.
        choice: usize,
        /// The reason.
        reason: StopReason,
        /// Text that was held back.
        text: String,
        /// The stop string that was generated, for [`StopReason::StopString`].
        stop_string: Option<String>,
        /// Token counts and times. The times of the prompt are those of the whole request.
        timings: Timings,
        /// The sequence with the tokens that were computed, if the request came with a
        /// [`session`](super::Request::session).
        session: Option<Box<Session>>,
    },
    /// The request failed, and all its choices have ended.
    Failed(RequestError),
}

/// The reason for the failure of a request.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The engine failed. All requests of the same batch share the error.
    #[error(transparent)]
    Engine(Arc<Error>),
    /// There is no token to choose: NaN from the model, or everything is ruled out.
    #[error(transparent)]
    Sampling(#[from] sampling::Error),
    /// The constraint failed.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// Code that serves the request panicked.
    #[error("the request failed because of an internal error: {0}")]
    Panicked(String),
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self::Engine(Arc::new(error))
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Engine(error) => Arc::try_unwrap(error).unwrap_or_else(Self::Shared),
            RequestError::Sampling(error) => Self::Sampling(error),
            RequestError::Constraint(error) => Self::Constraint(error),
            RequestError::Panicked(message) => Self::Panicked(message),
        }
    }
}

impl RequestError {
    /// The text of an error of the device.
    pub(super) fn of_device(&self) -> Option<String> {
        match self {
            Self::Engine(error) => match &**error {
                Error::Backend(error) if error.is_of_device() => Some(error.to_string()),
                _ => None,
            },
            _ => None,
        }
    }

    /// A caught panic.
    pub(super) fn from_panic(payload: &(dyn Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied());
        Self::Panicked(message.unwrap_or("panic").to_owned())
    }
}
