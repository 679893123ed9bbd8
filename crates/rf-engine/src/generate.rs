//! Generation: feed, sample, stream, stop.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rf_graph::Candidate;
use rf_tokenizer::{DecodeOptions, StreamDecoder};

use crate::engine::{Engine, Feed, Outputs};
use crate::error::Error;
use crate::sampling::{Sampler, SamplerConfig};
use crate::session::Session;
use crate::stop::StopMatcher;

/// How to generate.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// How the next token is chosen.
    pub sampler: SamplerConfig,
    /// Tokens at most; without it the model's end or the end of the context.
    pub max_tokens: Option<usize>,
    /// Texts before which to stop.
    pub stop: Vec<String>,
    /// Whether tokens that end a generation are taken as any other.
    pub ignore_eos: bool,
    /// Whether to drop the older half of a full context and go on, rather than stop.
    pub context_shift: bool,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The model chose an end-of-generation token.
    Eog,
    /// [`GenerateOptions::max_tokens`] were generated.
    Length,
    /// A text of [`GenerateOptions::stop`] came.
    StopString,
    /// The context is full.
    ContextFull,
    /// The caller said so.
    Cancelled,
}

impl StopReason {
    /// A word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eog => "eog",
            Self::Length => "length",
            Self::StopString => "stop_string",
            Self::ContextFull => "context_full",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a generation gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The generated tokens, with the one that ended it if it was the model's.
    pub ids: Vec<u32>,
    /// Their text, up to a stop string and without control tokens.
    pub text: String,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// How long it took.
    pub timings: Timings,
    /// Seed of the draws.
    pub seed: u64,
}

/// Times of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Tokens of the prompt that were computed.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were in the cache.
    pub cached_tokens: usize,
    /// Time for the prompt.
    pub prompt_us: u64,
    /// Tokens that were generated.
    pub generated_tokens: usize,
    /// Time from the first generated token to the last.
    pub decode_us: u64,
    /// Time from the call to the first generated token.
    pub ttft_us: u64,
}

impl Timings {
    /// Speed of the prompt, if there was one to compute.
    pub fn prompt_tokens_per_second(&self) -> Option<f64> {
        per_second(self.prompt_tokens, self.prompt_us)
    }

    /// Speed of generation. The first token comes with the prompt, so there must be two.
    pub fn decode_tokens_per_second(&self) -> Option<f64> {
        per_second(self.generated_tokens.saturating_sub(1), self.decode_us)
    }
}

