//! Linux's `perf`: counters of the CPU, and where its time goes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::process::Runner;
use super::tool::Installed;
use crate::Error;

/// Events that tell most: what virtual machines lack comes back without a value.
pub const EVENTS: [&str; 8] = [
    "task-clock",
    "context-switches",
    "page-faults",
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branch-misses",
];

/// A counter of `perf stat`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PerfCounter {
    /// The event.
    pub event: String,
    /// What was counted; `None` where the machine has no such counter.
    pub value: Option<f64>,
    /// Of the value; empty for plain numbers.
    pub unit: String,
    /// Share of the time in which it was counted: below 1, the value is an extrapolation.
    pub counted: f64,
}

/// Call stacks by how often they were met.
///
/// # Examples
///
/// ```
/// use rf_profile::tools::perf::Stacks;
///
/// // As perf script has it: a head, then frames, the innermost first.
/// let stacks = Stacks::parse(
///     "demo 42 10.5: 1 cycles:\n\t55 matmul+0x10 (/demo)\n\t44 main+0x20 (/demo)\n\n",
/// );
/// assert_eq!(stacks.folded(), "demo;main;matmul 1\n");
/// assert_eq!(stacks.hottest()[0].0, "matmul");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    counts: BTreeMap<String, u64>,
}

/// Counts `events` while `program` runs; `folder` gets the tool's file.
///
/// # Errors
///
/// As [`Runner::run`], and [`Error::Malformed`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use rf_profile::tools::{Runner, Tool, Toolbox, perf};
///
/// let folder = std::env::temp_dir();
/// let counters = Toolbox::system().find(Tool::Perf).and_then(|tool| {
///     perf::stat(&tool, &Runner::new(Duration::from_mins(1)), &folder, &perf::EVENTS, &["true".into()])
/// });
/// match counters {
///     Ok(counters) => println!("{}", perf::counter_table(&counters)),
///     Err(error) => println!("skipped: {error}"),
/// }
/// ```
pub fn stat(
    tool: &Installed,
    runner: &Runner,
    folder: &Path,
    events: &[&str],
    program: &[OsString],
) -> Result<Vec<PerfCounter>, Error> {
    let path = folder.join(format!("perf-stat-{}.csv", std::process::id()));
    let mut command = Command::new(&tool.path);
    command
        .args(["stat", "-x", ",", "-e", &events.join(","), "-o"])
        .arg(&path)
        .arg("--")
        .args(program);
    // Numbers with points, whatever the user's language is.
    command.env("LC_ALL", "C");
    let finished = runner.run(&mut command)?;
    let text = fs::read_to_string(&path).map_err(|source| Error::read(&path, source))?;
    drop(fs::remove_file(&path));
    let counters = PerfCounter::parse(&text, "perf stat")?;
    if counters.is_empty() { Err(finished.no_output("counters")) } else { Ok(counters) }
}

/// Samples the call stacks of `program`, `hertz` times a second of CPU time; `folder` gets `perf.data`, which stays.
///
/// # Errors
///
/// As [`Runner::run`], and [`Error::NoOutput`] where nothing was sampled.
pub fn record(
    tool: &Installed,
    runner: &Runner,
    folder: &Path,
    hertz: u32,
    program: &[OsString],
) -> Result<Stacks, Error> {
    fs::create_dir_all(folder).map_err(|source| Error::write(folder, source))?;
    let data = folder.join("perf.data");
    let mut command = Command::new(&tool.path);
    command
        .args(["record", "-q", "-g", "-F", &hertz.to_string(), "-o"])
        .arg(&data)
        .arg("--")
        .args(program);
    runner.run(&mut command)?;

    let mut folder = Folder::default();
    let mut rest = Vec::new();
    let mut command = Command::new(&tool.path);
    command.args(["script", "-i"]).arg(&data);
    let finished = runner.clone().echo(false).run_into(&mut command, &mut |bytes| {
        rest.extend_from_slice(bytes);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            folder.line(&String::from_utf8_lossy(&rest[..end]));
            rest.drain(..=end);
        }
    })?;
    folder.line(&String::from_utf8_lossy(&rest));
    let stacks = folder.finish();
    if stacks.counts.is_empty() { Err(finished.no_output("samples")) } else { Ok(stacks) }
}

