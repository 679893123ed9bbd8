//! `rf-cli selftest`: checks every kernel on the user's GPU against the CPU reference, and reports
//! its speed.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use rf_kernels::objects;
use rf_kernels::selftest::groups;
use rf_profile::baseline::Hardware;
use rocmforge::device::gpu::{self, Gpu};
use rocmforge::device::probe::Prober;
use rocmforge::device::selftest::{
    CaseReport, GroupReport, SelftestEvent, SelftestPlan, SelftestReport, SpeedReport,
};

use crate::commands::probe::prober;
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::terminal::{self, Palette};
use crate::{sources, version};

/// Arguments of `rf-cli selftest`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is a group of cases: an op with a format. NMSE is the error of the worst case relative to
the results of the CPU reference. The next column is the error that the arithmetic of the case
allows. Speeds are measured with 1 token or with 512. GB/s count the weights or the KV cache that a
kernel reads. The next column is their share of the bandwidth at which the device copies its memory.

The cases run in a child process. If the driver crashes or hangs, the line of the group names the
case, and the test continues with the next group. The name of each case is printed to standard error
before it starts.

Exit codes: 0 every case passed, 1 a case failed or did not run.

Examples:
  rf-cli selftest --report selftest.json
  rf-cli selftest --quick Q4_K")]
pub(crate) struct SelftestArgs {
    /// Run groups whose name contains TEXT (or, if none match, cases)
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
    /// Test the GPU with number N in `rf-cli devices` [default: the best GPU]
    #[arg(long, value_name = "N")]
    device: Option<usize>,
    /// Run three cases of each group and measure no speeds
    #[arg(long)]
    quick: bool,
    /// Write all results and the versions of device, driver and program as JSON to FILE, to attach
    /// it to an issue
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Stop a case after SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

/// Cases of a group that a quick test runs.
const QUICK_CASES: usize = 3;

/// Variables that choose or change a GPU.
const VARIABLES: [&str; 9] = [
    "AMD_SERIALIZE_KERNEL",
    "GPU_ENABLE_WGP_MODE",
    "GPU_FORCE_BLIT_COPY_SIZE",
    "HIP_HOST_COHERENT",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "ROCFORGE_GPU_PLATFORM",
    "ROCFORGE_HIP_LIBRARY",
    "ROCR_VISIBLE_DEVICES",
];

/// Runs `rf-cli selftest`.
pub(crate) fn selftest(arguments: &SelftestArgs) -> Result<()> {
    let filter = arguments.filter.clone().unwrap_or_default();
    if groups(&filter).is_empty() {
        return Err(bad_input!(
            "no group and no case contains the text in its name: `rf-cli selftest` prints the names"
        ));
    }
    let prober = prober()?;
    let gpu = gpu::find(arguments.device, Some(prober))?;
    if let Some(problem) = &gpu.report().problem {
        bail!("{gpu} cannot be used: {problem}");
    }
    arguments.report.as_deref().map_or(Ok(()), sources::check_output)?;
    let mut report = new_report(prober, &gpu)?;
    let plan = SelftestPlan::default()
        .with_filter(filter)
        .with_cases_per_group(arguments.quick.then_some(QUICK_CASES))
        .with_times(!arguments.quick)
        .with_case_limit(Duration::from_secs(arguments.timeout.max(1)));
    let watch = Watch::new();
    let mut output = Output { gpu: &gpu, is_shown: false, failure: None };
    let mut observe = |report: &SelftestReport, event: SelftestEvent<'_>| {
        let shown = output.show(report, &event);
        let written = match (&arguments.report, &event) {
            (Some(path), SelftestEvent::Group(_)) => write(path, report),
            _ => Ok(()),
        };
        if let Err(error) = shown.and(written) {
            output.failure.get_or_insert(error);
        }
        let is_over = watch.requested() || output.failure.is_some();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let is_whole = report.run((prober, &gpu), &plan, &mut observe)?;
    if let Some(error) = output.failure {
        return Err(error);
    }
    if let Some(path) = &arguments.report {
        write(path, &report)?;
        terminal::note(format_args!("written: {}", path.display()));
    }
    if !is_whole {
        return Err(Interrupted.into());
    }
    let wrong = finish(&report)?;
    if wrong > 0 {
        let attach = if arguments.report.is_some() { "the file" } else { "the file of --report" };
        bail!(
            "{gpu} computes other results than the CPU, or its driver fails: please attach {attach} to an issue"
        );
    }
    Ok(())
}

/// A report without results.
fn new_report(prober: &Prober, gpu: &Gpu) -> Result<SelftestReport> {
    let device = gpu.report().clone();
    let reports = prober.survey()?;
    let platform = reports.into_iter().find(|report| report.platform == device.platform);
    let set = |name: &str| Some((name.to_owned(), env::var(name).ok()?));
    Ok(SelftestReport {
        program: version::long().to_owned(),
        kernels: objects::build_note().to_owned(),
        system: fs::read_to_string("/proc/version")
            .map_or_else(|_| Hardware::cpu_only().os, |version| version.trim().to_owned()),
        platform: platform.unwrap_or_default(),
        device,
        environment: VARIABLES.into_iter().filter_map(set).collect(),
        code: None,
        copy_bandwidth: None,
        groups: Vec::new(),
        running: None,
        seconds: 0.0,
    })
}

fn write(path: &Path, report: &SelftestReport) -> Result<()> {
    let text = serde_json::to_string_pretty(report)?;
    rf_profile::replace_file(path, |out| writeln!(out, "{text}"))
        .with_context(|| format!("cannot write '{}'", path.display()))
}

/// Prints the failures and a summary. Returns the number of wrong cases and groups.
fn finish(report: &SelftestReport) -> Result<usize> {
    let cases = || report.groups.iter().flat_map(|group| &group.cases);
    let count = |test: fn(&CaseReport) -> bool| cases().filter(|case| test(case)).count();
    let (all, skipped) = (cases().count(), count(|case| case.skipped.is_some()));
    let failures = cases().filter_map(|case| case.failure.as_ref());
    let problems = report.groups.iter().filter_map(|group| group.problem.as_ref());
    let wrong: Vec<&String> = failures.chain(problems).collect();
    let mut out = io::stdout().lock();
    let (seconds, number) = (report.seconds, wrong.len());
    writeln!(out, "{all} cases in {seconds:.1} s, {skipped} skipped, {number} wrong")?;
    out.flush()?;
    for text in &wrong {
        terminal::note(format_args!("{} {text}", Palette::stderr().red("wrong:")));
    }
    Ok(number)
}

/// Prints the progress.
struct Output<'a> {
    gpu: &'a Gpu,
    /// True if the name of a case is the last line of the terminal.
    is_shown: bool,
    failure: Option<anyhow::Error>,
}

