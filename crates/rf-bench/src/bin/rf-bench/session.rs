//! A run of benchmarks: measurement, comparison and output.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Error, Result, bail};
use rf_bench::baselines::{self, Destination, History, Stored};
use rf_bench::model::{IdentifiedModel, ModelFile};
use rf_bench::plan::BenchmarkPlan;
use rf_bench::results::{Report, Run, TargetCheck, TargetOutcome};
use rf_bench::session::{self, Measurement, MeasurementSession};
use rf_bench::{Target, html, limits, table, targets};
use rf_profile::baseline::{BaselineComparison, DEFAULT_THRESHOLD, DeviceKind, Hardware};
use rf_profile::monitor::Monitor;

use crate::options::{Options, OutputFormat};
use crate::output;
use crate::terminal::{self, TerminalBar};

/// Exit code of a regression or a missed target.
const WORSE: u8 = 1;

/// Exit code of an error.
const FAILED: u8 = 2;

/// The inputs and outputs of a run. They are checked before the measurement, so that a mistyped
/// name costs no time.
struct Setup {
    plan: BenchmarkPlan,
    stored: Option<Stored>,
    destination: Option<Destination>,
    model: Option<IdentifiedModel>,
}

/// Runs the benchmarks of a command line and returns the exit code.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let plan = BenchmarkPlan::new(&options.selection())?;
    if options.list {
        output::write(options.output.as_deref(), &plan.list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let target = options.target()?;
    let hardware = target.hardware();
    let setup = Setup::new(root, options, plan, &hardware, target.device())?;
    if let Some(stored) = &setup.stored
        && let Some(incomparable) =
            stored.incomparable(&hardware, options.threshold.unwrap_or(DEFAULT_THRESHOLD))
    {
        let text = match options.format {
            OutputFormat::Json => incomparable.json()?,
            _ => incomparable.table(),
        };
        output::write(options.output.as_deref(), &text)?;
        let code = incomparable.comparison.exit_code(options.require_hardware);
        return Ok(ExitCode::from(code));
    }
    if cfg!(debug_assertions) {
        output::note(
            "warning: this build is not optimised; its results do not apply to a release build",
        );
    }
    let measured = measure(root, options, &target, &hardware, &setup)?;
    finish(root, options, &setup, measured)
}

impl Setup {
    fn new(
        root: &Path,
        options: &Options,
        plan: BenchmarkPlan,
        hardware: &Hardware,
        device: DeviceKind,
    ) -> Result<Self> {
        if options.record
            && !(plan.is_whole
                || (options.quick && options.suites.is_empty() && options.filter.is_none()))
        {
            bail!("--record keeps runs of all suites; remove the suite names and --filter");
        }
        let model = match &options.model[..] {
            [_, _, ..] => bail!("the suite inference measures one model; give --model once"),
            _ if !plan.needs_model() => None,
            given => {
                let file = ModelFile::new(root, given.first().map(PathBuf::as_path));
                if file.is_demo {
                    output::note(
                        "the suite inference measures the demo model; select another one with --model FILE",
                    );
                }
                Some(IdentifiedModel::new(file)?)
            }
        };
        let stored = options.compare.as_deref().map(|path| Stored::load(root, path)).transpose()?;
        let destination = match &options.save_baseline {
            Some(given) => Some(Destination::new(root, given.as_deref(), hardware, device, &plan)?),
            None => None,
        };
        Ok(Self { plan, stored, destination, model })
    }
}

/// A run and its comparison.
struct Measured {
    run: Run,
    comparison: Option<BaselineComparison>,
    /// The error that ended the measurement early.
    failure: Option<Error>,
    was_interrupted: bool,
}

/// Takes all samples and compares them.
fn measure(
    root: &Path,
    options: &Options,
    target: &Target,
    hardware: &Hardware,
    setup: &Setup,
) -> Result<Measured> {
    let interrupt = terminal::interrupt_by_ctrl_c(2);
    let limits = limits::measure(root, target, hardware)?;
    if let Err(error) = limits::store(root, hardware, target.device(), &limits) {
        let error = Error::from(error);
        output::note(format_args!("cannot store the limits of this machine: {error:#}"));
    }
    let monitor = if target.is_gpu() {
        Monitor::detect().inspect_err(|error| output::note(format_args!("{error}"))).ok()
    } else {
        None
    };
    let session = MeasurementSession {
        root,
        target,
        hardware,
        limits: &limits,
        plan: &setup.plan,
        model: setup.model.as_ref(),
        quick: options.quick,
        rounds: options.rounds,
        monitor,
    };
    let bar = TerminalBar::new();
    let Measurement { run, rounds, omitted_rounds, failure } =
        session::measure(&session, &interrupt, &mut |progress| bar.show(progress));
    bar.clear();
    if omitted_rounds > 0 {
        let all = rounds + omitted_rounds;
        output::note(format_args!(
            "{rounds} of {all} rounds: the time budget of --quick is spent (--rounds {all} runs all)"
        ));
    }
    let threshold = options.threshold.unwrap_or(DEFAULT_THRESHOLD);
    let compare =
        |stored: &Stored| stored.compare(&run, setup.model.as_ref(), &setup.plan, threshold);
    let comparison = setup.stored.as_ref().map(compare);
    let was_interrupted = interrupt.is_requested();
    Ok(Measured { run, comparison, failure: failure.map(Error::from), was_interrupted })
}

/// Writes all outputs and returns the exit code. A failed output does not prevent the others.
fn finish(root: &Path, options: &Options, setup: &Setup, measured: Measured) -> Result<ExitCode> {
    let Measured { run, comparison, failure, was_interrupted } = measured;
    let run = &run;
    let checks = if options.targets { targets::check(run) } else { Vec::new() };
    let history = match options.format {
        OutputFormat::Html => baselines::history(root, run),
        _ => History::default(),
    };
    for error in &history.errors {
        output::note(format_args!("skipped {error}"));
    }
    let history = &history.runs;
    let report = Report { run, comparison: comparison.as_ref(), targets: &checks, history };

    let mut errors: Vec<Error> = failure.into_iter().collect();
    if let Err(error) =
        output::write(options.output.as_deref(), &formatted(options.format, &report)?)
    {
        errors.push(error);
        if options.output.is_some() {
            errors.extend(output::write(None, &table::report(&report)).err());
        }
    } else if let Some(path) = &options.output {
        let summary = comparison.as_ref().map(|comparison| format!(": {}", comparison.summary()));
        output::note(format_args!(
            "results written to '{}'{}",
            path.display(),
            summary.unwrap_or_default()
        ));
    }
    if let Some(destination) = &setup.destination {
        match destination.save(run, !was_interrupted) {
            Ok(saved) => output::note(saved),
            Err(error) => errors.push(error.into()),
        }
    }
    if options.record && was_interrupted {
        output::note("not recorded: --record keeps complete runs only");
    } else if options.record {
        match baselines::record(root, run) {
            Ok(path) => output::note(format_args!("recorded in '{}'", path.display())),
            Err(error) => errors.push(error.into()),
        }
    }
    for error in &errors {
        output::note(format_args!("error: {error:#}"));
    }
    if was_interrupted {
        let (missing, all) = (run.missing.len(), setup.plan.benchmarks.len());
        output::note(format_args!(
            "ended by Ctrl-C: {missing} of {all} benchmarks are missing, the others have fewer rounds"
        ));
    }
    Ok(ExitCode::from(exit_code(options, comparison.as_ref(), &checks, was_interrupted, &errors)))
}

fn exit_code(
    options: &Options,
    comparison: Option<&BaselineComparison>,
    checks: &[TargetCheck],
    was_interrupted: bool,
    errors: &[Error],
) -> u8 {
    if was_interrupted {
        return output::INTERRUPTED;
    }
    if !errors.is_empty() {
        return FAILED;
    }
    match comparison.map_or(0, |comparison| comparison.exit_code(options.require_hardware)) {
        0 if checks.iter().any(|check| matches!(check.outcome, TargetOutcome::Fail(_))) => WORSE,
        code => code,
    }
}

fn formatted(format: OutputFormat, report: &Report<'_>) -> Result<String> {
    Ok(match format {
        OutputFormat::Table => table::report(report),
        OutputFormat::Csv => table::csv(report.run)?,
        OutputFormat::Html => html::render(report)?,
        OutputFormat::Json => report.json()?,
    })
}
