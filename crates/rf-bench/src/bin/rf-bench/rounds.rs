//! Rounds over all benchmarks, and their outcomes.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Error, Result, anyhow};
use indicatif::ProgressBar;
use rf_bench::{
    Clock, Interrupt, Target, Workload,
    contention::{ContentionTimer, HIGH_CONTENTION},
    model::ModelFile,
    model_metric::ModelMetric,
    plan::{Benchmark, BenchmarkKind, Plan},
};
use rf_graph::OpCost;
use rf_profile::{
    baseline::{Better, CONTENTION, Metrics},
    monitor::{Monitor, Record},
    roofline::{Limits, Roofline},
};

use crate::{
    inference::{self, Outcome, Sampled},
    output,
    results::{self, GpuWatch, Measured, PhaseTime, Skipped},
    sampling::Sampling,
    terminal::progress_bar,
    timers,
};

/// Interval between samples of the state of the GPUs.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// The outcomes of all rounds.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) measured: Vec<Measured>,
    pub(crate) skipped: Vec<Skipped>,
    /// Names of the benchmarks that Ctrl-C or an error left unmeasured.
    pub(crate) missing: Vec<String>,
    /// State of the GPUs while the model ran.
    pub(crate) monitor: Vec<GpuWatch>,
    /// The error that ended the measurement, with the name of the benchmark.
    pub(crate) failure: Option<Error>,
}

/// The inputs of a measurement.
pub(crate) struct Setting<'a> {
    pub(crate) target: &'a Target,
    /// The model, if the plan has a metric of it.
    pub(crate) model: Option<&'a ModelFile>,
    pub(crate) limits: &'a Limits,
    pub(crate) sampling: Sampling,
    pub(crate) interrupt: &'a Interrupt,
    /// Monitor of the GPUs while the model runs; `None` on the CPU.
    pub(crate) monitor: Option<Monitor>,
}

/// A measurement in progress, with its samples so far.
pub(crate) struct Sampler<'a> {
    plan: &'a Plan,
    setting: &'a Setting<'a>,
    /// Samples by index of the benchmark in the plan.
    collected: Vec<Collected>,
    watched: Vec<Record>,
    failure: Option<Error>,
    rounds: usize,
}

/// The samples of a benchmark so far.
#[derive(Default)]
struct Collected {
    rounds: Vec<Round>,
    skipped: Option<String>,
    /// Outcome of the first round, for its cost and metadata.
    first: Option<Sampled>,
    /// Phases of the median sample of each round.
    phases: Vec<Vec<PhaseTime>>,
    clock: Option<Clock>,
}

/// The samples of a benchmark in one round.
#[derive(Clone, Debug, Default, PartialEq)]
struct Round {
    samples: Vec<f64>,
    /// Fraction of the time in which threads had no CPU; 0 for times of a device clock.
    contention: f64,
}

impl<'a> Sampler<'a> {
    /// Measures every benchmark of the plan once per round.
    pub(crate) fn start(plan: &'a Plan, setting: &'a Setting<'a>) -> Self {
        let collected = plan.benchmarks.iter().map(|_| Collected::default()).collect();
        let mut sampler =
            Self { plan, setting, collected, watched: Vec::new(), failure: None, rounds: 0 };
        let start = Instant::now();
        let rounds = setting.sampling.rounds;
        let end = setting.sampling.budget.map(|budget| start + budget);
        for round in 1..=rounds {
            let each = start.elapsed() / (round as u32 - 1).max(1);
            if round > 1 && end.is_some_and(|end| Instant::now() + each > end) {
                output::note(format_args!(
                    "{} of {rounds} rounds: the time budget of --quick is spent (--rounds {rounds} runs all)",
                    round - 1
                ));
                break;
            }
            sampler.round(&format!("round {round}/{rounds}"));
        }
        sampler
    }

