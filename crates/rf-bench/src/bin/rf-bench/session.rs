//! A run of benchmarks: measurement, comparison and output.

use std::{path::Path, process::ExitCode};

use anyhow::{Error, Result, bail};
use rf_bench::{
    Target, machine,
    model::{self, ModelFile},
};
use rf_profile::{
    baseline::{Comparison, DEFAULT_THRESHOLD, DeviceKind, Hardware, ModelId, Timestamp},
    monitor::Monitor,
};
use serde_json::json;

use crate::{
    baselines::{self, Destination, Stored},
    html, limits,
    options::{Format, Options},
    output,
    plan::{Plan, Task},
    results::{FORMAT, Report, Run, TargetCheck, TargetOutcome, VERSION},
    rounds::{Sampler, Setting},
    sampling::Sampling,
    table, targets, terminal,
};

/// Exit code of a regression or a missed target.
const WORSE: u8 = 1;

/// Exit code of an error.
const FAILED: u8 = 2;

/// The inputs and outputs of a run. They are checked before the measurement, so that a mistyped
/// name costs no time.
struct Setup {
    plan: Plan,
    stored: Option<Stored>,
    destination: Option<Destination>,
    model: Option<MeasuredModel>,
}

/// The model of the suite `inference`.
struct MeasuredModel {
    file: ModelFile,
    id: ModelId,
    /// Size and quantisation, such as `7B Q4_K_M`.
    kind: String,
}

