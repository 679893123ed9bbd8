//! Generation: compute, sample, stream, stop.

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

/// Options of a generation.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// Parameters of sampling.
    pub sampler: SamplerConfig,
    /// The largest number of tokens. Without it the model or the end of the context ends the
    /// generation.
    pub max_tokens: Option<usize>,
    /// Stop strings. The generation ends before the first one.
    pub stop: Vec<String>,
    /// Whether end-of-generation tokens are treated as any other token.
    pub ignore_eos: bool,
    /// Whether to drop the older half of a full context and continue, instead of stopping.
    pub context_shift: bool,
}

/// The reason for the end of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The model generated an end-of-generation token.
    Eog,
    /// [`GenerateOptions::max_tokens`] were generated.
    Length,
    /// A string of [`GenerateOptions::stop`] was generated.
    StopString,
    /// The context is full.
    ContextFull,
    /// The caller cancelled it.
    Cancelled,
}

impl StopReason {
    /// The name in JSON output.
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

/// Token counts and times of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Computed tokens of the prompt.
    pub prompt_tokens: usize,
    /// Cached tokens of the prompt.
    pub cached_tokens: usize,
    /// Time of prefill.
    pub prompt_us: u64,
    /// Generated tokens.
    pub generated_tokens: usize,
    /// Time from the first generated token to the last.
    pub decode_us: u64,
    /// Time to first token (TTFT): from the call to the first generated token.
    pub ttft_us: u64,
}

impl Timings {
    /// Throughput of prefill, if any token was computed.
    pub fn prompt_tokens_per_second(&self) -> Option<f64> {
        per_second(self.prompt_tokens, self.prompt_us)
    }

    /// Throughput of decode. Prefill produces the first token, so this needs at least two.
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
        // The last token is always computed: its logits are not in the cache.
        let common = session.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let cached_tokens = common.min(prompt.len() - 1);
        session.truncate(cached_tokens);
        let mut timings = Timings {
            prompt_tokens: prompt.len() - cached_tokens,
            cached_tokens,
            ..Timings::default()
        };
        let best = sampler.best_needed().filter(|k| *k <= self.max_top_k());
        // The names of spans are the phases of rf-profile.
        let mut next = tracing::info_span!("prefill", tokens = timings.prompt_tokens)
            .in_scope(|| self.next_token(session, &prompt[cached_tokens..], best))?;
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
                // The generation has ended, so there is nothing left to cancel.
                let _: ControlFlow<()> = on_text(&rest);
            }
        }
        let first_token = first_token.unwrap_or(start);
        outcome.timings.generated_tokens = outcome.ids.len();
        outcome.timings.ttft_us = micros(first_token - start);
        outcome.timings.decode_us = micros(last_token - first_token);
        Ok(outcome)
    }

    /// Computes the newest token, or returns the reason for the end.
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
        let best = match next {
            NextToken::Logits(_) => None,
            NextToken::Best(k, _) => Some(*k),
        };
        let span = tracing::debug_span!("decode", position = session.len());
        *next = span.in_scope(|| self.next_token(session, &[newest], best))?;
        Ok(ControlFlow::Continue(()))
    }

    /// Drops the older half of a full context, except a leading BOS, and recomputes the rest at its
    /// new positions.
    fn shift(&mut self, session: &mut Session) -> Result<(), Error> {
        let keep = usize::from(session.tokens().first().copied() == self.model().tokenizer().bos());
        let newer = session.tokens()[keep + (session.len() - keep).div_ceil(2)..].to_vec();
        session.truncate(keep);
        self.forward(&mut [Feed { session, ids: &newer, outputs: Outputs::None }])?;
        Ok(())
    }

    /// Computes tokens of a sequence. With `best`, fetches only that many of the most probable
    /// tokens.
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

/// Candidates for the next token.
enum NextToken {
    /// The logits of all tokens.
    Logits(Vec<f32>),
    /// The `k` most probable tokens.
    Best(usize, Vec<Candidate>),
}
