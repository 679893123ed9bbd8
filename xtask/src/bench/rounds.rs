//! Rounds over all benchmarks, and what they come to.

use std::{collections::BTreeMap, io::IsTerminal, time::Duration};

use anyhow::{Error, Result, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rf_bench::{Clock, Target, Workload};
use rf_profile::{
    baseline::{Better, Metrics},
    monitor::{Monitor, Record},
};

use super::{
    inference::{self, Figure, Outcome, Sampled},
    interrupt::Interrupt,
    model::ModelFile,
    plan::{self, Benchmark, Plan, Task},
    results::{GpuWatch, MachineLimits, Measured, Reached, Skipped, Work},
    sampling::Sampling,
    timers,
};

/// Between samples of the GPUs' state.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// What all rounds together gave.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    pub(super) measured: Vec<Measured>,
    pub(super) skipped: Vec<Skipped>,
    /// Names of what Ctrl-C left unmeasured.
    pub(super) missing: Vec<String>,
    /// The GPUs while the model ran.
    pub(super) monitor: Vec<GpuWatch>,
    /// What failed, and so ended: with the name of the benchmark.
    pub(super) failure: Option<Error>,
}

/// What is needed to measure.
pub(super) struct Setting<'a> {
    pub(super) target: &'a Target,
    /// Where a model is part of the plan.
    pub(super) model: Option<&'a ModelFile>,
    pub(super) limits: &'a MachineLimits,
    pub(super) sampling: Sampling,
    pub(super) interrupt: &'a Interrupt,
    /// Where there is a GPU to watch while the model runs.
    pub(super) monitor: Option<Monitor>,
}

/// The samples of a benchmark so far.
#[derive(Default)]
struct Collected {
    rounds: Vec<Vec<f64>>,
    skipped: Option<String>,
    /// Of the first round: the figures of a round beside its samples.
    first: Option<Sampled>,
    clock: Option<Clock>,
}

/// Measures every benchmark of the plan once per round.
pub(super) fn run(plan: &Plan, setting: &Setting<'_>) -> Outcomes {
    let mut collected: Vec<Collected> = Vec::new();
    collected.resize_with(plan.benchmarks.len(), Collected::default);
    let bar = progress_bar(setting.sampling.rounds * plan.benchmarks.len());
    let mut failure = None;
    let mut watched = Vec::new();
    for round in 0..setting.sampling.rounds {
        bar.set_prefix(format!("round {}/{}", round + 1, setting.sampling.rounds));
        if let Err(error) = run_round(round, plan, setting, &mut collected, &mut watched, &bar) {
            failure = Some(error);
            break;
        }
        if setting.interrupt.requested() {
            break;
        }
    }
    bar.finish_and_clear();
    let mut outcomes = Outcomes { failure, monitor: watches(&watched), ..Outcomes::default() };
    for (benchmark, collected) in plan.benchmarks.iter().zip(collected) {
        outcomes.add(benchmark, collected, setting.limits);
    }
    outcomes
}

/// The model first: what its process grows by is then not hidden by what others left behind.
fn run_round(
    round: usize,
    plan: &Plan,
    setting: &Setting<'_>,
    collected: &mut [Collected],
    watched: &mut Vec<Record>,
    bar: &ProgressBar,
) -> Result<()> {
    let mut places = BTreeMap::new();
    let mut figures = Vec::new();
    for (place, benchmark) in plan.benchmarks.iter().enumerate() {
        let Task::Model(figure) = benchmark.task else { continue };
        let is_once = figure == Figure::PeakMemory && round > 0;
        if collected[place].skipped.is_none() && !is_once {
            places.insert(benchmark.name.clone(), place);
            figures.push(figure);
        } else {
            bar.inc(1);
        }
    }
    if let Some(model) = setting.model.filter(|_| !figures.is_empty()) {
        bar.set_message(model.name());
        let mut done = |figure: Figure, outcome: Outcome| {
            bar.inc(1);
            bar.set_message(figure.name());
            let Some(place) = places.get(&figure.name()) else { return };
            let collected = &mut collected[*place];
            match outcome {
                Outcome::Sampled(sampled) => {
                    collected.rounds.push(sampled.samples.clone());
                    collected.first.get_or_insert(sampled);
                }
                Outcome::Skipped(why) => collected.skipped = Some(why),
            }
        };
        let Setting { target, sampling, interrupt, monitor, .. } = setting;
        let watching = monitor.clone().map(|monitor| monitor.start(WATCH_INTERVAL));
        let outcome = inference::round(model, target, &figures, sampling, interrupt, &mut done);
        watched.extend(watching.map(rf_profile::monitor::Sampling::stop));
        outcome?;
    }
    for (benchmark, collected) in plan.benchmarks.iter().zip(collected) {
        if matches!(benchmark.task, Task::Model(_)) {
            continue;
        }
        if setting.interrupt.requested() {
            break;
        }
        bar.set_message(benchmark.name.clone());
        match &benchmark.task {
            Task::Op(workload) if collected.skipped.is_none() => {
                measure_op(workload, setting, collected)?;
            }
            Task::Timer(timer) => {
                let seconds = setting.sampling.take(setting.interrupt, || Ok(timer.run()))?;
                let each = seconds.iter().map(|seconds| 1e6 * seconds / f64::from(timers::COUNT));
                collected.rounds.push(each.collect());
            }
            _ => {}
        }
        bar.inc(1);
    }
    Ok(())
}

