//! An answer: piece by piece, and as a whole.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use rf_chat::{AnswerCall, Message};
use rf_engine::{StopReason, Timings};

use crate::answers::{Answers, Choice, End};
use crate::block_on::block_on;
use crate::error::Error;
use crate::generation::{GeneratedToken, Generation, Update, Usage};

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// Text for the user.
    Content(String),
    /// Text of the model's reasoning.
    Reasoning(String),
    /// A tool call begins. Its arguments follow.
    CallStart {
        /// The number of the call in this answer, from 0.
        index: usize,
        /// An id that is new for each call.
        id: String,
        /// The name of the tool.
        name: String,
    },
    /// A piece of the arguments of a call.
    CallArguments {
        /// The number of the call.
        index: usize,
        /// Text to append to the arguments, which are JSON.
        fragment: String,
    },
    /// A tool call ends.
    CallEnd {
        /// The number of the call.
        index: usize,
        /// True if the arguments are a whole JSON object.
        complete: bool,
    },
    /// The answer is complete. This is the last piece.
    Finished {
        /// The reason for its end.
        reason: StopReason,
        /// Tokens of the request.
        usage: Usage,
        /// Token counts and times.
        timings: Timings,
    },
}

/// A whole answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// Text for the user.
    pub content: String,
    /// The model's reasoning.
    pub reasoning: String,
    /// The tool calls, in order.
    pub calls: Vec<AnswerCall>,
    /// The reason for the end of the answer.
    pub reason: StopReason,
    /// The tokens with their log probabilities, if requested.
    pub tokens: Vec<GeneratedToken>,
    /// Tokens of the request.
    pub usage: Usage,
    /// Token counts and times.
    pub timings: Timings,
}

impl Answer {
    /// Returns true if the answer asks for tools: it has calls, and all of them are complete.
    pub fn calls_tools(&self) -> bool {
        !self.calls.is_empty() && self.calls.iter().all(|call| call.complete)
    }

    /// Parses the content, which is JSON.
    ///
    /// # Errors
    ///
    /// If the content is not the JSON of such a value.
    pub fn value<T: serde::de::DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(&self.content)
            .map_err(|source| Error::NotTheValue { text: self.content.clone(), source })
    }
}

/// The message of the assistant in the next prompt. A call that was cut off is left out.
impl From<Answer> for Message {
    fn from(answer: Answer) -> Self {
        let Answer { content, reasoning, calls, .. } = answer;
        rf_chat::Answer { content, reasoning, calls }.into()
    }
}

/// An answer while it is generated: an iterator, which blocks, and an async
/// [`Stream`]. After [`Delta::Finished`], or after an error, there is no
/// further piece. Dropping it cancels the request.
#[derive(Debug)]
pub struct AnswerStream {
    generation: Generation,
    tokens: Vec<GeneratedToken>,
}

impl AnswerStream {
    pub(crate) fn new(generation: Generation) -> Self {
        Self { generation, tokens: Vec::new() }
    }

    /// Tokens so far.
    pub fn usage(&self) -> Usage {
        self.generation.usage()
    }

    /// Waits for the rest, and returns what was not read before as an answer. It blocks the thread.
    ///
    /// # Errors
    ///
    /// If the model fails.
    pub fn answer(self) -> Result<Answer, Error> {
        block_on(self.answer_async())
    }

    /// [`answer`](Self::answer) for async code.
    ///
    /// # Errors
    ///
    /// If the model fails.
    pub async fn answer_async(mut self) -> Result<Answer, Error> {
        let mut answers = Answers::default();
        while let Some(update) = self.generation.next().await {
            answers.push(update)?;
        }
        let Choice { answer, logprobs, end, .. } = answers.choices.pop().unwrap_or_default();
        let Some(End { reason, timings, .. }) = end else { return Err(Error::ShuttingDown) };
        let rf_chat::Answer { content, reasoning, calls } = answer;
        self.tokens.extend(logprobs);
        let (tokens, usage) = (self.tokens, self.generation.usage());
        Ok(Answer { content, reasoning, calls, reason, tokens, usage, timings })
    }

    fn poll_delta(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delta, Error>>> {
        loop {
            let delta = match ready!(self.generation.poll_update(cx, true)) {
                Some(Update::Delta { delta, logprobs, .. }) => {
                    self.tokens.extend(logprobs);
                    Ok(delta.into())
                }
                Some(Update::Finished { reason, timings, .. }) => {
                    Ok(Delta::Finished { reason, usage: self.generation.usage(), timings })
                }
                Some(Update::Failed(error)) => Err(error),
                Some(_) => continue,
                None => return Poll::Ready(None),
            };
            return Poll::Ready(Some(delta));
        }
    }
}

impl From<rf_chat::Delta> for Delta {
    fn from(delta: rf_chat::Delta) -> Self {
        match delta {
            rf_chat::Delta::Content(text) => Self::Content(text),
            rf_chat::Delta::Reasoning(text) => Self::Reasoning(text),
            rf_chat::Delta::CallStart { index, id, name } => Self::CallStart { index, id, name },
            rf_chat::Delta::CallArguments { index, fragment } => {
                Self::CallArguments { index, fragment }
            }
            rf_chat::Delta::CallEnd { index, complete } => Self::CallEnd { index, complete },
        }
    }
}

impl Iterator for AnswerStream {
    type Item = Result<Delta, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(poll_fn(|cx| self.poll_delta(cx)))
    }
}

impl Stream for AnswerStream {
    type Item = Result<Delta, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_delta(cx)
    }
}
