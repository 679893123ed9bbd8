//! Drafts from a second, smaller model.

use std::time::{Duration, Instant};

use crate::engine::{Engine, Outputs, SequenceInput};
use crate::error::Error;
use crate::sampling::{Sampler, SamplerConfig};
use crate::session::Session;

/// Tokens that the draft model catches up with in the batch of its first token. More are a prompt,
/// whose time says nothing about drafts.
const FEW_TOKENS: usize = 4;

/// A model that drafts the most probable tokens of one sequence.
pub(super) struct DraftModel {
    pub(super) engine: Engine,
    /// The tokens that were chosen, and those of the last draft if the cache can drop them.
    session: Session,
    sampler: Sampler,
    logits: Vec<f32>,
}

impl DraftModel {
    /// A drafter without tokens.
    pub(super) fn new(engine: Engine) -> Result<Self, Error> {
        let sampler = Sampler::new(SamplerConfig::greedy())?;
        Ok(Self { session: engine.session(), engine, sampler, logits: Vec::new() })
    }

    /// The most probable tokens after `past` and `newest`, at most `len`, and the time of drafting
    /// them. There are fewer at the end of the draft model's context.
    pub(super) fn draft(
        &mut self,
        past: &[u32],
        newest: u32,
        len: usize,
    ) -> Result<(Vec<u32>, Duration), Error> {
        // The last drafted token is not computed.
        let room = self.engine.context_tokens().saturating_sub(past.len());
        let len = len.min(room);
        let mut draft = Vec::with_capacity(len);
        if len == 0 {
            return Ok((draft, Duration::ZERO));
        }
        let common = self.session.tokens().iter().zip(past).take_while(|(a, b)| a == b).count();
        let kept = self.session.truncate_or_reset(common);
        let mut ids = past[kept..].to_vec();
        if ids.len() > FEW_TOKENS {
            let session = &mut self.session;
            let feed = SequenceInput { session, ids: &ids, outputs: Outputs::None };
            self.engine.forward_into(&mut [feed], &mut self.logits)?;
            ids.clear();
        }
        ids.push(newest);
        let start = Instant::now();
        // Recurrent states cannot be cut, so that drafts are computed with a copy of them.
        let mut copy = None;
        loop {
            // The tokens of the draft may be dropped, those before it stay.
            let is_drafted = !draft.is_empty();
            let is_copied = is_drafted && self.engine.is_recurrent();
            let session = match &mut copy {
                None if is_copied => copy.insert(self.session.fork()),
                None => &mut self.session,
                Some(copy) => copy,
            };
            let id = session.tentatively(is_drafted && !is_copied, |session| {
                let outputs = Outputs::Last;
                let mut feeds = [SequenceInput { session, ids: &ids, outputs }];
                if self.engine.max_top_k() > 0 {
                    let best = self.engine.forward_top_k(&mut feeds, 1)?;
                    return Ok(self.sampler.sample_best(&best)?);
                }
                self.engine.forward_into(&mut feeds, &mut self.logits)?;
                let vocab_size = self.engine.output_width();
                Ok::<u32, Error>(self.sampler.sample(&self.logits[..vocab_size])?)
            })?;
            draft.push(id);
            if draft.len() == len {
                return Ok((draft, start.elapsed()));
            }
            ids.clear();
            ids.push(id);
        }
    }
}
