//! Timers for kernels and spans, and what their times add up to by name.
//!
//! [`KernelTimer`] takes one time, on the GPU by events in a stream or on the CPU; [`ScopedTimer`] the time until it is
//! dropped; [`time_kernel!`](crate::time_kernel) that of an expression. [`Timings`] collects them.

mod kernel;
mod timings;

pub use kernel::{Clock, CpuClock, CpuTimer, GpuClock, Host, KernelTimer};
pub use timings::{ScopedTimer, Timings};

/// Takes the time of an expression and gives its value.
///
/// `time_kernel!(timings, "name", expression)` takes CPU time. `time_kernel!(timings, "name", &stream,
/// expression)` takes the GPU's: it waits for what the expression queued, and gives a [`Result`] of its value.
///
/// # Examples
///
/// ```
/// use rf_profile::{Timings, time_kernel};
///
/// let timings = Timings::new();
/// let sum: u64 = time_kernel!(timings, "sum", (1..=100).sum());
/// assert_eq!(sum, 5050);
/// assert_eq!(timings.summaries()[0].1.count, 1);
/// ```
#[macro_export]
macro_rules! time_kernel {
    ($timings:expr, $name:expr, $stream:expr, $work:expr) => {{
        let mut timer: $crate::timer::KernelTimer = $crate::timer::KernelTimer::for_kernel($name);
        timer.start($stream).and_then(|()| {
            let value = $work;
            timer.stop($stream)?;
            $timings.record($name, timer.elapsed()?);
            Ok(value)
        })
    }};
    ($timings:expr, $name:expr, $work:expr) => {{
        let _scope = $timings.scope($name);
        $work
    }};
}