fn measure_op(workload: &Workload, setting: &Setting<'_>, collected: &mut Collected) -> Result<()> {
    let mut prepared = match workload.prepare(setting.target) {
        Ok(prepared) => prepared,
        Err(error @ (rf_bench::Error::Unsupported(_) | rf_bench::Error::OutOfMemory { .. })) => {
            collected.skipped = Some(error.to_string());
            return Ok(());
        }
        Err(error) => return Err(anyhow!(error).context(workload.name.clone())),
    };
    collected.clock = Some(prepared.clock());
    let samples = setting.sampling.take(setting.interrupt, || Ok(prepared.run()?));
    let samples = samples.map_err(|error| error.context(workload.name.clone()))?;
    collected.rounds.push(samples.iter().map(|seconds| 1e6 * seconds).collect());
    Ok(())
}

impl Outcomes {
    fn add(&mut self, benchmark: &Benchmark, collected: Collected, limits: &MachineLimits) {
        let Benchmark { name, suite, task } = benchmark;
        if let Some(why) = collected.skipped {
            self.skipped.push(Skipped { name: name.clone(), suite: *suite, why });
            return;
        }
        let mut rounds = collected.rounds;
        rounds.retain(|samples| !samples.is_empty());
        let (unit, better) = match task {
            Task::Op(_) | Task::Timer(_) => ("us", Better::Lower),
            Task::Model(figure) if figure.is_speed() => (figure.unit(), Better::Higher),
            Task::Model(figure) => (figure.unit(), Better::Lower),
        };
        let Ok(metrics) = Metrics::from_rounds(unit, better, &rounds) else {
            self.missing.push(name.clone());
            return;
        };
        let sampled = collected.first.unwrap_or_default();
        let mut metadata = sampled.metadata;
        let clock = collected.clock.map(|clock| match clock {
            Clock::Op => "the executor's, of the op",
            Clock::Host => "the host's",
        });
        metadata.extend(clock.map(|clock| ("clock".to_owned(), clock.to_owned())));
        let work = match task {
            Task::Op(workload) => plan::work(workload),
            Task::Model(_) => sampled.work,
            Task::Timer(_) => None,
        };
        let reached = work
            .zip(metrics.value())
            .and_then(|(work, value)| reached(limits, work, value, better));
        self.measured.push(Measured {
            name: name.clone(),
            suite: *suite,
            metrics,
            rounds,
            work,
            reached,
            phases: sampled.phases,
            metadata,
        });
    }
}

/// A median against the limits: microseconds of a run, or how often a second something is done.
fn reached(limits: &MachineLimits, work: Work, value: f64, better: Better) -> Option<Reached> {
    let seconds = match better {
        Better::Lower => value / 1e6,
        Better::Higher => 1.0 / value,
    };
    limits.reached(work, seconds)
}

/// All rounds' samples together.
fn watches(records: &[Record]) -> Vec<GpuWatch> {
    let Some(first) = records.first() else { return Vec::new() };
    let samples = records.iter().flat_map(|record| record.samples.iter().cloned()).collect();
    let all = Record { samples, ..first.clone() };
    let throttling = all.throttling();
    let watch = |gpu: u32| GpuWatch {
        gpu,
        source: all.source.to_owned(),
        busy_percent: all.summary(gpu, |state| state.busy_percent).map(|busy| busy.median),
        peak_vram_bytes: all.peak_vram_bytes(gpu),
        clock_mhz: all.summary(gpu, |state| state.clock_mhz).map(|clock| clock.median),
        temperature_c: all.summary(gpu, |state| state.temperature_c).map(|heat| heat.max),
        power_w: all.summary(gpu, |state| state.power_w).map(|power| power.median),
        throttled: throttling
            .iter()
            .find(|one| one.gpu == gpu)
            .map(|one| format!("in {} of {} samples: {}", one.samples, one.of, one.evidence)),
    };
    all.gpus().into_iter().map(watch).collect()
}

fn progress_bar(steps: usize) -> ProgressBar {
    let is_terminal =
        std::io::stderr().is_terminal() && std::env::var("TERM").is_ok_and(|term| term != "dumb");
    let target =
        if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{prefix} [{bar:24}] {eta:>4} {wide_msg}")
        .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "));
    ProgressBar::with_draw_target(Some(steps as u64), target).with_style(style)
}
