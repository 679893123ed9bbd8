//! Paired comparison of two builds: `cargo xtask bench --against REV|BINARY`.
//!
//! Both sides are programs with the hidden subcommand `worker` ([`worker::serve`]), which prepares
//! workloads and times short slices of them on command. [`compare`] starts one worker of each side
//! and alternates slices.
//!
//! # Design
//!
//! - **Slice.** A worker runs the workload for about 2 ms, at least once. Runs shorter than 200 µs
//!   share a sample, which is their mean. The value of a slice is the minimum of its samples:
//!   interrupts and cold caches only ever add time.
//! - **Block.** Four slices in the order ABBA or BAAB, alternating. Its two pairs of adjacent
//!   slices give two ratios. The speed of a machine changes by tens of percent within a second
//!   (clocks, neighbours), and by little between adjacent slices; a drift has the opposite sign in
//!   the second pair.
//! - **Pass.** A fresh pair of processes goes over all undecided workloads, 0.5 s each. The
//!   placement of a process in memory is drawn anew with each pass.
//! - **Estimate.** The median of the ratios of all pairs of all passes. Contention hits either side
//!   of a pair with the same probability, so it widens the distribution and does not move its
//!   median. Quantiles of the times of each side, instead of pairs, had twice the error on a busy
//!   machine: both sides did not see the same share of its fast state.
//! - **Interval.** A hierarchical bootstrap (passes, then pairs within a pass) gives the standard
//!   error.
//! - **Verdict.** `Regression` or `Improved` where the interval at a family-wise level of 95 %
//!   (over all workloads) lies beyond the threshold. `Ok` where the 95 % interval lies within ± the
//!   threshold. Both take at least three passes. Undecided workloads get further passes until the
//!   time budget ends, and are `Inconclusive` then, with the reason.
//!
//! Wall-clock time is compared, never CPU time: waiting at barriers and for memory is part of the
//! cost of a kernel.

mod process;
pub mod protocol;
mod report;
pub mod revision;
mod session;
pub mod statistics;
pub mod worker;

pub use report::{csv, table};
pub use session::{PairedComparison, PairedPlan, PairedResult, Side, compare};
