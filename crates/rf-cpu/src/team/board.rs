//! The board of a team: the open phase, the pieces that are taken, the members that sleep.
//!
//! A member that was kept from running between looking for a piece and taking it gets a piece of
//! whatever phase is open by then, or nothing. Only a member that holds a piece reads the region:
//! the phase lasts until every piece is reported, and so does the region.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{hint, ptr};

use super::deal::PieceDivision;
use super::delay::RunDelay;
use super::pieces::{Pieces, Word};
use super::region::{Region, Share};

/// The time after which a member without work goes to sleep. Phases and the time between tokens are
/// mostly shorter, and waking a thread takes about as long.
const SPIN: Duration = Duration::from_micros(50);

/// Members that a member wakes. Each of these wakes as many, so that no member has to wake a large
/// team alone.
const WAKES: usize = 2;

/// The state that a team shares.
pub(super) struct Board {
    open: Line<Pieces>,
    /// Pieces of the open phase that are done.
    done: Line<AtomicUsize>,
    /// Index of the open phase.
    phase: AtomicUsize,
    region: AtomicPtr<Region<'static>>,
    seats: Vec<Seat>,
    /// Number of members that sleep.
    sleepers: AtomicUsize,
    /// Number of members that work; the others sleep.
    active: AtomicUsize,
    /// Set by a member that goes to sleep in a region, because others take long.
    was_held_up: AtomicBool,
    is_closed: AtomicBool,
}

/// A value that shares its cache line with no other, so that writes to others do not slow it down.
#[repr(align(64))]
struct Line<T>(T);

/// The place of a member.
#[derive(Default)]
struct Seat {
    sleeps: AtomicBool,
    /// The thread that sleeps here.
    thread: Mutex<Option<Thread>>,
    delay: RunDelay,
}

