//! A region: the phases that a team passes together, and the pieces that a member gets of them.

use std::any::Any;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::deal::PieceDivision;
use super::pieces::Pieces;

/// The computation of a region, phase by phase.
pub(crate) trait Work: Sync {
    /// Runs the pieces of one phase that a member gets. Writes of earlier phases are visible.
    fn run(&self, share: &mut Share<'_>);

    /// Called once after the last piece of a phase, before any piece of the next one.
    fn phase_ended(&self, _phase: usize) {}
}

impl<F: Fn(&mut Share<'_>) + Sync> Work for F {
    fn run(&self, share: &mut Share<'_>) {
        self(share);
    }
}

/// The phases that a team passes together.
pub(super) struct Region<'a> {
    pub(super) deals: &'a [PieceDivision],
    work: &'a dyn Work,
    has_panicked: AtomicBool,
    /// The first panic of a piece.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<'a> Region<'a> {
    pub(super) fn new(deals: &'a [PieceDivision], work: &'a dyn Work) -> Self {
        Self { deals, work, has_panicked: AtomicBool::new(false), panic: Mutex::new(None) }
    }

    /// Runs all phases on this thread.
    pub(super) fn run_alone(&self) {
        for (phase, &deal) in self.deals.iter().enumerate() {
            if deal.pieces() > 0 {
                let (claimed, taken) = (0..deal.pieces(), deal.pieces());
                self.share(&mut Share { member: 0, phase, deal, open: None, claimed, taken });
                self.phase_ended(phase);
            }
        }
    }

    /// The first phase from `first` on that has pieces.
    pub(super) fn next_phase(&self, first: usize) -> Option<usize> {
        (first..self.deals.len()).find(|phase| self.deals[*phase].pieces() > 0)
    }

    /// Runs pieces. After a panic the rest is left out.
    pub(super) fn share(&self, share: &mut Share<'_>) {
        if !self.has_panicked.load(Ordering::Relaxed) {
            self.catch(|| self.work.run(share));
        }
    }

    pub(super) fn phase_ended(&self, phase: usize) {
        self.catch(|| self.work.phase_ended(phase));
    }

    /// The first panic of a piece.
    pub(super) fn into_panic(self) -> Option<Box<dyn Any + Send>> {
        self.panic.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn catch(&self, run: impl FnOnce()) {
        if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(run)) {
            self.has_panicked.store(true, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }
}

/// The pieces of a phase that one member gets: an iterator over ranges of items. Some pieces are
/// assigned at the start, the others are taken one by one.
pub(crate) struct Share<'a> {
    /// Index of the member in the team.
    pub(crate) member: usize,
    /// Index of the phase in the region.
    pub(crate) phase: usize,
    pub(super) deal: PieceDivision,
    /// The source of further pieces.
    pub(super) open: Option<&'a Pieces>,
    /// Pieces that are taken and not yet returned by the iterator.
    pub(super) claimed: Range<usize>,
    /// Number of pieces taken.
    pub(super) taken: usize,
}

impl Iterator for Share<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let piece = if let Some(piece) = self.claimed.next() {
            piece
        } else {
            let piece = self.open?.claim()?;
            self.taken += 1;
            piece
        };
        Some(self.deal.range(piece))
    }
}
