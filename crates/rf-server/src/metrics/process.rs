//! Memory, time and open files of this process, under the names that Prometheus' clients give them.

use std::fmt::Write as _;

use rustix::process::{Resource, getrlimit};

/// Writes what the system tells.
pub(super) fn write(text: &mut String) {
    let mut sample = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        let Some(value) = value else { return };
        // Writing to a string does not fail.
        let _: std::fmt::Result =
            write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    let stat = Stat::read();
    let of_stat = |field: fn(&Stat) -> f64| stat.as_ref().map(field);
    sample("process_cpu_seconds_total", "counter", "Time of the CPU", of_stat(|stat| stat.cpu));
    sample("process_virtual_memory_bytes", "gauge", "Address space", of_stat(|s| s.virtual_bytes));
    sample("process_resident_memory_bytes", "gauge", "Memory", of_stat(|stat| stat.resident_bytes));
    let start = of_stat(|stat| stat.start).zip(boot_time()).map(|(start, boot)| boot + start);
    sample("process_start_time_seconds", "gauge", "Start, since 1970", start);
    let open = std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
    sample("process_open_fds", "gauge", "Open files", open);
    let most = getrlimit(Resource::Nofile).current.map(|most| most as f64);
    sample("process_max_fds", "gauge", "The largest number of open files", most);
}

/// Fields of `/proc/self/stat`.
struct Stat {
    /// Seconds of the CPU.
    cpu: f64,
    /// Seconds from the start of the system.
    start: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl Stat {
    /// `None` where there is no such file.
    fn read() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program, in parentheses, may have blanks.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // The third field is the first one after the name.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            cpu: (field(14)? + field(15)?) / ticks,
            start: field(22)? / ticks,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * rustix::param::page_size() as f64,
        })
    }
}

/// The start of the system, in seconds since 1970.
fn boot_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}
