//! Speculative decoding: guesses of the next tokens, which the model checks in one batch.
//!
//! A *draft* is a guess of the tokens after the newest one. The newest token and its draft are
//! computed as one batch with the logits of every position. Then the positions are sampled in
//! order, with the sampler, the penalties and the constraint of the generation. While the chosen
//! token is the drafted one, the logits of the next position are known already. The first other
//! token ends the draft, and the tokens after it are dropped from the KV cache.
//!
//! Drafts come from the text itself ([`Speculation::ngram`]), from a smaller model
//! ([`Speculation::draft_model`]) or from a block of the model itself ([`Speculation::mtp`]). Their
//! length follows the share of accepted tokens and the measured times of batches (`lengths`);
//! drafts that do not pay are left out. Only a sequence that runs alone has drafts: with several
//! sequences, a step is a large batch already.
//!
//! # The result is exact
//!
//! Each token is chosen by the same objects from the same logits as without a draft, so the result
//! is exact with every sampler. In the terms of rejection sampling (Leviathan et al., 2023), a
//! draft is a proposal of probability 1: it is accepted with its probability p under the model, and
//! otherwise the token comes from the rest of the distribution. One draw from the distribution,
//! compared with the draft, does exactly that. If logits do not depend on the batch, as on the CPU,
//! a seed also gives the same tokens.
//!
//! # Rejected tokens
//!
//! The session is *tentative* while a draft is computed: pages that the window has passed are kept
//! until the draft is confirmed, so that the cut cannot fail.
//!
//! Recurrent states cannot be cut. Before a draft, the session of such a model forks its pages, and
//! the batch writes into a copy of the states. If the whole draft is accepted, the fork is
//! released. Otherwise the session returns to the fork, and the next batch begins with the accepted
//! tokens. Each draft costs one copy of the states and one more page of them
//! ([`EngineOptions::speculates`](crate::EngineOptions::speculates)). Each rejection adds the
//! accepted tokens to the next batch; `lengths` accounts for both. States after each token would
//! avoid the second computation, but take a page of states for each token of a draft. A draft ends
//! at the next page boundary at which the states are kept for the prefix cache.

mod draft_model;
mod lengths;
mod ngrams;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use draft_model::DraftModel;
use lengths::DraftLengths;
use ngrams::NgramIndex;

use crate::engine::Engine;
use crate::error::Error;
use crate::sampling::{Sampler, SamplerConfig};
use crate::session::Session;

/// Limits of drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpeculationOptions {
    /// The largest number of tokens of a draft, at least 1.
    pub max_draft_tokens: usize,
    /// Drafts of fewer tokens are left out. If it is the largest number too, all drafts have this
    /// length, whether they pay or not.
    pub min_draft_tokens: usize,
}

impl SpeculationOptions {
    /// Sets [`max_draft_tokens`](Self::max_draft_tokens).
    #[must_use]
    pub const fn with_max_draft_tokens(mut self, max_draft_tokens: usize) -> Self {
        self.max_draft_tokens = max_draft_tokens;
        self
    }

    /// Sets [`min_draft_tokens`](Self::min_draft_tokens).
    #[must_use]
    pub const fn with_min_draft_tokens(mut self, min_draft_tokens: usize) -> Self {
        self.min_draft_tokens = min_draft_tokens;
        self
    }
}

impl Default for SpeculationOptions {
    fn default() -> Self {
        Self { max_draft_tokens: 16, min_draft_tokens: 0 }
    }
}

/// A source of drafts for a sequence that runs alone, with the measurements that decide on their
/// length. It serves one sequence after the other.
///
/// Drafts do not change the distribution of the text, and on the CPU not the text.
pub struct Speculation {
    source: Source,
    lengths: DraftLengths,
    /// True if the model computes accepted tokens again when others of their draft are rejected.
    replays: bool,
}

enum Source {
    Ngrams(NgramIndex),
    Model(Box<DraftModel>),
    /// The model's own block.
    Mtp(Box<Sampler>),
}

/// A guess of the tokens after the newest one.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) ids: Vec<u32>,
    kind: usize,
}

impl Speculation {
    /// Drafts from the text itself: the tokens that followed the last ones when they came before.
    ///
    /// # Errors
    ///
    /// If an option is out of range, or the cache of `engine`, which checks the drafts, cannot drop
    /// tokens or has no room for the recurrent states before a draft.
    pub fn ngram(engine: &Engine, options: SpeculationOptions) -> Result<Self, Error> {
        Self::new(engine, Source::Ngrams(NgramIndex::default()), options)
    }

    /// Drafts from `draft`, a smaller model with the vocabulary of `engine`.
    ///
    /// # Errors
    ///
    /// If an option is out of range, the vocabularies differ, or the cache of either model cannot
    /// drop tokens.
    pub fn draft_model(
        engine: &Engine,
        draft: Engine,
        options: SpeculationOptions,
    ) -> Result<Self, Error> {
        draft.check_drops_tokens()?;
        engine.model().check_draft_vocabulary(draft.model())?;
        Self::new(engine, Source::Model(Box::new(DraftModel::new(draft)?)), options)
    }