impl Output<'_> {
    fn show(&mut self, report: &SelftestReport, event: &SelftestEvent<'_>) -> Result<()> {
        match event {
            SelftestEvent::Open => {
                let code = report.code.as_deref().unwrap_or_default();
                let mut out = io::stdout().lock();
                writeln!(out, "{}, code for {code}", self.gpu)?;
                if let Some(bandwidth) = report.copy_bandwidth {
                    writeln!(out, "copies within its memory: {:.0} GB/s", bandwidth / 1e9)?;
                }
                Line::head().write(&mut out)?;
            }
            SelftestEvent::Begin { case, .. } => self.name(case)?,
            SelftestEvent::Group(group) => {
                self.clear()?;
                let mut out = io::stdout().lock();
                Line::of_group(group).write(&mut out)?;
                for speed in &group.speeds {
                    match &speed.failure {
                        None => Line::of_speed(speed, report.copy_bandwidth).write(&mut out)?,
                        Some(error) => writeln!(out, "  {}: not timed: {error}", speed.what)?,
                    }
                }
                if let Some(problem) = &group.problem {
                    writeln!(out, "  {problem}")?;
                }
                out.flush()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Prints the name of a case before it starts: what a machine that freezes shows last.
    fn name(&mut self, case: &str) -> io::Result<()> {
        let mut out = io::stderr().lock();
        if out.is_terminal() {
            write!(out, "\r\x1b[K{}", Palette::stderr().dim(case))?;
            self.is_shown = true;
        } else {
            writeln!(out, "{case}")?;
        }
        out.flush()
    }

    /// Removes the name of a case.
    fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_shown) {
            let mut out = io::stderr().lock();
            write!(out, "\r\x1b[K")?;
            out.flush()?;
        }
        Ok(())
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

    fn of_group(group: &GroupReport) -> Self {
        let worst = group.worst();
        let mark = match group {
            _ if group.problem.is_some() => "FAILED",
            _ if group.is_wrong() => "WRONG",
            _ if group.cases.iter().all(|case| case.skipped.is_some()) => "skipped",
            _ => "ok",
        };
        let nmse = worst.and_then(|case| case.nmse);
        Self {
            name: group.name.clone(),
            cases: group.cases.len().to_string(),
            nmse: nmse.map_or("-".into(), |nmse| format!("{nmse:.1e}")),
            allowed: worst.map_or("-".into(), |case| format!("{:.1e}", case.allowed_nmse)),
            mark,
            ..Self::default()
        }
    }

    fn of_speed(speed: &SpeedReport, copy_bandwidth: Option<f64>) -> Self {
        let text =
            |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(String::new, show);
        let share = speed.bytes_per_s.zip(copy_bandwidth).map(|(rate, copy)| rate / copy);
        Self {
            name: format!("  {}", speed.what),
            us: text(speed.us, |us| format!("{us:.1}")),
            gigabytes: text(speed.bytes_per_s, |rate| format!("{:.0}", rate / 1e9)),
            share: text(share, |share| format!("{:.0}%", 100.0 * share)),
            operations: text(speed.operations_per_s, |rate| format!("{:.1}", rate / 1e12)),
            ..Self::default()
        }
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
            "WRONG" | "FAILED" => writeln!(out, "{}", palette.red(text.trim_end()))?,
            _ => writeln!(out, "{}", text.trim_end())?,
        }
        out.flush()
    }
}
