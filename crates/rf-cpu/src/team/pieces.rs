//! The pieces of the open phase: how many there are, and how many are taken.

use std::sync::atomic::{AtomicU64, Ordering};

/// The pieces of the open phase, which all members of a team take from.
pub(super) struct Pieces(AtomicU64);

/// The number of pieces in the upper half, the number of those that were taken in the lower one,
/// which may count more than there are. One word, so that a member takes a piece and learns whether
/// it exists in one atomic addition.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

impl Word {
    /// No region runs.
    const IDLE: Self = Self(0);

    /// A region runs, and there is nothing to take.
    const EXHAUSTED: Self = Self((1 << 32) | 1);

    /// A phase whose first piece is taken.
    fn open(pieces: usize) -> Self {
        Self(((pieces as u64) << 32) | 1)
    }

    fn taken(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    /// Returns true if a piece can be taken.
    pub(super) fn has_piece(self) -> bool {
        self.taken() < self.0 >> 32
    }

    /// Returns true if no region runs.
    pub(super) fn is_idle(self) -> bool {
        self.0 >> 32 == 0
    }
}

impl Pieces {
    /// No region runs.
    pub(super) fn idle() -> Self {
        Self(AtomicU64::new(Word::IDLE.0))
    }

    /// The present state. Writes before the state was set are visible with [`Ordering::Acquire`].
    pub(super) fn word(&self, ordering: Ordering) -> Word {
        Word(self.0.load(ordering))
    }

    /// Begins a region, which has nothing to take yet.
    pub(super) fn begin(&self) {
        self.0.store(Word::EXHAUSTED.0, Ordering::Release);
    }

    /// Opens a phase. The caller takes its first piece.
    pub(super) fn open(&self, pieces: usize) {
        self.0.store(Word::open(pieces).0, Ordering::Release);
    }

    /// Ends the region.
    pub(super) fn end(&self) {
        self.0.store(Word::IDLE.0, Ordering::SeqCst);
    }

    /// Takes a piece of the open phase.
    pub(super) fn claim(&self) -> Option<usize> {
        // Only looking keeps the line shared between the members that wait.
        if !self.word(Ordering::Acquire).has_piece() {
            return None;
        }
        let word = Word(self.0.fetch_add(1, Ordering::Acquire));
        word.has_piece().then(|| word.taken() as usize)
    }
}
