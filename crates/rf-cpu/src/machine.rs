//! The cores and the memory that this process may use.

use std::collections::HashSet;
use std::{fs, num::NonZero, thread};

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
    physical_cores().map_or(available, |cores| cores.min(available)).max(1)
}

/// Number of distinct (package, core) pairs of the online CPUs in `/sys`.
fn physical_cores() -> Option<usize> {
    let mut cores = HashSet::new();
    for entry in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let topology = entry.path().join("topology");
        let read = |file: &str| fs::read_to_string(topology.join(file)).ok();
        if let (Some(package), Some(core)) = (read("physical_package_id"), read("core_id")) {
            cores.insert((package, core));
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}

/// Memory available without swapping, within the limit of the control group. `None` if the system
/// does not report it.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let machine = meminfo.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?;
        kib.trim().parse::<u64>().ok()
    })? * 1024;
    let read = |file: &str| -> Option<u64> {
        fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?.trim().parse().ok()
    };
    let group =
        read("memory.max").map(|max| max.saturating_sub(read("memory.current").unwrap_or(0)));
    Some(group.map_or(machine, |group| group.min(machine)))
}
