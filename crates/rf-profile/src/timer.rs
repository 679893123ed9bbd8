//! Timers for kernels and scopes, and summaries of their times by name.
//!
//! [`KernelTimer`] measures the time between two points, on the GPU with events in a stream or on
//! the CPU. [`ScopedTimer`] measures the time until it is dropped, and
//! [`time_kernel!`](crate::time_kernel) the time of an expression. [`Timings`] collects the times.

mod kernel;
mod timings;

pub use kernel::{Clock, CpuClock, CpuTimer, GpuClock, Host, KernelTimer};
pub use timings::{ScopedTimer, Timings};

/// Measures the time of an expression and returns its value.
///
/// `time_kernel!(timings, "name", expression)` measures wall time on the CPU.
/// `time_kernel!(timings, "name", &stream, expression)` measures GPU time: it waits for the work
/// that the expression queues in the stream and returns a [`Result`] of the expression's value.
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
