//! Paired comparison of two builds: `cargo xtask bench --against REV|BINARY`.
//!
//! Both sides are programs with the hidden subcommand `worker` ([`worker::serve`]), which prepares
//! workloads and times short slices of them on command. [`compare`] starts one worker of each side
//! and runs slices in turns.
//!
//! # Design
//!
//! - **Slice.** A worker runs the workload for about 10 ms, at least once. Runs shorter than 200 µs
//!   share a sample, which is their mean. The value of a slice is the **minimum** of its samples:
//!   contention, interrupts and a stolen CPU only ever add time, so the minimum is the sample with
//!   the least of them.
//! - **Block.** Four slices in the order ABBA or BAAB, alternating. A linear drift of the machine
//!   adds the same time to both sides of a block.
//! - **Pass.** A fresh pair of processes goes over all undecided workloads, some blocks each. The
//!   placement of a process in memory is drawn anew with each pass. The estimate of a pass is the
//!   ratio of the **lowest eighths** (the 12.5th percentiles) of the slice values of both sides:
//!   most slices may suffer from contention before the estimate does.
//! - **Interval.** The ratio of a workload is the geometric mean over passes, without the highest
//!   and the lowest quarter of them. A hierarchical bootstrap (passes, then blocks within a pass)
//!   gives its confidence interval.
//! - **Verdict.** `Regression` or `Improved` where the interval at a family-wise level of 95 %
//!   (over all workloads) lies beyond the threshold, after at least six passes. `Ok` where the 95 %
//!   interval lies within ± the threshold, after at least four. Undecided workloads get further
//!   passes until the time budget ends, and are `Inconclusive` then, with the reason.
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
pub use session::{Comparison, Plan, Progress, Row, Side, compare};
