//! A team of threads that run the phases of a region together.
//!
//! Waking threads takes microseconds, and a token of a small model takes a few hundred. A batch is
//! therefore one *region* of several *phases*, which the whole team passes without going to sleep.
//! A phase is divided into *pieces*. It ends when all its pieces are done, not when all threads
//! have arrived: a thread that another program keeps from running holds up at most the piece that
//! it has begun, and finds the rest done when it comes back. A thread without work spins for a
//! moment and then sleeps, which leaves its core to whoever holds up the team. If members wait
//! for a core, the team tries whether it is faster with fewer of them.

#![expect(unsafe_code, reason = "the region is borrowed from the caller's stack")]

mod board;
mod deal;
mod delay;
mod pieces;
mod region;
mod shared;
mod sizing;

use std::panic;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rf_graph::BackendError;

use board::Board;
pub(crate) use deal::PieceDivision;
use region::Region;
pub(crate) use region::{Share, Work};
pub(crate) use shared::{DisjointSlice, Rows};
use sizing::Sizing;

/// A fixed set of threads that run regions: those started here, and the caller.
pub(crate) struct Team {
    board: Arc<Board>,
    workers: Vec<JoinHandle<()>>,
    sizing: Sizing,
}

impl Team {
    /// Forms a team of `threads` threads, at least one. The caller of [`Self::run`] is one of them.
    pub(crate) fn new(threads: usize) -> Result<Self, BackendError> {
        let threads = threads.max(1);
        let mut team = Self::deserted(threads);
        for member in 1..threads {
            let board = Arc::clone(&team.board);
            let worker = thread::Builder::new()
                .name(format!("rf-cpu-{member}"))
                .spawn(move || board.serve(member))
                .map_err(|e| {
                    BackendError::Device(format!("cannot start {threads} threads: {e}"))
                })?;
            team.workers.push(worker);
        }
        Ok(team)
    }

    /// A team of which only the caller comes, as if the system ran none of the other threads.
    pub(crate) fn deserted(threads: usize) -> Self {
        let (board, sizing) = (Arc::new(Board::new(threads)), Sizing::new(threads));
        Self { board, workers: Vec::new(), sizing }
    }

    /// The number of members.
    pub(crate) fn threads(&self) -> usize {
        self.board.members()
    }

    /// The number of members that work at present. The others leave their cores to other programs.
    pub(crate) fn active(&self) -> usize {
        self.sizing.active()
    }

    /// Runs a region of one phase for each of `deals` and returns when all pieces are done. A panic
    /// in a piece is passed on.
    pub(crate) fn run(&mut self, deals: &[PieceDivision], work: &dyn Work) {
        let region = Region::new(deals, work);
        if self.threads() == 1 {
            region.run_alone();
        } else {
            let (start, active) = (Instant::now(), self.active());
            self.board.run(&region);
            let work_ns = deals.iter().map(|deal| deal.work_ns() as u64).sum();
            let (time, was_held_up) = (start.elapsed(), self.board.take_held_up());
            self.sizing.record(work_ns, time, was_held_up, || self.board.run_delay());
            if self.sizing.active() != active {
                let (now, all) = (self.sizing.active(), self.threads());
                tracing::debug!("{now} of {all} threads compute");
                self.board.set_active(now);
            }
        }
        if let Some(panic) = region.into_panic() {
            panic::resume_unwind(panic);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.board.close();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of pieces, so it does not end by one.
            let _ended = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Squares in one phase, their sums in the next one. Returns the sums.
    fn sums_of_squares(team: &mut Team) -> [usize; 3] {
        let mut squares = vec![0_usize; 1000];
        let mut sums = [0; 3];
        let (squares_shared, sums_shared) =
            (DisjointSlice::new(&mut squares), DisjointSlice::new(&mut sums));
        let deals = [
            PieceDivision::in_multiples(1000, 1, 1, 7, 7),
            PieceDivision::NOTHING,
            PieceDivision::new(3, 1_000, 3),
        ];
        team.run(&deals, &|share: &mut Share<'_>| {
            let phase = share.phase;
            for i in share.flatten() {
                if phase == 0 {
                    // SAFETY: each item belongs to one piece.
                    let square = unsafe { squares_shared.get_mut(i..i + 1) };
                    square[0] += i * i;
                } else {
                    // SAFETY: written in an earlier phase.
                    let squares = unsafe { squares_shared.get(0..1000) };
                    // SAFETY: each item belongs to one piece.
                    let sum = unsafe { sums_shared.get_mut(i..i + 1) };
                    sum[0] += squares.iter().sum::<usize>();
                }
            }
        });
        sums
    }

    #[test]
    fn every_item_runs_once_and_a_phase_sees_the_writes_of_those_before() {
        for threads in [1, 2, 3, 8] {
            let mut team = Team::new(threads).unwrap();
            for _ in 0..200 {
                assert_eq!(sums_of_squares(&mut team), [332_833_500; 3]);
            }
        }
    }

    #[test]
    fn a_region_ends_without_the_members_that_never_come() {
        assert_eq!(sums_of_squares(&mut Team::deserted(4)), [332_833_500; 3]);
    }

    #[test]
    fn a_member_that_is_held_up_in_a_piece_holds_up_no_other_piece() {
        let mut team = Team::new(3).unwrap();
        let done = AtomicUsize::new(0);
        let pieces = 100;
        team.run(&[PieceDivision::in_multiples(pieces, 1_000, 3, 1, 1)], &|share: &mut Share<
            '_,
        >| {
            for item in share.flatten() {
                // Whoever has the first piece waits for all others.
                while item == 0 && done.load(Ordering::Relaxed) < pieces - 1 {
                    thread::yield_now();
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(done.into_inner(), pieces);
    }

    #[test]
    fn phases_end_in_order_and_once() {
        struct Ends(Mutex<Vec<usize>>);

        impl Work for Ends {
            fn run(&self, share: &mut Share<'_>) {
                share.for_each(drop);
            }

            fn phase_ended(&self, phase: usize) {
                self.0.lock().unwrap().push(phase);
            }
        }

        for threads in [1, 3] {
            let ends = Ends(Mutex::new(Vec::new()));
            let many = PieceDivision::new(50, 1_000, 5);
            let deals = [
                many,
                many,
                PieceDivision::NOTHING,
                PieceDivision::new(1, 1, 1),
                many,
                PieceDivision::NOTHING,
            ];
            Team::new(threads).unwrap().run(&deals, &ends);
            assert_eq!(ends.0.into_inner().unwrap(), [0, 1, 3, 4]);
        }
    }

    #[test]
    fn a_panic_in_a_piece_ends_the_region_and_the_team_runs_on() {
        for threads in [1, 2] {
            let mut team = Team::new(threads).unwrap();
            let region = AssertUnwindSafe(|| {
                team.run(&[PieceDivision::new(64, 1_000, 2)], &|share: &mut Share<'_>| {
                    share.flatten().for_each(|item| assert_ne!(item, 40, "planned"));
                });
            });
            assert!(panic::catch_unwind(region).is_err());
            assert_eq!(sums_of_squares(&mut team), [332_833_500; 3]);
        }
    }

    #[test]
    fn a_team_that_has_gone_to_sleep_wakes_up() {
        let mut team = Team::new(4).unwrap();
        for _ in 0..3 {
            while team.board.sleepers() < 3 {
                thread::yield_now();
            }
            assert_eq!(sums_of_squares(&mut team), [332_833_500; 3]);
        }
    }
}
