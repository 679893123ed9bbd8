//! The cores and the memory that this process may use.

#[cfg(not(windows))]
mod linux;
#[cfg(windows)]
mod windows;

use std::num::NonZero;
use std::thread;

#[cfg(not(windows))]
use self::linux as os;
#[cfg(windows)]
use self::windows as os;
use crate::simd::Isa;

/// The description of a backend, such as `avx2, 8 threads`.
pub(crate) fn description(isa: Isa, threads: usize) -> String {
    let s = if threads == 1 { "" } else { "s" };
    format!("{isa}, {threads} thread{s}")
}

/// Number of physical cores among the CPUs that this process may run on. The hardware threads of a
/// core share its multipliers and its memory port.
pub(crate) fn default_threads() -> usize {
    let available = thread::available_parallelism().map_or(1, NonZero::get);
    os::physical_cores().map_or(available, |cores| cores.min(available)).max(1)
}

/// Memory available without swapping, within the limits of the control groups. `None` if the system
/// does not report it.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    os::available_memory_bytes()
}
