//! `rf-cli selftest`: checks every kernel on the user's GPU against the CPU reference, and reports
//! its speed.

use std::io::{self, Write};
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use rf_graph::case::{Case, Shape};
use rf_kernels::GpuBackend;
use rf_kernels::selftest::{Group, Report, Speed, groups, speed};

use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::terminal::{self, Palette};

/// Arguments of `rf-cli selftest`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is a group of cases: an op with a format. NMSE is the error of the worst case relative to
the results of the CPU reference; the next column is the error that its arithmetic allows. Speeds
are of 1 token, or of 512. GB/s count the weights or the KV cache that a kernel reads; the next
column is the share of the bandwidth at which the device copies its own memory.

Exit codes: 0 every case passed, 1 a case failed or did not run.

Examples:
  rf-cli selftest
  rf-cli selftest --quick Q4_K")]
pub(crate) struct SelftestArgs {
    /// Only groups whose names contain this text
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
    /// Number of the GPU from `rf-cli devices`; the best one by default
    #[arg(long, value_name = "N")]
    device: Option<usize>,
    /// Three cases of each group, and no speeds
    #[arg(long)]
    quick: bool,
}

/// Cases of a group that a quick test runs.
const QUICK_CASES: usize = 3;

/// Runs `rf-cli selftest`.
pub(crate) fn selftest(arguments: &SelftestArgs) -> Result<()> {
    let started = Instant::now();
    let groups = groups(arguments.filter.as_deref().unwrap_or_default());
    if groups.is_empty() {
        return Err(bad_input!(
            "no group's name contains the text: the first column of rf-cli selftest has the names"
        ));
    }
    let (gpu, backend) = rf_device::gpu::open_backend(arguments.device, crate::device::prober())?;
    let mut out = io::stdout().lock();
    writeln!(out, "{gpu}, code for {}", backend.code())?;
    let copy_bandwidth = if arguments.quick { None } else { copy_bandwidth(gpu.number()) };
    if let Some(bandwidth) = copy_bandwidth {
        writeln!(out, "copies within its memory: {:.0} GB/s", bandwidth / 1e9)?;
    }
    Line::head().write(&mut out)?;
    let watch = Watch::new();
    let mut total = Report::default();
    for group in &groups {
        let most = if arguments.quick { QUICK_CASES } else { usize::MAX };
        let report = check(group, most, &backend, &watch)?;
        Line::of_group(group, &report).write(&mut out)?;
        total.cases += report.cases;
        total.skipped += report.skipped;
        total.failures.extend(report.failures);
        if !arguments.quick {
            for case in group.speeds() {
                match speed(&backend, &case) {
                    Ok(speed) => Line::of_speed(&case, speed, copy_bandwidth).write(&mut out)?,
                    Err(error) => writeln!(out, "  {}: not timed: {error}", what(&case))?,
                }
            }
        }
        if watch.requested() {
            return Err(Interrupted.into());
        }
    }
    let Report { cases, skipped, failures, .. } = total;
    let seconds = started.elapsed().as_secs_f64();
    writeln!(out, "{cases} cases in {seconds:.1} s, {skipped} skipped, {} wrong", failures.len())?;
    out.flush()?;
    let is_wrong = !failures.is_empty();
    for failure in failures {
        let failure = anyhow::Error::from(failure);
        terminal::note(format_args!("{} {failure:#}", Palette::stderr().red("wrong:")));
    }
    if is_wrong {
        bail!("{gpu} computes other results than the CPU: please report this output");
    }
    Ok(())
}

/// The bandwidth of copies within the device's memory, which speeds are compared with.
fn copy_bandwidth(number: usize) -> Option<f64> {
    match crate::device::gpus::limits(number) {
        Ok(limits) => limits.bandwidth_bytes_per_s,
        Err(error) => {
            terminal::warn(format_args!("the bandwidth of copies is not known: {error:#}"));
            None
        }
    }
}

/// Runs the cases of a group.
fn check(group: &Group, most: usize, backend: &GpuBackend, watch: &Watch) -> Result<Report> {
    let mut report = Report::default();
    for case in group.cases(most) {
        if watch.requested() {
            return Err(Interrupted.into());
        }
        report.run(backend, case);
    }
    Ok(report)
}

/// The work that is timed: `512 tokens, 4096 x 4096`.
fn what(case: &Case) -> String {
    let batch = case.timed_batch();
    let tokens = match batch.tokens() {
        1 => "1 token".to_owned(),
        tokens => format!("{tokens} tokens"),
    };
    match case.shape() {
        Shape::Matrix { rows, columns } => format!("{tokens}, {rows} x {columns}"),
        Shape::Row { columns } => format!("{tokens} of {columns}"),
        _ => format!("{tokens} at depth {}", batch.past_tokens()),
    }
}

/// A line of the table.
#[derive(Clone, Debug, Default)]
struct Line {
    name: String,
    cases: String,
    nmse: String,
    allowed: String,
    mark: &'static str,
    us: String,
    gigabytes: String,
    share: String,
    operations: String,
}

impl Line {
    fn head() -> Self {
        Self {
            name: "op".into(),
            cases: "cases".into(),
            nmse: "NMSE".into(),
            allowed: "allowed".into(),
            mark: "",
            us: "us".into(),
            gigabytes: "GB/s".into(),
            share: "of copy".into(),
            operations: "TFLOP/s".into(),
        }
    }

    fn of_group(group: &Group, report: &Report) -> Self {
        let (nmse, allowed) = report.worst;
        let mark = match report {
            Report { failures, .. } if !failures.is_empty() => "WRONG",
            Report { cases, skipped, .. } if cases == skipped => "skipped",
            _ => "ok",
        };
        Self {
            name: group.name(),
            cases: report.cases.to_string(),
            nmse: format!("{nmse:.1e}"),
            allowed: format!("{allowed:.1e}"),
            mark,
            ..Self::default()
        }
    }

    fn of_speed(case: &Case, speed: Speed, copy_bandwidth: Option<f64>) -> Self {
        let mut line = Self {
            name: format!("  {}", what(case)),
            us: format!("{:.1}", speed.seconds * 1e6),
            ..Self::default()
        };
        match (case.shape(), case.timed_batch().tokens()) {
            // Latency alone bounds an op on one row.
            (Shape::Row { .. }, _) => {}
            (_, 1) => {
                let rate = speed.bytes_per_second();
                let share = copy_bandwidth.map(|copy| format!("{:.0}%", 100.0 * rate / copy));
                line.gigabytes = format!("{:.0}", rate / 1e9);
                line.share = share.unwrap_or_default();
            }
            _ => line.operations = format!("{:.1}", speed.operations_per_second() / 1e12),
        }
        line
    }

    /// Prints the line at once, so the last line shows where a driver crashed.
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { name, cases, nmse, allowed, mark, us, gigabytes, share, operations } = self;
        let text = format!(
            "{name:<26} {cases:>5} {nmse:>9} {allowed:>9} {mark:<7} {us:>9} {gigabytes:>6} \
             {share:>7} {operations:>8}"
        );
        let palette = Palette::stdout();
        match *mark {
            "WRONG" => writeln!(out, "{}", palette.red(text.trim_end()))?,
            _ => writeln!(out, "{}", text.trim_end())?,
        }
        out.flush()
    }
}
