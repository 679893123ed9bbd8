//! Drafts for a sequence that runs alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::engine::Engine;
use crate::scheduler::event::RequestError;
use crate::scheduler::sequence::{Rank, Sequence};
use crate::speculation::{Draft, Speculation};

/// The source of drafts, and the sequence that it follows.
pub(super) struct Drafter {
    speculation: Speculation,
    /// The sequence.
    rank: Option<Rank>,
    /// Tokens of the sequence that the source has.
    known_tokens: usize,
}

impl Drafter {
    pub(super) fn new(speculation: Speculation) -> Self {
        Self { speculation, rank: None, known_tokens: 0 }
    }

    /// Adds a draft to the plan of a sequence that decodes, if a step of `max_tokens` and the free
    /// pages have room for it. Panics become errors.
    pub(super) fn plan(
        &mut self,
        engine: &mut Engine,
        sequence: &mut Sequence,
        max_tokens: usize,
    ) -> Result<(), RequestError> {
        let uncomputed = sequence.uncomputed_tokens();
        if !sequence.decodes() || sequence.planned_tokens != uncomputed {
            return Ok(());
        }
        // The last token that may be generated is not computed.
        let remaining = sequence.choice.generation.remaining_tokens().saturating_sub(1);
        let batch = max_tokens.min(sequence.session.tokens_to_checkpoint());
        let most = remaining.min(batch.saturating_sub(uncomputed));
        let draft = catch_unwind(AssertUnwindSafe(|| self.draft(engine, sequence, most)))
            .unwrap_or_else(|payload| Err(RequestError::from_panic(&*payload)))?;
        let len_tokens = sequence.tokens.len() + draft.ids.len();
        let needed = sequence.session.pages_needed_tentatively(len_tokens);
        if !draft.ids.is_empty() && needed.fits_in(engine.available_pages()) {
            sequence.plan_draft(draft);
        }
        Ok(())
    }

    /// Drafts tokens after those of a sequence, of which the last ones are not computed yet.
    fn draft(
        &mut self,
        engine: &mut Engine,
        sequence: &mut Sequence,
        most: usize,
    ) -> Result<Draft, RequestError> {
        let Sequence { tokens, session, rank, .. } = sequence;
        let Some((newest, past)) = tokens.split_last() else { return Ok(Draft::default()) };
        if self.rank == Some(*rank) {
            for id in past.get(self.known_tokens..).unwrap_or_default() {
                self.speculation.push(*id);
            }
        } else {
            self.speculation.start(past);
            self.rank = Some(*rank);
        }
        self.known_tokens = tokens.len();
        let replayed = &past[session.len()..];
        Ok(self.speculation.draft((engine, session), replayed, *newest, most)?)
    }

    /// Notes the time of a step in which a sequence decoded alone.
    pub(super) fn note_step(&mut self, sequence: &Sequence, time: Duration) {
        let tokens = sequence.planned_tokens;
        if tokens == 1 || sequence.draft.is_some() {
            self.speculation.note_batch(tokens, time);
        }
    }

    /// Notes how many tokens of a draft were accepted.
    pub(super) fn note_result(&mut self, draft: &Draft, accepted: usize) {
        self.speculation.note_result(draft, accepted);
    }
}
