//! Drafts for a sequence that runs alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::Engine;
use crate::media::is_row;
use crate::scheduler::event::RequestError;
use crate::scheduler::sequence::{Rank, Sequence};
use crate::speculation::{Draft, Speculation};

/// The sequence that a source of drafts follows.
#[derive(Default)]
pub(super) struct Drafter {
    rank: Option<Rank>,
    /// Tokens of the sequence that the source has, those that the context has dropped included.
    known_tokens: usize,
    /// True once the source has failed: there are no more drafts.
    has_failed: bool,
}

/// The largest numbers of tokens of a batch and of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) batch_tokens: usize,
    pub(super) sequence_tokens: usize,
}

impl Drafter {
    /// Adds a draft to the plan of a sequence that decodes, if the batch, the sequence and the free
    /// pages have room for it.
    pub(super) fn plan(
        &mut self,
        engine: &mut Engine,
        speculation: &mut Speculation,
        sequence: &mut Sequence,
        room: Room,
    ) {
        let uncomputed = sequence.uncomputed_tokens();
        if !sequence.media.is_empty() && !speculation.reads_media() {
            return;
        }
        if self.has_failed || !sequence.decodes() || sequence.planned_tokens != uncomputed {
            return;
        }
        // The last token that may be generated is not computed.
        let remaining = sequence.choice.generation.remaining_tokens().saturating_sub(1);
        // A draft is not split into batches.
        let batch = room.batch_tokens.min(sequence.session.tokens_to_checkpoint());
        let most = remaining
            .min(batch.saturating_sub(uncomputed))
            .min(room.sequence_tokens.saturating_sub(sequence.tokens.len()));
        let draft = || self.draft(engine, speculation, sequence, most);
        let draft = catch_unwind(AssertUnwindSafe(draft))
            .unwrap_or_else(|payload| Err(RequestError::from_panic(&*payload)));
        match draft {
            Ok(draft) => {
                let len_tokens = sequence.tokens.len() + draft.ids.len();
                let needed = sequence.session.pages_needed_tentatively(len_tokens);
                if !draft.ids.is_empty() && needed.fits_in(engine.available_pages()) {
                    sequence.plan_draft(draft);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "no more drafts");
                self.has_failed = true;
            }
        }
    }

    /// Drafts tokens after those of a sequence, of which the last ones are not computed yet.
    fn draft(
        &mut self,
        engine: &mut Engine,
        speculation: &mut Speculation,
        sequence: &mut Sequence,
        most: usize,
    ) -> Result<Draft, RequestError> {
        let _span = tracing::debug_span!("draft").entered();
        let Sequence { tokens, session, rank, dropped_tokens, .. } = sequence;
        let Some((newest, past)) = tokens.split_last() else { return Ok(Draft::default()) };
        if self.rank == Some(*rank) {
            let known = self.known_tokens.saturating_sub(*dropped_tokens);
            for id in past.get(known..).unwrap_or_default() {
                speculation.push(*id);
            }
        } else {
            speculation.start(past);
            self.rank = Some(*rank);
        }
        self.known_tokens = *dropped_tokens + tokens.len();
        let replayed = &past[session.len()..];
        let mut draft = speculation.draft((engine, session), replayed, *newest, most)?;
        // What followed earlier in the text may be a picture.
        let tokens = draft.ids.iter().take_while(|id| !is_row(**id)).count();
        draft.ids.truncate(tokens);
        Ok(draft)
    }
}
