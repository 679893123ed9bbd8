//! Slots: the newest sequences that a scheduler has served, which clients save and restore by
//! number.
//!
//! Sequences share pages, so a slot holds none: it is a list of tokens, whose pages the prefix
//! cache may have. Saving computes those that it lacks, and restoring adds pages to it. A saved
//! slot ends at a page boundary, because a prefix in the cache does.

use std::io::Write;

use super::slot_text::SlotText;
use super::{Engine, Outputs, SequenceInput};
use crate::adapters::AdapterScales;
use crate::error::Error;
use crate::session::{Session, lock};

impl Engine {
    /// Notes the tokens of a sequence as those of a slot.
    pub(crate) fn set_slot(&mut self, slot: usize, adapters: &AdapterScales, tokens: &[u32]) {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, SlotText::default);
        }
        self.slots[slot] = SlotText { adapters: adapters.clone(), tokens: tokens.to_vec() };
    }

    /// Writes the sequence of a slot up to its last page boundary, for
    /// [`restore_slot`](Self::restore_slot). Returns its tokens: 0 for a slot that was not used.
    ///
    /// # Errors
    ///
    /// If the sequence has media, the cache is full, or the output cannot be written.
    pub fn save_slot(&mut self, slot: usize, out: &mut dyn Write) -> Result<usize, Error> {
        let (adapters, mut tokens) = match self.slots.get(slot) {
            Some(SlotText { adapters, tokens }) => (adapters.clone(), tokens.clone()),
            None => (AdapterScales::default(), Vec::new()),
        };
        // The newest token may not be computed yet.
        let computed = tokens.len().saturating_sub(1);
        tokens.truncate(computed / self.page_tokens * self.page_tokens);
        // A prefix leaves the last token out.
        let prompt: Vec<u32> = tokens.iter().copied().chain([0]).collect();
        let mut session = self.session_with_prefix(adapters, &prompt);
        while session.is_importing() {
            self.read_back(&mut session, usize::MAX);
        }
        let ids = &tokens[session.len()..];
        if !ids.is_empty() {
            self.forward(&mut [SequenceInput {
                session: &mut session,
                ids,
                outputs: Outputs::None,
            }])?;
        }
        self.save(&session, out)?;
        Ok(tokens.len())
    }

    /// Makes a saved sequence that of a slot. A prompt that begins with it is not computed again.
    /// Returns its tokens.
    ///
    /// # Errors
    ///
    /// The errors of [`restore`](Self::restore).
    pub fn restore_slot(&mut self, slot: usize, saved: &[u8]) -> Result<usize, Error> {
        let mut session: Session = self.restore(saved)?;
        session.publish(&mut lock(&self.pool), self.page_tokens);
        self.set_slot(slot, session.adapters(), session.tokens());
        let tokens = session.len();
        drop(session);
        self.export_pages();
        Ok(tokens)
    }

    /// Forgets the sequence of a slot. Returns its tokens. Pages that the prefix cache has of it
    /// stay until others need the room.
    pub fn erase_slot(&mut self, slot: usize) -> usize {
        self.slots.get_mut(slot).map_or(0, |slot| std::mem::take(slot).tokens.len())
    }
}
