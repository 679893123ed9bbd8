//! A whole answer, for requests that do not stream.

use rf_engine::{StopReason, Timings};

use crate::deltas::Delta;
use crate::error::ApiError;
use crate::generation::{Generation, PromptLogprobs, TokenLogprob, Update, Usage};

/// All choices of a request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: Usage,
    /// The prompts, if their log probabilities were asked for.
    pub(crate) prompts: Vec<Option<PromptLogprobs>>,
}

/// One choice.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Call>,
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

/// A tool call.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON; cut off if the choice was.
    pub(crate) arguments: String,
}

impl Answer {
    /// Waits for the end of a generation.
    pub(crate) async fn collect(mut generation: Generation) -> Result<Self, ApiError> {
        let mut answer = Self::default();
        while let Some(update) = generation.next().await {
            match update {
                Update::Started { .. } => {}
                Update::Prompt { job, prompt } => {
                    if answer.prompts.len() <= job {
                        answer.prompts.resize_with(job + 1, || None);
                    }
                    answer.prompts[job] = Some(prompt);
                }
                Update::Delta { choice, delta, logprobs } => {
                    answer.choice(choice).add(delta, logprobs);
                }
                Update::Finished { choice, reason, stop_string, calls_tools, timings } => {
                    let choice = answer.choice(choice);
                    choice.end = Some(End { reason, calls_tools, timings });
                    choice.stop_string = stop_string;
                }
                Update::Ended { usage } => answer.usage = usage,
                Update::Failed(error) => return Err(error),
            }
        }
        Ok(answer)
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

impl Choice {
    fn add(&mut self, delta: Delta, logprobs: Vec<TokenLogprob>) {
        self.logprobs.extend(logprobs);
        match delta {
            Delta::Content(text) => self.content += &text,
            Delta::Reasoning(text) => self.reasoning += &text,
            Delta::CallStart { id, name, .. } => {
                self.calls.push(Call { id, name, arguments: String::new() });
            }
            Delta::CallArguments { index, fragment } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments += &fragment;
                }
            }
            Delta::CallEnd { .. } => {}
        }
    }
}