impl Board {
    pub(super) fn new(members: usize) -> Self {
        Self {
            open: Line(Pieces::idle()),
            done: Line(AtomicUsize::new(0)),
            phase: AtomicUsize::new(0),
            region: AtomicPtr::new(ptr::null_mut()),
            seats: (0..members).map(|_| Seat::default()).collect(),
            sleepers: AtomicUsize::new(0),
            active: AtomicUsize::new(members),
            was_held_up: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(super) fn members(&self) -> usize {
        self.seats.len()
    }

    /// Lets the first `active` members work from now on. No region is running.
    pub(super) fn set_active(&self, active: usize) {
        self.active.store(active, Ordering::Relaxed);
    }

    /// Returns true if a member had to wait long for others since the last call.
    pub(super) fn take_held_up(&self) -> bool {
        self.was_held_up.swap(false, Ordering::Relaxed)
    }

    /// The time for which all members together have waited for a core so far. The caller is
    /// member 0.
    pub(super) fn run_delay(&self) -> Option<Duration> {
        self.seats[0].delay.attach();
        self.seats.iter().map(|seat| seat.delay.read()).sum()
    }

    /// The number of members that sleep.
    #[cfg(test)]
    pub(super) fn sleepers(&self) -> usize {
        self.sleepers.load(Ordering::SeqCst)
    }

    /// Runs a region as member 0, together with those who [`serve`](Self::serve). Only one thread
    /// at a time may call this.
    pub(super) fn run(&self, region: &Region<'_>) {
        let Some(phase) = region.next_phase(0) else { return };
        let first = region.deals[phase];
        let region = ptr::from_ref(region).cast::<Region<'static>>();
        self.region.store(region.cast_mut(), Ordering::Relaxed);
        self.open.0.begin();
        self.wake(WAKES);
        self.open(phase, first);
        // SAFETY: the region lives until the end of this function, which waits for its end.
        unsafe { self.take_part(0, region, phase, 0) };
        while !self.word().is_idle() {
            if !self.try_piece(0) {
                self.wait(0, |word| word.has_piece() || word.is_idle());
            }
        }
    }

    /// Takes part in regions as a member until the board is closed.
    pub(super) fn serve(&self, member: usize) {
        self.seats[member].delay.attach();
        let is_active = || member < self.active.load(Ordering::Relaxed);
        while !self.is_closed.load(Ordering::Acquire) {
            if !(is_active() && self.try_piece(member)) {
                self.wait(member, |word| {
                    word.has_piece() && is_active() || self.is_closed.load(Ordering::SeqCst)
                });
            }
        }
    }

    /// Ends the threads of the members. No region is running.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.set_active(self.members());
        self.wake(self.members());
    }

    /// Takes a piece of the open phase and takes part from there. Returns false if there is none.
    fn try_piece(&self, member: usize) -> bool {
        let Some(piece) = self.open.0.claim() else { return false };
        let region = self.region.load(Ordering::Relaxed);
        // SAFETY: the member holds a piece of the open phase, so its region lives.
        unsafe { self.take_part(member, region, self.phase.load(Ordering::Relaxed), piece) };
        true
    }

    /// Runs a piece that the member holds and as many others of the phase as it gets. If it
    /// completes the phase, it opens the next one and continues there.
    ///
    /// # Safety
    ///
    /// `region` is the one that runs, and the member holds `piece` of its current phase.
    unsafe fn take_part(
        &self,
        member: usize,
        region: *const Region<'_>,
        mut phase: usize,
        mut piece: usize,
    ) {
        loop {
            // SAFETY: the region lives until all pieces of the phase are reported.
            let current = unsafe { &*region };
            let deal = current.deals[phase];
            let claimed = piece..piece + 1;
            let open = Some(&self.open.0);
            let mut share = Share { member, phase, deal, open, claimed, taken: 1 };
            current.share(&mut share);
            let (taken, pieces) = (share.taken, deal.pieces());
            // A phase of one piece is not on the board.
            if pieces > 1 && self.done.0.fetch_add(taken, Ordering::AcqRel) + taken < pieces {
                return;
            }
            // SAFETY: this member completed the phase, so it alone can end the region.
            let current = unsafe { &*region };
            current.phase_ended(phase);
            let Some(next) = current.next_phase(phase + 1) else { return self.end() };
            (phase, piece) = (next, 0);
            self.open(phase, current.deals[phase]);
        }
    }

    /// Opens a phase for all members. The caller holds its first piece.
    fn open(&self, phase: usize, deal: PieceDivision) {
        if deal.pieces() == 1 {
            return;
        }
        self.done.0.store(0, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
        self.open.0.open(deal.pieces());
        if deal.is_long() {
            self.wake(WAKES);
        }
    }

    /// Ends the region. It may be gone as soon as the word is written.
    fn end(&self) {
        self.open.0.end();
        self.wake_member(0);
    }

    fn word(&self) -> Word {
        self.open.0.word(Ordering::Acquire)
    }

    /// Waits until `is_ready`, or for a wake-up.
    fn wait(&self, member: usize, is_ready: impl Fn(Word) -> bool) {
        const SPINS_PER_CLOCK: usize = 32;
        let start = Instant::now();
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if is_ready(self.word()) {
                    return;
                }
                hint::spin_loop();
            }
            if start.elapsed() >= SPIN {
                break;
            }
        }
        let active = self.active.load(Ordering::Relaxed);
        if member < active && !self.word().is_idle() {
            self.was_held_up.store(true, Ordering::Relaxed);
        }
        let seat = &self.seats[member];
        *seat.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        seat.sleeps.store(true, Ordering::SeqCst);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // Whoever makes it ready from here on sees that this member sleeps.
        if is_ready(self.open.0.word(Ordering::SeqCst)) {
            self.wake_member(member);
        }
        while seat.sleeps.load(Ordering::SeqCst) {
            thread::park();
        }
        if !self.word().is_idle() {
            self.wake(WAKES);
        }
    }

    /// Wakes at most `most` members of those that work.
    fn wake(&self, most: usize) {
        let active = self.active.load(Ordering::Relaxed);
        if self.sleepers.load(Ordering::SeqCst) > self.members() - active {
            (0..active).filter(|member| self.wake_member(*member)).take(most).for_each(drop);
        }
    }

    /// Wakes a member. Returns false if it does not sleep.
    fn wake_member(&self, member: usize) -> bool {
        let seat = &self.seats[member];
        if !seat.sleeps.load(Ordering::SeqCst) || !seat.sleeps.swap(false, Ordering::SeqCst) {
            return false;
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        if let Some(thread) = &*seat.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
        true
    }
}