    /// Takes a round of all benchmarks, unless an error or Ctrl-C ended the measurement.
    fn round(&mut self, title: &str) {
        if self.failure.is_some() || self.setting.interrupt.is_requested() {
            return;
        }
        let is_due = |place: &usize| {
            // A process grows in the first round only.
            let is_once = matches!(
                self.plan.benchmarks[*place].kind,
                BenchmarkKind::Model(ModelMetric::PeakMemory)
            );
            self.collected[*place].skipped.is_none() && !(is_once && self.rounds > 0)
        };
        let places: Vec<usize> = (0..self.plan.benchmarks.len()).filter(is_due).collect();
        let bar = progress_bar(places.len());
        bar.set_prefix(title.to_owned());
        if let Err(error) = self.measure(&places, &bar) {
            self.failure = Some(error);
        }
        bar.finish_and_clear();
        self.rounds += 1;
    }

    /// Evaluates the samples of all rounds. Takes the error, if one ended the measurement.
    pub(crate) fn outcomes(&mut self) -> Outcomes {
        let mut outcomes = Outcomes {
            failure: self.failure.take(),
            monitor: watches(&self.watched),
            ..Outcomes::default()
        };
        for (benchmark, collected) in self.plan.benchmarks.iter().zip(&self.collected) {
            outcomes.add(benchmark, collected, self.setting.limits);
        }
        outcomes
    }

    /// Measures the benchmarks at `places`. The model is first, because memory that other
    /// benchmarks leave in the process would hide its growth.
    fn measure(&mut self, places: &[usize], bar: &ProgressBar) -> Result<()> {
        let Setting { target, model, sampling, interrupt, monitor, .. } = self.setting;
        let mut metrics = BTreeMap::new();
        for &place in places {
            if let BenchmarkKind::Model(metric) = self.plan.benchmarks[place].kind {
                metrics.insert(place, metric);
            }
        }
        if let Some(model) = model.filter(|_| !metrics.is_empty()) {
            bar.set_message(model.name());
            let collected = &mut self.collected;
            let mut done = |metric: ModelMetric, outcome: Outcome, contention: f64| {
                bar.inc(1);
                bar.set_message(metric.name());
                let place = metrics.iter().find(|(_, one)| **one == metric);
                if let Some((place, _)) = place {
                    collected[*place].add(outcome, contention);
                }
            };
            let due: Vec<ModelMetric> = metrics.values().copied().collect();
            let watching = monitor.clone().map(|monitor| monitor.start(WATCH_INTERVAL));
            let outcome = inference::round(model, target, &due, sampling, interrupt, &mut done);
            self.watched.extend(watching.map(rf_profile::monitor::Sampling::stop));
            outcome?;
        }
        for &place in places {
            let (benchmark, collected) = (&self.plan.benchmarks[place], &mut self.collected[place]);
            if interrupt.is_requested() {
                break;
            }
            match &benchmark.kind {
                BenchmarkKind::Model(_) => continue,
                BenchmarkKind::Op(workload) => {
                    measure_op(workload, self.setting, collected)?;
                }
                BenchmarkKind::Timer(timer) => {
                    let contention = ContentionTimer::start();
                    let seconds = sampling.take(interrupt, || Ok(timer.run()))?;
                    let contention = contention.fraction(1);
                    let count = f64::from(timers::COUNT);
                    let samples = seconds.iter().map(|s| 1e6 * s / count).collect();
                    collected.rounds.push(Round { samples, contention });
                }
            }
            bar.inc(1);
            bar.set_message(benchmark.name.clone());
        }
        Ok(())
    }
}

impl Collected {
    fn add(&mut self, outcome: Outcome, contention: f64) {
        match outcome {
            Outcome::Sampled(sampled) => {
                let samples = sampled.samples.clone();
                self.rounds.push(Round { samples, contention });
                self.phases.push(sampled.phases.clone());
                self.first.get_or_insert(sampled);
            }
            Outcome::Skipped(why) => self.skipped = Some(why),
        }
    }
}