    /// Drafts from the block of `engine`'s own model that guesses further tokens (MTP): the most
    /// probable tokens, one after the other.
    ///
    /// # Errors
    ///
    /// If an option is out of range, the cache of `engine` cannot drop tokens, or `engine` was
    /// loaded without the block ([`EngineOptions::mtp`](crate::EngineOptions::mtp)).
    pub fn mtp(engine: &Engine, options: SpeculationOptions) -> Result<Self, Error> {
        if !engine.has_mtp() {
            return Err(Error::NoMtp);
        }
        let sampler = Sampler::new(SamplerConfig::greedy())?;
        Self::new(engine, Source::Mtp(Box::new(sampler)), options)
    }

    /// True if there are drafts after pictures: a draft model has no rows for them.
    pub(crate) fn reads_media(&self) -> bool {
        !matches!(self.source, Source::Model(_))
    }

    /// The draft model, if there is one.
    pub fn draft_engine(&self) -> Option<&Engine> {
        match &self.source {
            Source::Model(draft) => Some(&draft.engine),
            Source::Ngrams(_) | Source::Mtp(_) => None,
        }
    }

    fn new(engine: &Engine, source: Source, options: SpeculationOptions) -> Result<Self, Error> {
        engine.check_drops_tokens()?;
        let SpeculationOptions { max_draft_tokens, min_draft_tokens } = options;
        let refused = |name, value, reason| Err(Error::InvalidOption { name, value, reason });
        if max_draft_tokens == 0 {
            return refused("length of drafts", 0, "it must be at least 1");
        }
        if min_draft_tokens > max_draft_tokens {
            let reason = "it must not be above the largest length";
            return refused("least length of drafts", min_draft_tokens, reason);
        }
        let lengths = DraftLengths::new(min_draft_tokens, max_draft_tokens);
        Ok(Self { source, lengths, replays: engine.is_recurrent() })
    }

    /// Begins another sequence.
    pub(crate) fn start(&mut self, prompt: &[u32]) {
        if let Source::Ngrams(index) = &mut self.source {
            index.clear();
            for id in prompt {
                index.push(*id);
            }
        }
    }

    /// Drafts at most `most` tokens. The sequence is the tokens of `session`, then `replayed`,
    /// which the cache lacks, then `newest`. `engine` checks the draft.
    ///
    /// # Errors
    ///
    /// If the draft model or the block of `engine` fails.
    pub(crate) fn draft(
        &mut self,
        (engine, session): (&mut Engine, &mut Session),
        replayed: &[u32],
        newest: u32,
        most: usize,
    ) -> Result<Draft, Error> {
        let replay = self.replays.then_some(replayed.len());
        let mut choose = |kind| self.lengths.choose(kind, most, replay);
        let (ids, time) = match &mut self.source {
            Source::Ngrams(index) => {
                index.push(newest);
                return Ok(draft_of_ngrams(index, choose));
            }
            Source::Model(model) => {
                let past = match replayed {
                    [] => Cow::Borrowed(session.tokens()),
                    _ => Cow::Owned([session.tokens(), replayed].concat()),
                };
                model.draft(&past, newest, choose(0))?
            }
            Source::Mtp(sampler) => {
                let start = Instant::now();
                let ids = [replayed, &[newest]].concat();
                let ids = engine.draft(session, &ids, choose(0), sampler)?;
                (ids, start.elapsed())
            }
        };
        self.lengths.note_drafting(ids.len(), time);
        Ok(Draft { ids, kind: 0 })
    }

    /// Appends a token to the sequence. [`draft`](Self::draft) does so itself.
    pub(crate) fn push(&mut self, newest: u32) {
        if let Source::Ngrams(index) = &mut self.source {
            index.push(newest);
        }
    }

    /// Notes how many tokens of a draft were accepted.
    pub(crate) fn note_result(&mut self, draft: &Draft, accepted: usize) {
        self.lengths.note_result(draft.kind, draft.ids.len(), accepted);
    }

    /// Notes the time of a batch of the model.
    pub(crate) fn note_batch(&mut self, tokens: usize, time: Duration) {
        self.lengths.note_batch(tokens, time);
    }
}

/// A draft after the longest match. Long matches are accepted more often, so they are another kind.
fn draft_of_ngrams(index: &NgramIndex, choose_len: impl FnOnce(usize) -> usize) -> Draft {
    let Some(found) = index.longest_match() else { return Draft::default() };
    let kind = match found.len {
        ..6 => 0,
        6..12 => 1,
        _ => 2,
    };
    Draft { ids: index.draft(found, choose_len(kind)), kind }
}