/// Counters as a table for terminals.
pub fn counter_table(counters: &[PerfCounter]) -> String {
    let mut out = format!("{:<24}  {:>20}  {:>8}\n", "event", "value", "counted");
    for counter in counters {
        let value = match counter.value {
            Some(value) => format!("{value} {}", counter.unit),
            None => "not supported".to_owned(),
        };
        let counted = 100.0 * counter.counted;
        // Writing into a String cannot fail.
        _ = writeln!(out, "{:<24}  {:>20}  {counted:>6.1} %", counter.event, value.trim_end());
    }
    out
}

impl PerfCounter {
    /// Reads what `perf stat -x,` writes: value, unit, event, time counted, share of it in percent, and more.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`].
    pub fn parse(text: &str, origin: &str) -> Result<Vec<Self>, Error> {
        let mut counters = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let cells: Vec<&str> = line.split(',').collect();
            let [value, unit, event, _, counted, ..] = cells[..] else {
                return Err(Error::malformed(origin, number, "fewer than five fields"));
            };
            // `<not supported>`, `<not counted>`.
            let value = if value.starts_with('<') {
                None
            } else {
                let bad = || Error::malformed(origin, number, format!("'{value}' is no number"));
                Some(value.parse().map_err(|_| bad())?)
            };
            counters.push(Self {
                event: event.to_owned(),
                value,
                unit: unit.to_owned(),
                counted: counted.parse().unwrap_or(0.0) / 100.0,
            });
        }
        Ok(counters)
    }
}

impl Stacks {
    /// Reads what `perf script` writes.
    pub fn parse(script: &str) -> Self {
        let mut folder = Folder::default();
        script.lines().for_each(|line| folder.line(line));
        folder.finish()
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.counts.values().sum()
    }

    /// One line for each stack, outermost function first, and its count: the format that flame graphs are drawn
    /// from.
    pub fn folded(&self) -> String {
        self.counts.iter().fold(String::new(), |mut out, (stack, count)| {
            // Writing into a String cannot fail.
            _ = writeln!(out, "{stack} {count}");
            out
        })
    }

    /// Functions by how often a sample fell into themselves, most first, with their share.
    pub fn hottest(&self) -> Vec<(String, u64, f64)> {
        let mut by_function: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, count) in &self.counts {
            let function = stack.rsplit(';').next().unwrap_or(stack);
            *by_function.entry(function).or_default() += count;
        }
        let total = self.samples().max(1) as f64;
        let mut sorted: Vec<_> = by_function
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count, count as f64 / total))
            .collect();
        sorted.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        sorted
    }

    /// A flame graph as SVG, drawn by the inferno crate.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] where there is nothing to draw.
    #[cfg(feature = "flamegraph")]
    pub fn flamegraph(&self, title: &str) -> Result<String, Error> {
        let mut options = inferno::flamegraph::Options::default();
        title.clone_into(&mut options.title);
        let mut svg = Vec::new();
        let folded = self.folded();
        inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut svg)
            .map_err(|error| Error::malformed("call stacks", 0, error.to_string()))?;
        Ok(String::from_utf8_lossy(&svg).into_owned())
    }
}

/// Makes stacks of lines.
#[derive(Default)]
struct Folder {
    stacks: Stacks,
    command: Option<String>,
    /// Innermost first, as they come.
    frames: Vec<String>,
}

impl Folder {
    fn line(&mut self, line: &str) {
        if line.trim().is_empty() {
            self.end_sample();
        } else if line.starts_with(['\t', ' ']) && self.command.is_some() {
            self.frames.push(function(line.trim()));
        } else if !line.starts_with('#') {
            self.end_sample();
            self.command = Some(command(line));
        }
    }

    fn end_sample(&mut self) {
        let Some(command) = self.command.take() else { return };
        let frames = self.frames.drain(..).rev();
        let stack = frames.fold(command, |stack, frame| stack + ";" + &frame);
        *self.stacks.counts.entry(stack).or_default() += 1;
    }