/// Takes the samples of one round of an op, or records why the target does not support it.
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
    let is_of_device = setting.target.is_gpu() && prepared.clock() == Clock::Op;
    let contention = ContentionTimer::start();
    let samples = setting.sampling.take(setting.interrupt, || Ok(prepared.run()?));
    let is_single = workload.is_single_threaded();
    let threads = if is_single { 1 } else { setting.target.threads().unwrap_or(1) };
    let contention = if is_of_device { 0.0 } else { contention.fraction(threads) };
    let samples = samples.map_err(|error| error.context(workload.name.clone()))?;
    let samples = samples.iter().map(|seconds| 1e6 * seconds).collect();
    collected.rounds.push(Round { samples, contention });
    Ok(())
}

impl Outcomes {
    fn add(&mut self, benchmark: &Benchmark, collected: &Collected, limits: &Limits) {
        let Benchmark { name, suite, kind } = benchmark;
        if let Some(why) = collected.skipped.clone() {
            self.skipped.push(Skipped { name: name.clone(), suite: *suite, why });
            return;
        }
        let better = better(kind);
        let measured = || collected.rounds.iter().filter(|round| !round.samples.is_empty());
        let samples: Vec<Vec<f64>> = measured().map(|round| round.samples.clone()).collect();
        let Ok(metrics) = Metrics::from_rounds(unit(kind), better, &samples) else {
            self.missing.push(name.clone());
            return;
        };
        let first = collected.first.as_ref();
        let mut metadata = first.map(|first| first.metadata.clone()).unwrap_or_default();
        let contention =
            measured().map(|round| round.contention).sum::<f64>() / samples.len() as f64;
        if contention > HIGH_CONTENTION {
            metadata.insert(CONTENTION.to_owned(), format!("{:.0} %", 100.0 * contention));
        }
        let clock = collected.clock.map(|clock| match clock {
            Clock::Op => "executor, per op",
            Clock::Host => "host",
        });
        metadata.extend(clock.map(|clock| ("clock".to_owned(), clock.to_owned())));
        let phases = closest(&collected.phases, metrics.value());
        let cost = match kind {
            BenchmarkKind::Op(workload) => workload.cost,
            BenchmarkKind::Model(_) => first.map(|first| first.cost).unwrap_or_default(),
            BenchmarkKind::Timer(_) => OpCost::default(),
        };
        let roofline = metrics.value().and_then(|value| roofline(limits, cost, value, better));
        self.measured.push(Measured {
            name: name.clone(),
            suite: *suite,
            metrics,
            rounds: samples,
            cost,
            roofline,
            phases,
            metadata,
        });
    }
}

fn unit(kind: &BenchmarkKind) -> &'static str {
    match kind {
        BenchmarkKind::Op(_) | BenchmarkKind::Timer(_) => "us",
        BenchmarkKind::Model(metric) => metric.unit(),
    }
}

fn better(kind: &BenchmarkKind) -> Better {
    match kind {
        BenchmarkKind::Model(metric) if metric.is_throughput() => Better::Higher,
        _ => Better::Lower,
    }
}

/// Returns the phases of the round whose sum is closest to the median of all rounds.
fn closest(rounds: &[Vec<PhaseTime>], median_ms: Option<f64>) -> Vec<PhaseTime> {
    let median_ms = median_ms.unwrap_or_default();
    let distance = |phases: &&Vec<PhaseTime>| {
        let sum: f64 = phases.iter().map(|phase| phase.ms).sum();
        (sum - median_ms).abs()
    };
    let closest = rounds.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    closest.cloned().unwrap_or_default()
}

/// The place of a median on the roofline; `value` is µs per run, or runs per second.
fn roofline(limits: &Limits, cost: OpCost, value: f64, better: Better) -> Option<Roofline> {
    let seconds = match better {
        Better::Lower => value / 1e6,
        Better::Higher => 1.0 / value,
    };
    results::roofline(limits, cost, seconds)
}

/// Summarizes the samples of all rounds for each GPU.
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
