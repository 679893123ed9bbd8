//! The fold of updates into whole answers.

use rf_chat::Answer;
use rf_engine::{StopReason, Timings};

use crate::error::Error;
use crate::generation::{GeneratedToken, PromptLogprobs, Update, Usage};

/// The answers of a [`Generation`](crate::Generation): one per choice, counted over all jobs.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Answers {
    /// The choices so far.
    pub choices: Vec<Choice>,
    /// Tokens of all jobs, once they are complete.
    pub usage: Usage,
    /// The prompts of the jobs, if their log probabilities are requested.
    pub prompts: Vec<Option<PromptLogprobs>>,
}

/// One choice.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Choice {
    /// The message; for a text that is none, its content alone.
    pub answer: Answer,
    /// The tokens with their log probabilities, if requested.
    pub logprobs: Vec<GeneratedToken>,
    /// Set at the end of the choice.
    pub end: Option<End>,
    /// The stop string that ended it, if one did.
    pub stop_string: Option<String>,
}

/// The end of a choice.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct End {
    /// The reason.
    pub reason: StopReason,
    /// True if the message asks for tools: it has calls, and none is cut off.
    pub calls_tools: bool,
    /// Token counts and times.
    pub timings: Timings,
}

impl Answers {
    /// Adds an update.
    ///
    /// # Errors
    ///
    /// The error of [`Update::Failed`].
    pub fn push(&mut self, update: Update) -> Result<(), Error> {
        match update {
            Update::Started { .. } => {}
            Update::Prompt { job, prompt } => {
                if self.prompts.len() <= job {
                    self.prompts.resize_with(job + 1, || None);
                }
                self.prompts[job] = Some(prompt);
            }
            Update::Delta { choice, delta, logprobs } => {
                let choice = self.choice(choice);
                choice.answer.extend([delta]);
                choice.logprobs.extend(logprobs);
            }
            Update::Finished { choice, reason, stop_string, calls_tools, timings, .. } => {
                let choice = self.choice(choice);
                choice.end = Some(End { reason, calls_tools, timings });
                choice.stop_string = stop_string;
            }
            Update::Ended { usage } => self.usage = usage,
            Update::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn choice(&mut self, index: usize) -> &mut Choice {
        if self.choices.len() <= index {
            self.choices.resize_with(index + 1, Choice::default);
        }
        &mut self.choices[index]
    }

    /// The times of a request with one choice.
    pub fn timings(&self) -> Option<&Timings> {
        match self.choices.as_slice() {
            [Choice { end: Some(end), .. }] => Some(&end.timings),
            _ => None,
        }
    }
}