/// Runs the benchmarks of a command line and returns the exit code.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let plan = Plan::of(options)?;
    if options.list {
        output::write(options.output.as_deref(), &plan.list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let target = options.target()?;
    let hardware = machine::hardware(&target);
    let setup = Setup::of(root, options, plan, &hardware, target.device())?;
    if let Some(stored) = &setup.stored
        && let Some(comparison) =
            stored.of_other_hardware(&hardware, options.threshold.unwrap_or(DEFAULT_THRESHOLD))
    {
        return report_other_hardware(options, stored, &comparison);
    }
    if cfg!(debug_assertions) {
        output::note(
            "warning: this build is not optimised; its results do not apply to a release build",
        );
    }
    let measurement = measure(root, options, &target, hardware, &setup)?;
    finish(root, options, &setup, measurement)
}

impl Setup {
    /// Compares a run with the baseline of `--compare`, if one is given.
    fn compare(&self, run: &Run, threshold: f64) -> Option<Comparison> {
        let kind = self.model.as_ref().map_or("", |model| &model.kind);
        Some(self.stored.as_ref()?.compare(run, kind, &self.plan, threshold))
    }

    fn of(
        root: &Path,
        options: &Options,
        plan: Plan,
        hardware: &Hardware,
        device: DeviceKind,
    ) -> Result<Self> {
        if options.record
            && !(plan.is_whole
                || (options.quick && options.suites.is_empty() && options.filter.is_none()))
        {
            bail!("--record keeps runs of all suites; remove the suite names and --filter");
        }
        let has_model = |task: &Task| matches!(task, Task::Model(_));
        let model = match &options.model[..] {
            [_, _, ..] => bail!("the suite inference measures one model; give --model once"),
            _ if !plan.benchmarks.iter().any(|benchmark| has_model(&benchmark.task)) => None,
            given => {
                Some(MeasuredModel::open(root, given.first().map(std::path::PathBuf::as_path))?)
            }
        };
        let stored = options.compare.as_deref().map(|path| Stored::load(root, path)).transpose()?;
        let slug = machine::slug(hardware, device);
        let destination = Destination::new(root, options, &slug, &plan)?;
        Ok(Self { plan, stored, destination, model })
    }
}

impl MeasuredModel {
    fn open(root: &Path, given: Option<&Path>) -> Result<Self> {
        let file = ModelFile::new(root, given);
        if file.is_demo {
            output::note(
                "the suite inference measures the demo model; select another one with --model FILE",
            );
        }
        let model = file.open()?;
        Ok(Self { id: file.id(&model)?, kind: model::kind(&model), file })
    }
}

/// A run and its comparison.
struct Measurement {
    run: Run,
    comparison: Option<Comparison>,
    /// The error that ended the measurement early.
    failure: Option<Error>,
    was_interrupted: bool,
}

/// Takes all samples and compares them.
fn measure(
    root: &Path,
    options: &Options,
    target: &Target,
    hardware: Hardware,
    setup: &Setup,
) -> Result<Measurement> {
    let interrupt = terminal::interrupt_by_ctrl_c(2);
    let limits = limits::measure(root, target, &hardware)?;
    let monitor = if target.is_gpu() {
        Monitor::detect().inspect_err(|error| output::note(format_args!("{error}"))).ok()
    } else {
        None
    };
    let mut run = Run {
        format: FORMAT.to_owned(),
        version: VERSION,
        timestamp: Timestamp::now(),
        build: machine::build(root, target),
        device: target.device(),
        backend: target.backend().description(),
        model: setup.model.as_ref().map(|model| model.id.clone()),
        quick: options.quick,
        hardware,
        limits: limits.clone(),
        results: Vec::new(),
        skipped: Vec::new(),
        missing: Vec::new(),
        monitor: Vec::new(),
    };
    let setting = Setting {
        target,
        model: setup.model.as_ref().map(|model| &model.file),
        limits: &limits,
        sampling: Sampling::of(options),
        interrupt: &interrupt,
        monitor,
    };
    let mut sampler = Sampler::start(&setup.plan, &setting);
    let failure = take_into(&mut run, &mut sampler);
    let comparison = setup.compare(&run, options.threshold.unwrap_or(DEFAULT_THRESHOLD));
    Ok(Measurement { run, comparison, failure, was_interrupted: interrupt.is_requested() })
}

/// Moves the outcomes into a run; returns the error that ended the measurement early.
fn take_into(run: &mut Run, sampler: &mut Sampler<'_>) -> Option<Error> {
    let outcomes = sampler.outcomes();
    run.results = outcomes.measured;
    run.skipped = outcomes.skipped;
    run.missing = outcomes.missing;
    run.monitor = outcomes.monitor;
    outcomes.failure
}

/// Writes all outputs and returns the exit code. A failed output does not prevent the others.
fn finish(
    root: &Path,
    options: &Options,
    setup: &Setup,
    measurement: Measurement,
) -> Result<ExitCode> {
    let Measurement { run, comparison, failure, was_interrupted } = measurement;
    let run = &run;
    let checks = if options.targets { targets::check(run) } else { Vec::new() };
    let history = match options.format {
        Format::Html => baselines::history(root, run),
        _ => Vec::new(),
    };
    let report =
        Report { run, comparison: comparison.as_ref(), targets: &checks, history: &history };

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
    errors.extend(
        setup
            .destination
            .as_ref()
            .and_then(|destination| destination.save(run, was_interrupted).err()),
    );
    if options.record && was_interrupted {
        output::note("not recorded: --record keeps complete runs only");
    } else if options.record {
        errors.extend(baselines::record(root, run).err());
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
    comparison: Option<&Comparison>,
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

fn formatted(format: Format, report: &Report<'_>) -> Result<String> {
    Ok(match format {
        Format::Table => table::report(report),
        Format::Csv => table::csv(report.run)?,
        Format::Html => html::render(report)?,
        Format::Json => {
            let comparison = report.comparison.map(Comparison::to_json);
            let all =
                json!({"run": report.run, "comparison": comparison, "targets": report.targets});
            serde_json::to_string_pretty(&all)? + "\n"
        }
    })
}

/// Reports a baseline whose entries are all of other hardware; nothing is measured then.
fn report_other_hardware(
    options: &Options,
    stored: &Stored,
    comparison: &Comparison,
) -> Result<ExitCode> {
    let commands = stored.commands();
    let text = if options.format == Format::Json {
        let comparison = comparison.to_json();
        let all =
            json!({"run": null, "comparison": comparison, "targets": [], "would_run": commands});
        serde_json::to_string_pretty(&all)? + "\n"
    } else {
        format!(
            "{}\nNothing was measured: every baseline result is of other hardware. Commands for that hardware:\n  {}\n",
            comparison.table(),
            commands.join("\n  ")
        )
    };
    output::write(options.output.as_deref(), &text)?;
    Ok(ExitCode::from(comparison.exit_code(options.require_hardware)))
}
