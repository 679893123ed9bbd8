//! Rounds over all benchmarks, and what they come to.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::IsTerminal,
    time::{Duration, Instant},
};

use anyhow::{Error, Result, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rf_bench::{Clock, Target, Workload};
use rf_profile::{
    baseline::{Better, Metrics},
    monitor::{Monitor, Record},
    stats::Summary,
};

use super::{
    inference::{self, Figure, Outcome, Sampled},
    interrupt::Interrupt,
    model::ModelFile,
    plan::{self, Benchmark, Plan, Task},
    results::{GpuWatch, MachineLimits, Measured, PhaseTime, Reached, Skipped, Work},
    sampling::Sampling,
    timers,
};

/// Between samples of the GPUs' state.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// How far from the best round's median, as a share of it, another round's may be to count as undisturbed.
const NEAR: f64 = 0.05;

/// Rounds that have to agree.
const AGREEING: usize = 2;

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

/// A measurement under way: the samples so far, and how to take more.
pub(super) struct Measuring<'a> {
    plan: &'a Plan,
    setting: &'a Setting<'a>,
    /// By place in the plan.
    collected: Vec<Collected>,
    watched: Vec<Record>,
    failure: Option<Error>,
    rounds: usize,
}

/// The samples of a benchmark so far.
#[derive(Default)]
struct Collected {
    rounds: Vec<Vec<f64>>,
    skipped: Option<String>,
    /// Of the first round: the figures of a round beside its samples.
    first: Option<Sampled>,
    /// Of each round the parts of its median sample.
    phases: Vec<Vec<PhaseTime>>,
    clock: Option<Clock>,
}

impl<'a> Measuring<'a> {
    /// Measures every benchmark of the plan once per round, and then those again that were disturbed.
    pub(super) fn start(plan: &'a Plan, setting: &'a Setting<'a>) -> Self {
        let collected = plan.benchmarks.iter().map(|_| Collected::default()).collect();
        let mut measuring =
            Self { plan, setting, collected, watched: Vec::new(), failure: None, rounds: 0 };
        let start = Instant::now();
        let rounds = setting.sampling.rounds;
        for round in 1..=rounds {
            measuring.round(&|_| true, &format!("round {round}/{rounds}"));
        }
        // Half as long again, at most: the quick subset is to be quick on a busy machine too.
        let limit = Instant::now() + start.elapsed() / 2;
        for _ in 0..2 * rounds {
            let disturbed = measuring.disturbed();
            if disturbed.is_empty() || Instant::now() > limit {
                break;
            }
            measuring.round(&|name| disturbed.contains(name), "disturbed, again");
        }
        measuring
    }

    /// Takes another round of the benchmarks that `wanted` names, unless something ended the measurement.
    pub(super) fn round(&mut self, wanted: &dyn Fn(&str) -> bool, what: &str) {
        if self.failure.is_some() || self.setting.interrupt.requested() {
            return;
        }
        let is_wanted = |place: &usize| {
            let (benchmark, collected) = (&self.plan.benchmarks[*place], &self.collected[*place]);
            // What a process grows by is only seen the first time.
            let is_once = matches!(benchmark.task, Task::Model(Figure::PeakMemory));
            let is_over = is_once && self.rounds > 0;
            collected.skipped.is_none() && !is_over && wanted(&benchmark.name)
        };
        let places: Vec<usize> = (0..self.plan.benchmarks.len()).filter(is_wanted).collect();
        let bar = progress_bar(places.len());
        bar.set_prefix(what.to_owned());
        if let Err(error) = self.measure(&places, &bar) {
            self.failure = Some(error);
        }
        bar.finish_and_clear();
        self.rounds += 1;
    }

