//! Generation: compute, sample, stream, stop.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::decoding::Decoding;
use crate::engine::{Engine, Feed, Outputs};
use crate::error::Error;
use crate::generation::{GenerateOptions, Generation, Piece, StopReason};
use crate::scheduler::Constraint;
use crate::session::Session;
use crate::speculation::Speculation;
use crate::timings::{Timings, micros};

/// The result of a generation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The generated tokens, including an end-of-generation token.
    pub ids: Vec<u32>,
    /// Text of the tokens, up to a stop string and without control tokens.
    pub text: String,
    /// The reason for its end.
    pub stop_reason: StopReason,
    /// Token counts and times.
    pub timings: Timings,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The parts of a generation besides the model: a constraint and drafts.
#[derive(Default)]
pub struct Extras<'a> {
    /// Restricts the output.
    pub constraint: Option<&'a mut dyn Constraint>,
    /// Drafts tokens.
    pub speculation: Option<&'a mut Speculation>,
}

impl Engine {
    /// Continues `prompt`, the whole sequence from its first token. The prefix that the session has
    /// in its cache is reused; the rest is computed. `on_text` receives the text in pieces of whole
    /// characters and may end the generation.
    ///
    /// # Errors
    ///
    /// If the prompt is empty or too long, a sampling parameter is invalid, or the backend fails.
    pub fn generate(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        self.generate_with(session, prompt, options, Extras::default(), on_text)
    }

    /// [`generate`](Self::generate) with a constraint on the output, or drafts.
    ///
    /// # Errors
    ///
    /// The errors of [`generate`](Self::generate), and if the constraint or the draft model fails.
    pub fn generate_with(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        extras: Extras<'_>,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        let Extras { mut constraint, speculation } = extras;
        let start = Instant::now();
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() > self.context_tokens() {
            return Err(Error::PromptTooLong {
                prompt_tokens: prompt.len(),
                context_tokens: self.context_tokens(),
            });
        }
        let mut generation = Generation::new(prompt, options)?;
        // The last token is always computed: its logits are not in the cache.
        let common = session.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
        session.truncate_or_reset(common.min(prompt.len() - 1));
        self.keep_states(session, prompt);
        let cached_tokens = session.len();
        let mut timings = Timings {
            prompt_tokens: prompt.len() - cached_tokens,
            cached_tokens,
            ..Timings::default()
        };
        // A constraint may rule out the most probable tokens.
        let best = match constraint {
            Some(_) => None,
            None => generation.best_needed().filter(|k| *k <= self.max_top_k()),
        };
        // The names of spans are the phases of rf-profile.
        let mut decoding = tracing::info_span!("prefill", tokens = timings.prompt_tokens)
            .in_scope(|| Decoding::start(self, session, prompt, best, speculation))?;
        timings.prompt_us = micros(start.elapsed());

        let mut outcome = Outcome {
            ids: Vec::new(),
            text: String::new(),
            stop_reason: StopReason::Length,
            timings,
            seed: generation.seed(),
        };
        let mut first_token = None;
        let mut last_token = start;
        let mut has_ended = generation.is_at_limit();
        while !has_ended {
            let end = self.advance(session, &outcome.ids, options, &mut decoding)?;
            if let ControlFlow::Break(reason) = end {
                outcome.stop_reason = reason;
                break;
            }
            let id = {
                let _span = tracing::debug_span!("sample").entered();
                if let (Some(constraint), Some(logits)) = (&mut constraint, decoding.logits_mut()) {
                    constraint.allowed()?.apply(logits);
                }
                generation.sample(decoding.next())?
            };
            outcome.ids.push(id);
            last_token = Instant::now();
            first_token.get_or_insert(last_token);
            let Piece { text, mut end } = generation.push(self.model().tokenizer(), id)?;
            if !matches!(end, Some(StopReason::Eog | StopReason::StopString))
                && let Some(constraint) = &mut constraint
            {
                constraint.accept(id)?;
                if constraint.is_finished() {
                    end = Some(StopReason::Constraint);
                }
            }
            outcome.text += &text;
            let goes_on = if text.is_empty() { ControlFlow::Continue(()) } else { on_text(&text) };
            if let Some(reason) = end {
                outcome.stop_reason = reason;
            }
            if goes_on.is_break() && end != Some(StopReason::StopString) {
                outcome.stop_reason = StopReason::Cancelled;
            }
            has_ended = end.is_some() || goes_on.is_break();
        }
        decoding.settle(self, session);
        if outcome.stop_reason != StopReason::StopString {
            let rest = generation.finish();
            outcome.text += &rest;
            if !rest.is_empty() && outcome.stop_reason != StopReason::Cancelled {
                // The generation has ended, so there is nothing left to cancel.
                let _: ControlFlow<()> = on_text(&rest);
            }
        }
        let first_token = first_token.unwrap_or(start);
        outcome.timings.generated_tokens = outcome.ids.len();
        outcome.timings.drafted_tokens = decoding.drafted_tokens;
        outcome.timings.accepted_tokens = decoding.accepted_tokens;
        outcome.timings.ttft_us = micros(first_token - start);
        outcome.timings.decode_us = micros(last_token - first_token);
        Ok(outcome)
    }

    /// Moves to the candidates after the newest token, or returns the reason for the end.
    fn advance(
        &mut self,
        session: &mut Session,
        ids: &[u32],
        options: &GenerateOptions,
        decoding: &mut Decoding<'_>,
    ) -> Result<ControlFlow<StopReason>, Error> {
        let Some(&newest) = ids.last() else { return Ok(ControlFlow::Continue(())) };
        if decoding.accept(newest) {
            return Ok(ControlFlow::Continue(()));
        }
        decoding.settle(self, session);
        if decoding.past_tokens(session) == self.context_tokens() {
            if !options.context_shift || self.context_tokens() < 4 {
                return Ok(ControlFlow::Break(StopReason::ContextFull));
            }
            decoding.catch_up(self, session)?;
            self.shift(session)?;
        }
        // The last token that may be generated is not computed.
        let most = options.max_tokens.map_or(usize::MAX, |most| most - ids.len() - 1);
        decoding.decode(self, session, newest, most)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Drops the older half of a full context, except a leading BOS, and recomputes the rest at its
    /// new positions.
    fn shift(&mut self, session: &mut Session) -> Result<(), Error> {
        let keep = usize::from(session.tokens().first().copied() == self.model().tokenizer().bos());
        let (first, others) = session.tokens().split_at(keep);
        let rest = [first, &others[others.len().div_ceil(2)..]].concat();
        let kept = session.truncate_or_reset(keep);
        self.forward(&mut [Feed { session, ids: &rest[kept..], outputs: Outputs::None }])?;
        Ok(())
    }
}
