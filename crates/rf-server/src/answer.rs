//! A whole answer, for requests that do not stream.

use rocmforge::engine::{StopReason, Timings};
use rocmforge::messages::Answer;

use crate::error::ApiError;
use crate::generation::{Generation, PromptLogprobs, TokenLogprob, Update, Usage};

/// The answers to a request: one per choice.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: Usage,
    /// The prompts, if their log probabilities were asked for.
    pub(crate) prompts: Vec<Option<PromptLogprobs>>,
}

/// One choice.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// The message; for a text that is none, its content alone.
    pub(crate) answer: Answer,
    pub(crate) logprobs: Vec<TokenLogprob>,
    /// Set at the end of the choice.
    pub(crate) end: Option<End>,
    /// The stop string that ended it, if one did.
    pub(crate) stop_string: Option<String>,
}

/// The end of a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) reason: StopReason,
    pub(crate) calls_tools: bool,
    pub(crate) timings: Timings,
}

impl Answers {
    /// Waits for the end of a generation.
    pub(crate) async fn collect(mut generation: Generation) -> Result<Self, ApiError> {
        let mut answers = Self::default();
        while let Some(update) = generation.next().await {
            match update {
                Update::Prompt { job, prompt } => {
                    if answers.prompts.len() <= job {
                        answers.prompts.resize_with(job + 1, || None);
                    }
                    answers.prompts[job] = Some(prompt);
                }
                Update::Delta { choice, delta, logprobs } => {
                    let choice = answers.choice(choice);
                    choice.answer.extend([delta]);
                    choice.logprobs.extend(logprobs);
                }
                Update::Finished { choice, reason, stop_string, calls_tools, timings, .. } => {
                    let choice = answers.choice(choice);
                    choice.end = Some(End { reason, calls_tools, timings });
                    choice.stop_string = stop_string;
                }
                Update::Ended { usage } => answers.usage = usage,
                Update::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(answers)
    }

    fn choice(&mut self, index: usize) -> &mut Choice {
        if self.choices.len() <= index {
            self.choices.resize_with(index + 1, Choice::default);
        }
        &mut self.choices[index]
    }

    /// The times of a request with one choice.
    pub(crate) fn timings(&self) -> Option<&Timings> {
        match self.choices.as_slice() {
            [Choice { end: Some(end), .. }] => Some(&end.timings),
            _ => None,
        }
    }
}