    /// What it has come to.
    pub(super) fn outcomes(&mut self) -> Outcomes {
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

    /// The model first: what its process grows by is then not hidden by what others left behind.
    fn measure(&mut self, places: &[usize], bar: &ProgressBar) -> Result<()> {
        let Setting { target, model, sampling, interrupt, monitor, .. } = self.setting;
        let mut figures = BTreeMap::new();
        for &place in places {
            if let Task::Model(figure) = self.plan.benchmarks[place].task {
                figures.insert(place, figure);
            }
        }
        if let Some(model) = model.filter(|_| !figures.is_empty()) {
            bar.set_message(model.name());
            let collected = &mut self.collected;
            let mut done = |figure: Figure, outcome: Outcome| {
                bar.inc(1);
                bar.set_message(figure.name());
                let place = figures.iter().find(|(_, one)| **one == figure);
                if let Some((place, _)) = place {
                    collected[*place].add(outcome);
                }
            };
            let wanted: Vec<Figure> = figures.values().copied().collect();
            let watching = monitor.clone().map(|monitor| monitor.start(WATCH_INTERVAL));
            let outcome = inference::round(model, target, &wanted, sampling, interrupt, &mut done);
            self.watched.extend(watching.map(rf_profile::monitor::Sampling::stop));
            outcome?;
        }
        for &place in places {
            let (benchmark, collected) = (&self.plan.benchmarks[place], &mut self.collected[place]);
            if interrupt.requested() {
                break;
            }
            match &benchmark.task {
                Task::Model(_) => continue,
                Task::Op(workload) => measure_op(workload, self.setting, collected)?,
                Task::Timer(timer) => {
                    let seconds = sampling.take(interrupt, || Ok(timer.run()))?;
                    let count = f64::from(timers::COUNT);
                    collected.rounds.push(seconds.iter().map(|s| 1e6 * s / count).collect());
                }
            }
            bar.inc(1);
            bar.set_message(benchmark.name.clone());
        }
        Ok(())
    }

    /// Benchmarks of which too few rounds agree.
    fn disturbed(&self) -> BTreeSet<String> {
        let benchmarks = self.plan.benchmarks.iter().zip(&self.collected);
        let disturbed = benchmarks.filter(|(benchmark, collected)| {
            let rounds = &collected.rounds;
            rounds.len() > 1 && undisturbed(rounds, better(&benchmark.task)).len() < AGREEING
        });
        disturbed.map(|(benchmark, _)| benchmark.name.clone()).collect()
    }
}

impl Collected {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Sampled(sampled) => {
                self.rounds.push(sampled.samples.clone());
                self.phases.push(sampled.phases.clone());
                self.first.get_or_insert(sampled);
            }
            Outcome::Skipped(why) => self.skipped = Some(why),
        }
    }
}

/// The rounds whose median comes near the best one. Neighbours on a machine make rounds slower and never faster, so the
/// others say something of the neighbours.
fn undisturbed(rounds: &[Vec<f64>], better: Better) -> Vec<Vec<f64>> {
    let median = |round: &Vec<f64>| Summary::of(round).map(|summary| summary.median);
    let medians = rounds.iter().filter_map(median);
    let best = match better {
        Better::Lower => medians.reduce(f64::min),
        Better::Higher => medians.reduce(f64::max),
    };
    let Some(best) = best else { return Vec::new() };
    let is_near = |round: &&Vec<f64>| {
        median(round).is_some_and(|median| (median - best).abs() <= NEAR * best.abs())
    };
    rounds.iter().filter(is_near).cloned().collect()
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
    fn add(&mut self, benchmark: &Benchmark, collected: &Collected, limits: &MachineLimits) {
        let Benchmark { name, suite, task } = benchmark;
        if let Some(why) = collected.skipped.clone() {
            self.skipped.push(Skipped { name: name.clone(), suite: *suite, why });
            return;
        }
        let mut rounds = collected.rounds.clone();
        rounds.retain(|samples| !samples.is_empty());
        let better = better(task);
        let kept = undisturbed(&rounds, better);
        let Ok(metrics) = Metrics::from_rounds(unit(task), better, &kept) else {
            self.missing.push(name.clone());
            return;
        };
        let first = collected.first.as_ref();
        let mut metadata = first.map(|first| first.metadata.clone()).unwrap_or_default();
        if kept.len() < rounds.len() {
            let disturbed = format!("{} of {}", rounds.len() - kept.len(), rounds.len());
            metadata.insert("disturbed rounds".to_owned(), disturbed);
        }
        let clock = collected.clock.map(|clock| match clock {
            Clock::Op => "the executor's, of the op",
            Clock::Host => "the host's",
        });
        metadata.extend(clock.map(|clock| ("clock".to_owned(), clock.to_owned())));
        let phases = closest(&collected.phases, metrics.value());
        let work = match task {
            Task::Op(workload) => plan::work(workload),
            Task::Model(_) => first.and_then(|first| first.work),
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
            phases,
            metadata,
        });
    }
}

fn unit(task: &Task) -> &'static str {
    match task {
        Task::Op(_) | Task::Timer(_) => "us",
        Task::Model(figure) => figure.unit(),
    }
}

fn better(task: &Task) -> Better {
    match task {
        Task::Model(figure) if figure.is_speed() => Better::Higher,
        _ => Better::Lower,
    }
}

/// The parts that add up to what is closest to the median of all rounds.
fn closest(rounds: &[Vec<PhaseTime>], median_ms: Option<f64>) -> Vec<PhaseTime> {
    let median_ms = median_ms.unwrap_or_default();
    let distance = |phases: &&Vec<PhaseTime>| {
        let sum: f64 = phases.iter().map(|phase| phase.ms).sum();
        (sum - median_ms).abs()
    };
    let closest = rounds.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    closest.cloned().unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_neighbours_slowed_down_are_set_aside() {
        let rounds = [vec![10.0, 10.2], vec![15.0, 15.1], vec![10.3, 10.4], vec![]];
        let kept = undisturbed(&rounds, Better::Lower);
        assert_eq!(kept, [vec![10.0, 10.2], vec![10.3, 10.4]]);
        let speeds = [vec![50.0], vec![100.0], vec![99.0]];
        assert_eq!(undisturbed(&speeds, Better::Higher), [vec![100.0], vec![99.0]]);
        assert!(undisturbed(&[], Better::Lower).is_empty());
    }
}