    fn finish(mut self) -> Stacks {
        self.end_sample();
        self.stacks
    }
}

/// The program of a sample's first line: `name with spaces  1685 28047.06: 250000 cpu-clock:`. The thread's number ends
/// it.
fn command(line: &str) -> String {
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        let is_number = word.split('/').all(|part| part.parse::<u32>().is_ok());
        if is_number && !words.is_empty() {
            break;
        }
        words.push(word);
    }
    words.join(" ").replace(';', ":")
}

/// The function of a frame: `ffffffff816b4fc0 __x64_sys_openat+0x0 ([kernel.kallsyms])`.
fn function(frame: &str) -> String {
    let symbol = frame.split_once(' ').map_or(frame, |(_, rest)| rest);
    let (symbol, module) = symbol.rsplit_once(" (").unwrap_or((symbol, ""));
    let symbol = symbol.split_once("+0x").map_or(symbol, |(symbol, _)| symbol);
    let name = if symbol == "[unknown]" {
        let module = module.trim_end_matches(')');
        format!("[{}]", Path::new(module).file_name().unwrap_or_default().to_string_lossy())
    } else {
        symbol.to_owned()
    };
    name.replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by perf 6.1 in a virtual machine.
    const STAT: &str = "# started on Sat Nov 21 16:28:47 2026\n\n\
                        0.54,msec,task-clock,543559,100.00,0.304,CPUs utilized\n\
                        49,,page-faults,543559,100.00,90.147,K/sec\n\
                        <not supported>,,cycles,0,100.00,,\n";

    /// Written by perf 6.1; a name of two words added.
    const SCRIPT: &str = "\
sleep  1685 28047.064238:     250000 cpu-clock:pppH: 
\tffffffff816b4fc0 __x64_sys_openat+0x0 ([kernel.kallsyms])
\tffffffff821ecc51 do_syscall_64+0x71 ([kernel.kallsyms])
\t           20b1d __GI___open64_nocancel+0x2d (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)
\t               0 [unknown] ([unknown])

sleep  1685 28047.064488:     250000 cpu-clock:pppH: 
\t           1df45 dl_main+0x1f85 (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)
\t           1a34f [unknown] (/usr/lib/libm.so.6)

my thread  1685/1686 28047.064901:     250000 cpu-clock:pppH: 
\tffffffff821f3a92 rf_cpu::exec::run<a, b>+0x12 (/usr/bin/rf cli)
";

    #[test]
    fn counters_of_perf_stat() {
        let counters = PerfCounter::parse(STAT, "t").unwrap();
        assert_eq!(counters.len(), 3);
        assert_eq!((counters[0].value, &*counters[0].unit), (Some(0.54), "msec"));
        assert_eq!((counters[2].value, &*counters[2].event), (None, "cycles"));
        assert!(counter_table(&counters).contains("not supported"));
        assert!(matches!(PerfCounter::parse("1,2\n", "t"), Err(Error::Malformed { line: 1, .. })));
        assert!(PerfCounter::parse("x,,cycles,1,100\n", "t").is_err());
    }

    #[test]
    fn stacks_of_perf_script() {
        let stacks = Stacks::parse(SCRIPT);
        assert_eq!(stacks.samples(), 3);
        let expected = "\
my thread;rf_cpu::exec::run<a, b> 1
sleep;[[unknown]];__GI___open64_nocancel;do_syscall_64;__x64_sys_openat 1
sleep;[libm.so.6];dl_main 1
";
        assert_eq!(stacks.folded(), expected);
        assert_eq!(stacks.hottest().len(), 3);
        assert!((stacks.hottest()[0].2 - 1.0 / 3.0).abs() < 1e-9);
    }

    #[cfg(feature = "flamegraph")]
    #[test]
    fn a_flame_graph_names_its_functions() {
        let svg = Stacks::parse(SCRIPT).flamegraph("a <test>").unwrap();
        assert!(svg.contains("<svg") && svg.contains("dl_main") && svg.contains("a &lt;test&gt;"));
        assert!(Stacks::default().flamegraph("x").is_err());
    }
}
