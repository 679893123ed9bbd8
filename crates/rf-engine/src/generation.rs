//! One generation: turns candidates for the next token into text, and decides when it ends.

use std::fmt;

use rf_graph::Candidate;
use rf_tokenizer::{DecodeOptions, StreamDecoder, Tokenizer};

use crate::error::Error;
use crate::media::is_row;
use crate::sampling::{self, Sampler, SamplerConfig};
use crate::setters::setters;
use crate::stop::{StopMatcher, StopStrings};

/// Options of a generation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// Parameters of sampling.
    pub sampler: SamplerConfig,
    /// The largest number of tokens. Without it the model or the end of the context ends the
    /// generation.
    pub max_tokens: Option<usize>,
    /// Stop strings. The generation ends before the first one.
    pub stop: Vec<String>,
    /// Control tokens whose text is a part of the output: markers of tool calls.
    pub rendered_tokens: Vec<u32>,
    /// True if end-of-generation tokens are treated as any other token.
    pub ignore_eos: bool,
    /// True if to drop the older half of a full context and continue, instead of stopping.
    pub context_shift: bool,
}

impl GenerateOptions {
    setters! {
        with_sampler(sampler: SamplerConfig);
        with_max_tokens(max_tokens: impl Into<Option<usize>>);
        with_stop(stop: Vec<String>);
        with_rendered_tokens(rendered_tokens: Vec<u32>);
        with_ignore_eos(ignore_eos: bool);
        with_context_shift(context_shift: bool);
    }
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
    /// The constraint allows no further token: the output is complete.
    Constraint,
    /// The constraint is too expensive to evaluate any further: the output may be incomplete.
    ConstraintLimit,
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
            Self::Constraint => "constraint",
            Self::ConstraintLimit => "constraint_limit",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The result of a backend for the next token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NextToken<'a> {
    /// The logits of all tokens.
    Logits(&'a [f32]),
    /// The most probable tokens, at least as many as [`GenerationState::best_needed`].
    Best(&'a [Candidate]),
}

/// The consequence of a token.
#[derive(Debug)]
pub(crate) struct TokenPiece {
    /// Text that is now certain, in whole characters; possibly empty.
    pub(crate) text: String,
    /// Why the generation ends with this token, if it does.
    pub(crate) end: Option<StopReason>,
}

/// The state of a generation apart from its tokens: sampler, decoder and stop strings.
#[derive(Debug)]
pub(crate) struct GenerationState {
    sampler: Sampler,
    best_needed: Option<usize>,
    decoder: StreamDecoder,
    stops: StopMatcher,
    ignore_eos: bool,
    max_tokens: Option<usize>,
    generated_tokens: usize,
}

impl GenerationState {
    /// A generation that continues `prompt`, with the stop strings of its options.
    pub(crate) fn new(
        prompt: &[u32],
        options: &GenerateOptions,
        stops: &StopStrings,
    ) -> Result<Self, sampling::Error> {
        let mut sampler = Sampler::new(options.sampler.clone())?;
        for id in prompt.iter().filter(|id| !is_row(**id)) {
            sampler.accept(*id);
        }
        let decode = DecodeOptions::default().with_continuation(true);
        Ok(Self {
            best_needed: sampler.best_needed(),
            sampler,
            decoder: StreamDecoder::new(decode).rendering(options.rendered_tokens.iter().copied()),
            stops: StopMatcher::new(stops),
            ignore_eos: options.ignore_eos,
            max_tokens: options.max_tokens,
            generated_tokens: 0,
        })
    }

    /// Seed of the random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.sampler.seed()
    }

    /// Number of tokens passed to [`push`](Self::push).
    pub(crate) fn generated_tokens(&self) -> usize {
        self.generated_tokens
    }

    /// How many of the most probable tokens [`sample`](Self::sample) needs; `None` if it needs the
    /// logits of all tokens.
    pub(crate) fn best_needed(&self) -> Option<usize> {
        self.best_needed
    }

    /// The number of tokens that may still be generated.
    pub(crate) fn remaining_tokens(&self) -> usize {
        self.max_tokens.map_or(usize::MAX, |most| most.saturating_sub(self.generated_tokens))
    }

    /// Returns true if the largest number of tokens is reached.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.max_tokens.is_some_and(|most| self.generated_tokens >= most)
    }

    /// Chooses the next token. It counts only once it is passed to [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// If there are no candidates.
    pub(crate) fn sample(&mut self, next: NextToken<'_>) -> Result<u32, sampling::Error> {
        match next {
            NextToken::Logits(logits) => self.sampler.sample(logits),
            NextToken::Best(best) => {
                // The nth draw must see the same candidates, however many the backend chose.
                let needed = self.best_needed.unwrap_or(best.len()).min(best.len());
                self.sampler.sample_best(&best[..needed])
            }
        }
    }

    /// Adds a token.
    ///
    /// # Errors
    ///
    /// If the id is not in the vocabulary.
    pub(crate) fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<TokenPiece, Error> {
        self.sampler.accept(id);
        self.generated_tokens += 1;
        if tokenizer.is_eog(id) && !self.ignore_eos {
            return Ok(TokenPiece { text: String::new(), end: Some(StopReason::Eog) });
        }
        let (text, stopped) = self.stops.push(&self.decoder.push(tokenizer, id)?);
        let end = if stopped {
            Some(StopReason::StopString)
        } else {
            self.is_at_limit().then_some(StopReason::Length)
        };
        Ok(TokenPiece { text, end })
    }

    /// The stop string that ended the generation, if one did.
    pub(crate) fn stop_string(&self) -> Option<&str> {
        self.stops.found()
    }

    /// The text that was held back, once the generation has ended for another reason than a stop
    /// string.
    pub(crate) fn finish(&mut self) -> String {
        let (text, stopped) = self.stops.push(&self.decoder.finish());
        if stopped { text } else { text + &self.stops.finish() }
    }
}
