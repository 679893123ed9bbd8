//! `--against`: builds a paired comparison from the command line and runs it.

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rf_bench::model::ModelFile;
use rf_bench::paired::protocol::WorkerSettings;
use rf_bench::paired::{self, PairedComparison, PairedPlan, Side, revision};
use rf_bench::{machine, plan};
use rf_profile::baseline::Verdict;

use crate::options::{BackendName, Options, OutputFormat};
use crate::output;
use crate::terminal::{self, TerminalBar};

/// Time limit for all passes.
const BUDGET: Duration = Duration::from_mins(9);
/// Time limit for all passes with `--quick`.
const QUICK_BUDGET: Duration = Duration::from_mins(4);

/// Default threshold, as a fraction. Builds of the same source differ by up to 1 % through the
/// layout of code and memory; a change of 5 % is twice the threshold.
const THRESHOLD: f64 = 0.025;

/// Compares this build, or `--head`, with the build `against`. `--help` lists the exit codes.
pub(crate) fn run(root: &Path, options: &Options, against: &str) -> Result<ExitCode> {
    if options.format == OutputFormat::Html {
        bail!("--against has no HTML report; use --format table, json or csv");
    }
    let workloads = plan::BenchmarkPlan::new(&options.selection())?.paired();
    if workloads.is_empty() {
        bail!("no workload is selected; --against measures ops, prefill and decode");
    }
    let model = match &options.model[..] {
        [_, _, ..] => bail!("--against measures one model; give --model once"),
        given => ModelFile::new(root, given.first().map(std::path::PathBuf::as_path)),
    };
    let settings = WorkerSettings {
        gpu: options.backend == BackendName::Gpu,
        threads: options.threads,
        isa: options.isa.clone(),
        model: Some(model.path.canonicalize().unwrap_or(model.path)),
        ..WorkerSettings::default()
    };
    let side = |given: &str| revision::side(root, given, &|text| output::note(text));
    let base = side(against)?;
    let head = match &options.head {
        Some(given) => side(given)?,
        None => Side {
            program: env::current_exe().context("path of this program")?,
            label: format!("this build ({})", machine::revision(root)),
            backend: String::new(),
        },
    };
    let budget = match options.budget {
        Some(minutes) => Duration::from_secs_f64(60.0 * minutes),
        None if options.quick => QUICK_BUDGET,
        None => BUDGET,
    };
    let threshold = options.threshold.unwrap_or(THRESHOLD);
    let interrupt = terminal::interrupt_by_ctrl_c(3);
    let bar = TerminalBar::new();
    let plan = PairedPlan { base, head, settings, workloads, threshold, budget };
    let compared = paired::compare(&plan, &interrupt, &mut |progress| bar.show(progress));
    bar.clear();
    let comparison = match compared {
        Err(_) if interrupt.is_urgent() => return Ok(output::ended_at_once()),
        compared => compared?,
    };
    output::write(options.output.as_deref(), &formatted(options.format, &comparison)?)?;
    if interrupt.is_requested() {
        let count = |verdict| comparison.count(verdict);
        output::note(format_args!(
            "ended by Ctrl-C: {} of {} workloads have no verdict",
            count(Verdict::Inconclusive) + count(Verdict::Missing),
            comparison.rows.len()
        ));
        return Ok(ExitCode::from(output::INTERRUPTED));
    }
    Ok(ExitCode::from(comparison.exit_code()))
}

fn formatted(format: OutputFormat, comparison: &PairedComparison) -> Result<String> {
    Ok(match format {
        OutputFormat::Json => serde_json::to_string_pretty(comparison)? + "\n",
        OutputFormat::Csv => paired::csv(comparison)?,
        OutputFormat::Table | OutputFormat::Html => paired::table(comparison),
    })
}
