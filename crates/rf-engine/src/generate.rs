//! Generation of one answer: a request alone on a [`StepScheduler`].

use std::ops::ControlFlow;

use crate::engine::Engine;
use crate::error::Error;
use crate::generation::{GenerateOptions, StopReason};
use crate::media::MixedPrompt;
use crate::sampling::TokenLogprob;
use crate::scheduler::{Constraint, Event, Request, SchedulerOptions, StepScheduler};
use crate::session::Session;
use crate::setters::setters;
use crate::speculation::Speculation;
use crate::timings::Timings;

/// The result of a generation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The generated tokens, including an end-of-generation token.
    pub ids: Vec<u32>,
    /// Log probabilities of the tokens, if requested.
    pub logprobs: Vec<TokenLogprob>,
    /// Text of the tokens, up to a stop string and without control tokens.
    pub text: String,
    /// The reason for its end.
    pub stop_reason: StopReason,
    /// Token counts and times.
    pub timings: Timings,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The parts of a generation besides the model.
#[derive(Default)]
#[non_exhaustive]
pub struct Extras<'a> {
    /// Restricts the output.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Drafts tokens.
    pub speculation: Option<&'a mut Speculation>,
    /// Log probabilities of the generated tokens, with as many of the most probable tokens at each
    /// position.
    pub logprobs: Option<usize>,
    /// Receives the progress of the prompt after each batch but the last, and may end the
    /// generation.
    pub on_prompt: Option<&'a mut dyn FnMut(PromptProgress) -> ControlFlow<()>>,
}

/// The part of a prompt that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptProgress {
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Tokens that are in the cache: found there, or computed.
    pub done_tokens: usize,
    /// Tokens that were found in the cache.
    pub cached_tokens: usize,
}

impl<'a> Extras<'a> {
    setters! {
        with_constraint(constraint: Option<Box<dyn Constraint>>);
        with_speculation(speculation: impl Into<Option<&'a mut Speculation>>);
        with_logprobs(logprobs: impl Into<Option<usize>>);
        with_on_prompt(on_prompt: &'a mut dyn FnMut(PromptProgress) -> ControlFlow<()>);
    }
}

impl Engine {
    /// Continues `prompt`, the whole sequence from its first token. The prefix that the session has
    /// in its cache is reused; the rest is computed. `on_text` receives the text in pieces of whole
    /// characters and may end the generation.
    ///
    /// A [`StepScheduler`] gives several answers to a prompt, and serves several prompts.
    ///
    /// # Errors
    ///
    /// If the prompt is empty or too long, or a sampling parameter is invalid. The session is then
    /// unchanged. If the backend or sampling fails, the session is empty.
    pub fn generate(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        self.generate_with(session, prompt, options, Extras::default(), on_text)
    }

    /// [`generate`](Self::generate) with a constraint on the output, drafts or log probabilities.
    ///
    /// # Errors
    ///
    /// The errors of [`generate`](Self::generate), and if the constraint fails. A failure of the
    /// drafts is a warning.
    pub fn generate_with(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        extras: Extras<'_>,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        self.generate_mixed(session, prompt.to_vec().into(), options, extras, on_text)
    }

    /// [`generate_with`](Self::generate_with) for a prompt with media.
    ///
    /// # Errors
    ///
    /// The errors of [`generate_with`](Self::generate_with), and if the model or its backend takes
    /// no media, or not these.
    pub fn generate_mixed(
        &mut self,
        session: &mut Session,
        prompt: MixedPrompt,
        options: &GenerateOptions,
        extras: Extras<'_>,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        let Extras { constraint, mut speculation, logprobs, mut on_prompt } = extras;
        let alone = SchedulerOptions {
            max_num_seqs: 1,
            max_batched_tokens: self.batch_tokens(),
            prefix_cache: false,
            ..SchedulerOptions::default()
        };
        let mut steps = StepScheduler::new(self, alone)?;
        let request = Request::new(prompt, options.clone());
        let request = Request { logprobs, constraint, ..request };
        let id = steps.submit_with(self, request, session)?;

        let mut outcome = Outcome {
            ids: Vec::new(),
            logprobs: Vec::new(),
            text: String::new(),
            stop_reason: StopReason::Length,
            timings: Timings::default(),
            seed: 0,
        };
        let mut failed = None;
        // Until the first token.
        let mut progress: Option<PromptProgress> = None;
        let mut take = |event, progress: &mut Option<PromptProgress>| {
            let text = match event {
                Event::Token { id, text, logprob, .. } => {
                    *progress = None;
                    outcome.ids.push(id);
                    outcome.logprobs.extend(logprob);
                    text
                }
                Event::Finished { reason, text, timings, session: computed, .. } => {
                    *progress = None;
                    outcome.stop_reason = reason;
                    outcome.timings = timings;
                    if let Some(computed) = computed {
                        *session = *computed;
                    }
                    text
                }
                Event::Started { seed, prompt_tokens, cached_tokens } => {
                    outcome.seed = seed;
                    *progress = Some(PromptProgress {
                        tokens: prompt_tokens,
                        done_tokens: cached_tokens,
                        cached_tokens,
                    });
                    return ControlFlow::Continue(());
                }
                Event::Failed(error) => {
                    *progress = None;
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
                Event::Prompt { .. } => return ControlFlow::Continue(()),
            };
            outcome.text += &text;
            // Whoever has cancelled the generation takes no more text.
            if text.is_empty() || outcome.stop_reason == StopReason::Cancelled {
                return ControlFlow::Continue(());
            }
            on_text(&text)
        };
        while !steps.is_idle() {
            steps
                .step(self, speculation.as_deref_mut(), &mut |_, event| take(event, &mut progress));
            let Some(progress) = &mut progress else { continue };
            progress.done_tokens = steps.computed_tokens(id);
            if let Some(on_prompt) = &mut on_prompt
                && progress.done_tokens < progress.tokens
                && on_prompt(*progress).is_break()
            {
                steps.cancel(id);
            }
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        // The scheduler clamps the number of tokens to the room for them.
        let is_clamped = options.max_tokens.is_some_and(|most| outcome.ids.len() < most);
        if outcome.stop_reason == StopReason::Length && is_clamped {
            outcome.stop_reason = StopReason::ContextFull;
        }
        Ok(outcome)
    }
}