fn per_second(tokens: usize, us: u64) -> Option<f64> {
    (tokens > 0 && us > 0).then(|| tokens as f64 * 1e6 / us as f64)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Engine {
    /// Continues `prompt`, the whole sequence from its first token. What the session already has of it
    /// stays in the cache; the rest is computed. `on_text` gets the text piece by piece, whole
    /// characters, and may end the generation.
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
        let start = Instant::now();
        let mut sampler = Sampler::new(options.sampler.clone())?;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() > self.context_tokens() {
            return Err(Error::PromptTooLong {
                prompt_tokens: prompt.len(),
                context_tokens: self.context_tokens(),
            });
        }
        for id in prompt {
            sampler.accept(*id);
        }
        // The last token is computed in any case: its logits are not in the cache.
        let common = session.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let cached_tokens = common.min(prompt.len() - 1);
        session.truncate(cached_tokens);
        let mut timings = Timings {
            prompt_tokens: prompt.len() - cached_tokens,
            cached_tokens,
            ..Timings::default()
        };
        let wanted = sampler.best_needed().filter(|k| *k <= self.max_top_k());
        // Names of spans are those of rf-profile's phases.
        let mut next = tracing::info_span!("prefill", tokens = timings.prompt_tokens)
            .in_scope(|| self.next_token(session, &prompt[cached_tokens..], wanted))?;
        timings.prompt_us = micros(start.elapsed());

        let mut decoder =
            StreamDecoder::new(DecodeOptions { continuation: true, ..DecodeOptions::default() });
        let mut stops = StopMatcher::new(&options.stop);
        let mut outcome = Outcome {
            ids: Vec::new(),
            text: String::new(),
            stop_reason: StopReason::Length,
            timings,
            seed: sampler.seed(),
        };
        let mut first_token = None;
        let mut last_token = start;
        while options.max_tokens.is_none_or(|max| outcome.ids.len() < max) {
            let end = self.advance(session, &outcome.ids, options, &mut next)?;
            if let ControlFlow::Break(reason) = end {
                outcome.stop_reason = reason;
                break;
            }
            let id = tracing::debug_span!("sample").in_scope(|| match &next {
                NextToken::Logits(logits) => sampler.sample(logits),
                NextToken::Best(_, best) => sampler.sample_best(best),
            })?;
            sampler.accept(id);
            outcome.ids.push(id);
            last_token = Instant::now();
            first_token.get_or_insert(last_token);
            if self.model().tokenizer().is_eog(id) && !options.ignore_eos {
                outcome.stop_reason = StopReason::Eog;
                break;
            }
            let piece = decoder.push(self.model().tokenizer(), id)?;
            let (text, stopped) = stops.push(&piece);
            outcome.text += &text;
            let goes_on = if text.is_empty() { ControlFlow::Continue(()) } else { on_text(&text) };
            if stopped || goes_on.is_break() {
                outcome.stop_reason =
                    if stopped { StopReason::StopString } else { StopReason::Cancelled };
                break;
            }
        }
        if outcome.stop_reason != StopReason::StopString {
            let (text, stopped) = stops.push(&decoder.finish());
            let rest = if stopped { text } else { text + &stops.finish() };
            outcome.text += &rest;
            if !rest.is_empty() && outcome.stop_reason != StopReason::Cancelled {
                // The generation is over: there is nothing left to break off.
                let _: ControlFlow<()> = on_text(&rest);
            }
        }
        let first_token = first_token.unwrap_or(start);
        outcome.timings.generated_tokens = outcome.ids.len();
        outcome.timings.ttft_us = micros(first_token - start);
        outcome.timings.decode_us = micros(last_token - first_token);
        Ok(outcome)
    }

    /// Feeds the newest token, or says why that is the end.
    fn advance(
        &mut self,
        session: &mut Session,
        ids: &[u32],
        options: &GenerateOptions,
        next: &mut NextToken,
    ) -> Result<ControlFlow<StopReason>, Error> {
        let Some(&newest) = ids.last() else { return Ok(ControlFlow::Continue(())) };
        if session.len() == self.context_tokens() {
            if !options.context_shift || self.context_tokens() < 4 {
                return Ok(ControlFlow::Break(StopReason::ContextFull));
            }
            self.shift(session)?;
        }
        let wanted = match next {
            NextToken::Logits(_) => None,
            NextToken::Best(k, _) => Some(*k),
        };
        let span = tracing::debug_span!("decode", position = session.len());
        *next = span.in_scope(|| self.next_token(session, &[newest], wanted))?;
        Ok(ControlFlow::Continue(()))
    }

    /// Drops the older half of a full context (all but a leading BOS) and computes the rest anew at
    /// its new positions.
    fn shift(&mut self, session: &mut Session) -> Result<(), Error> {
        let keep = usize::from(session.tokens().first().copied() == self.model().tokenizer().bos());
        let newer = session.tokens()[keep + (session.len() - keep).div_ceil(2)..].to_vec();
        session.truncate(keep);
        self.forward(&mut [Feed { session, ids: &newer, outputs: Outputs::None }])?;
        Ok(())
    }

    /// Feeds tokens of a sequence. With `best` only so many of the most probable tokens are fetched.
    fn next_token(
        &mut self,
        session: &mut Session,
        ids: &[u32],
        best: Option<usize>,
    ) -> Result<NextToken, Error> {
        let mut feeds = [Feed { session, ids, outputs: Outputs::Last }];
        Ok(match best {
            Some(k) => NextToken::Best(k, self.forward_top_k(&mut feeds, k)?),
            None => NextToken::Logits(self.forward(&mut feeds)?),
        })
    }
}

/// What is known of the token that comes next.
enum NextToken {
    /// By token.
    Logits(Vec<f32>),
    /// So many of the most probable ones.
    Best(usize, Vec<Candidate>),
}
