//! `perf` of Linux: CPU counters and call stacks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::process::Runner;
use super::tool::InstalledTool;
use crate::Error;

/// The default events. Virtual machines support only some of them; the others have no value.
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
    /// The name of the event.
    pub event: String,
    /// The count, or `None` if the machine does not support the counter.
    pub value: Option<f64>,
    /// The unit of the value. Counts have none.
    pub unit: String,
    /// The fraction of the running time in which the counter was active. Below 1, the value is
    /// extrapolated.
    pub active_fraction: f64,
}

/// Call stacks with their number of samples.
///
/// # Examples
///
/// ```
/// use rf_profile::tools::perf::Stacks;
///
/// // perf script prints a header, then the frames from the innermost outwards.
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

/// Counts `events` while `program` runs. The tool's output file lies in `folder` temporarily.
///
/// # Errors
///
/// The errors of [`Runner::run`], [`Error::Malformed`] and [`Error::NoOutput`].
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
///     let runner = Runner::new(Duration::from_mins(1));
///     perf::stat(&tool, &runner, &folder, &perf::EVENTS, &["true".into()])
/// });
/// match counters {
///     Ok(counters) => println!("{}", perf::counter_table(&counters)),
///     Err(error) => println!("skipped: {error}"),
/// }
/// ```
pub fn stat(
    tool: &InstalledTool,
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
    // Decimal points in every locale.
    command.env("LC_ALL", "C");
    let output = runner.run(command)?;
    let text = fs::read_to_string(&path).map_err(|source| Error::read(&path, source))?;
    drop(fs::remove_file(&path));
    let counters = PerfCounter::parse(&text, "perf stat")?;
    if counters.is_empty() { Err(output.no_output("counters")) } else { Ok(counters) }
}

/// Samples the call stacks of `program` `hertz` times per second of CPU time. The samples stay in
/// `perf.data` in `folder`.
///
/// # Errors
///
/// The errors of [`Runner::run`], and [`Error::NoOutput`] without samples.
pub fn record(
    tool: &InstalledTool,
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
    runner.run(command)?;

    let mut parser = StackParser::default();
    let mut rest = Vec::new();
    let mut command = Command::new(&tool.path);
    command.args(["script", "-i"]).arg(&data);
    let output = runner.clone().echo(false).run_into(command, &mut |bytes| {
        rest.extend_from_slice(bytes);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            parser.line(&String::from_utf8_lossy(&rest[..end]));
            rest.drain(..=end);
        }
    })?;
    parser.line(&String::from_utf8_lossy(&rest));
    let stacks = parser.finish();
    if stacks.counts.is_empty() { Err(output.no_output("samples")) } else { Ok(stacks) }
}

/// Formats counters as a table for terminals.
pub fn counter_table(counters: &[PerfCounter]) -> String {
    let mut out = format!("{:<24}  {:>20}  {:>8}\n", "event", "value", "active");
    for counter in counters {
        let value = match counter.value {
            Some(value) => format!("{value} {}", counter.unit),
            None => "not supported".to_owned(),
        };
        let active = 100.0 * counter.active_fraction;
        // Writing into a String cannot fail.
        _ = writeln!(out, "{:<24}  {:>20}  {active:>6.1} %", counter.event, value.trim_end());
    }
    out
}

impl PerfCounter {
    /// Parses the output of `perf stat -x,`: value, unit, event, active time, active time in
    /// percent, and further columns.
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
            let [value, unit, event, _, active, ..] = cells[..] else {
                return Err(Error::malformed(origin, number, "fewer than five fields"));
            };
            // `<not supported>`, `<not counted>`.
            let value = if value.starts_with('<') {
                None
            } else {
                let bad = || Error::malformed(origin, number, format!("'{value}' is not a number"));
                Some(value.parse().map_err(|_| bad())?)
            };
            counters.push(Self {
                event: event.to_owned(),
                value,
                unit: unit.to_owned(),
                active_fraction: active.parse().unwrap_or(0.0) / 100.0,
            });
        }
        Ok(counters)
    }
}

impl Stacks {
    /// Parses the output of `perf script`.
    pub fn parse(script: &str) -> Self {
        let mut parser = StackParser::default();
        script.lines().for_each(|line| parser.line(line));
        parser.finish()
    }

    /// The number of samples.
    pub fn samples(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The stacks, outermost function first and separated by `;`, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().map(|(stack, count)| (&**stack, *count))
    }

    /// One line for each stack, outermost function first, with its count: the input format of flame
    /// graph tools.
    pub fn folded(&self) -> String {
        self.counts.iter().fold(String::new(), |mut out, (stack, count)| {
            // Writing into a String cannot fail.
            _ = writeln!(out, "{stack} {count}");
            out
        })
    }

    /// Functions with the number and the share of the samples that they were executing, in
    /// descending order.
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
}

/// A parser for the lines of `perf script`.
#[derive(Default)]
struct StackParser {
    stacks: Stacks,
    command: Option<String>,
    /// Frames from the innermost outwards.
    frames: Vec<String>,
}

impl StackParser {
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

/// The program name in the header of a sample: `name with spaces  1685 28047.06: 250000
/// cpu-clock:`. It ends at the thread id.
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

/// The function in a frame such as `ffffffff816b4fc0 __x64_sys_openat+0x0 ([kernel.kallsyms])`.
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

    /// Output of perf 6.1 in a virtual machine.
    const STAT: &str = "# started on Sat Nov 21 16:28:47 2026\n\n\
                        0.54,msec,task-clock,543559,100.00,0.304,CPUs utilized\n\
                        49,,page-faults,543559,100.00,90.147,K/sec\n\
                        <not supported>,,cycles,0,100.00,,\n";

    /// Output of perf 6.1 with an added thread name of two words.
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
    fn perf_stat_output_is_parsed() {
        let counters = PerfCounter::parse(STAT, "t").unwrap();
        assert_eq!(counters.len(), 3);
        assert_eq!((counters[0].value, &*counters[0].unit), (Some(0.54), "msec"));
        assert_eq!((counters[2].value, &*counters[2].event), (None, "cycles"));
        assert!(counter_table(&counters).contains("not supported"));
        assert!(matches!(PerfCounter::parse("1,2\n", "t"), Err(Error::Malformed { line: 1, .. })));
        assert!(PerfCounter::parse("x,,cycles,1,100\n", "t").is_err());
    }

    #[test]
    fn perf_script_output_is_parsed() {
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
}
