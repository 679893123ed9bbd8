//! Rounds over all benchmarks, and what they come to.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::IsTerminal,
    time::{Duration, Instant},
};

use anyhow::{Error, Result, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rf_bench::{Clock, Target, Workload, model::ModelFile, model_metric::ModelMetric};
use rf_graph::OpCost;
use rf_profile::{
    baseline::{Better, Metrics},
    control::{Control, ControlRange, ControlWork},
    monitor::{Monitor, Record},
    roofline::{Limits, Roofline},
    stats::Summary,
};

use crate::{
    inference::{self, Outcome, Sampled, Taking},
    interrupt::Interrupt,
    output,
    plan::{Benchmark, Plan, Task},
    results::{self, GpuWatch, Measured, PhaseTime, Skipped},
    sampling::Sampling,
    timers,
};

/// Between samples of the GPUs' state.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// How far from the best round's median, as a share of it, another round's may be to count as undisturbed.
const NEAR: f64 = 0.05;

/// Rounds that have to agree.
const AGREEING: usize = 2;

/// How much slower than at its best in a run the machine may be without a round counting as disturbed.
const SLOWER: f64 = 1.1;

/// What all rounds together gave.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) measured: Vec<Measured>,
    pub(crate) skipped: Vec<Skipped>,
    /// Names of what Ctrl-C left unmeasured.
    pub(crate) missing: Vec<String>,
    /// The GPUs while the model ran.
    pub(crate) monitor: Vec<GpuWatch>,
    /// What failed, and so ended: with the name of the benchmark.
    pub(crate) failure: Option<Error>,
}

/// What is needed to measure.
pub(crate) struct Setting<'a> {
    pub(crate) target: &'a Target,
    /// Where a model is part of the plan.
    pub(crate) model: Option<&'a ModelFile>,
    pub(crate) limits: &'a Limits,
    pub(crate) sampling: Sampling,
    pub(crate) interrupt: &'a Interrupt,
    /// Where there is a GPU to watch while the model runs.
    pub(crate) monitor: Option<Monitor>,
}

/// A measurement under way: the samples so far, and how to take more.
pub(crate) struct Measuring<'a> {
    plan: &'a Plan,
    setting: &'a Setting<'a>,
    control: ControlWork,
    /// By place in the plan.
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
    /// Of the first round: the figures of a round beside its samples.
    first: Option<Sampled>,
    /// Of each round the parts of its median sample.
    phases: Vec<Vec<PhaseTime>>,
    clock: Option<Clock>,
}

/// A round of a benchmark.
#[derive(Clone, Debug, Default, PartialEq)]
struct Round {
    samples: Vec<f64>,
    /// The machine itself before and behind it; `None` of what a device's clock measures.
    control: Option<ControlRange>,
}

impl Round {
    fn median(&self) -> Option<f64> {
        Summary::of(&self.samples).map(|summary| summary.median)
    }
}

impl<'a> Measuring<'a> {
    /// Measures every benchmark of the plan once per round, and then those again that were disturbed.
    pub(crate) fn start(plan: &'a Plan, setting: &'a Setting<'a>) -> Self {
        let collected = plan.benchmarks.iter().map(|_| Collected::default()).collect();
        let control = ControlWork::new(setting.target.threads().unwrap_or(1));
        let mut measuring = Self {
            plan,
            setting,
            control,
            collected,
            watched: Vec::new(),
            failure: None,
            rounds: 0,
        };
        let start = Instant::now();
        let rounds = setting.sampling.rounds;
        let end = setting.sampling.budget.map(|budget| start + budget);
        for round in 1..=rounds {
            let each = start.elapsed() / (round as u32 - 1).max(1);
            if round > 1 && end.is_some_and(|end| Instant::now() + each > end) {
                output::note(format_args!(
                    "{} of {rounds} rounds: more take longer than --quick is to take (--rounds {rounds} has them all)",
                    round - 1
                ));
                break;
            }
            measuring.round(&|_| true, &format!("round {round}/{rounds}"));
        }
        // Half as long again, at most.
        let limit = Instant::now() + start.elapsed() / 2;
        let limit = end.map_or(limit, |end| limit.min(end));
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
    pub(crate) fn round(&mut self, wanted: &dyn Fn(&str) -> bool, what: &str) {
        if self.failure.is_some() || self.setting.interrupt.requested() {
            return;
        }
        let is_wanted = |place: &usize| {
            let (benchmark, collected) = (&self.plan.benchmarks[*place], &self.collected[*place]);
            // What a process grows by is only seen the first time.
            let is_once = matches!(benchmark.task, Task::Model(ModelMetric::PeakMemory));
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
    pub(crate) fn outcomes(&mut self) -> Outcomes {
        let mut outcomes = Outcomes {
            failure: self.failure.take(),
            monitor: watches(&self.watched),
            ..Outcomes::default()
        };
        let best = best_control(&self.collected);
        for (benchmark, collected) in self.plan.benchmarks.iter().zip(&self.collected) {
            outcomes.add(benchmark, collected, self.setting.limits, best);
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
            let mut done =
                |figure: ModelMetric, outcome: Outcome, control: Option<ControlRange>| {
                    bar.inc(1);
                    bar.set_message(figure.name());
                    let place = figures.iter().find(|(_, one)| **one == figure);
                    if let Some((place, _)) = place {
                        collected[*place].add(outcome, control);
                    }
                };
            let wanted: Vec<ModelMetric> = figures.values().copied().collect();
            let watching = monitor.clone().map(|monitor| monitor.start(WATCH_INTERVAL));
            let taking = Taking { sampling, interrupt, control: &self.control };
            let outcome = inference::round(model, target, &wanted, &taking, &mut done);
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
                Task::Op(workload) => {
                    measure_op(workload, self.setting, &self.control, collected)?;
                }
                Task::Timer(timer) => {
                    let take = || sampling.take(interrupt, || Ok(timer.run()));
                    let (control, seconds) = self.control.around(1, take);
                    let count = f64::from(timers::COUNT);
                    let samples = seconds?.iter().map(|s| 1e6 * s / count).collect();
                    collected.rounds.push(Round { samples, control: Some(control) });
                }
            }
            bar.inc(1);
            bar.set_message(benchmark.name.clone());
        }
        Ok(())
    }

    /// Benchmarks of which too few rounds agree, or were taken while the machine was slow.
    fn disturbed(&self) -> BTreeSet<String> {
        let best = best_control(&self.collected);
        let benchmarks = self.plan.benchmarks.iter().zip(&self.collected);
        let disturbed = benchmarks.filter(|(benchmark, collected)| {
            let rounds = &collected.rounds;
            let kept = undisturbed(rounds, better(&benchmark.task));
            let is_slow = slowness(&kept, best).is_some_and(|slowness| slowness > SLOWER);
            rounds.len() > 1 && (kept.len() < AGREEING || is_slow)
        });
        disturbed.map(|(benchmark, _)| benchmark.name.clone()).collect()
    }
}

impl Collected {
    fn add(&mut self, outcome: Outcome, control: Option<ControlRange>) {
        match outcome {
            Outcome::Sampled(sampled) => {
                let samples = sampled.samples.clone();
                self.rounds.push(Round { samples, control });
                self.phases.push(sampled.phases.clone());
                self.first.get_or_insert(sampled);
            }
            Outcome::Skipped(why) => self.skipped = Some(why),
        }
    }
}

/// The rounds whose median comes near the best one. Neighbours on a machine make rounds slower and never faster, so the
/// others say something of the neighbours.
fn undisturbed(rounds: &[Round], better: Better) -> Vec<Round> {
    let medians = rounds.iter().filter_map(Round::median);
    let best = match better {
        Better::Lower => medians.reduce(f64::min),
        Better::Higher => medians.reduce(f64::max),
    };
    let Some(best) = best else { return Vec::new() };
    let is_near = |round: &&Round| {
        round.median().is_some_and(|median| (median - best).abs() <= NEAR * best.abs())
    };
    rounds.iter().filter(is_near).cloned().collect()
}

/// How far the second best round is off the best one, as a share of it: where no other round confirms the best one, the
/// noise is no less.
fn disagreement(rounds: &[Round], better: Better) -> Option<f64> {
    let mut medians: Vec<f64> = rounds.iter().filter_map(Round::median).collect();
    medians.sort_by(|a, b| match better {
        Better::Lower => a.total_cmp(b),
        Better::Higher => b.total_cmp(a),
    });
    let (best, second) = (*medians.first()?, *medians.get(1)?);
    (best != 0.0).then(|| ((second - best) / best).abs())
}

/// The machine at its best in a run.
fn best_control(collected: &[Collected]) -> Option<Control> {
    let rounds = collected.iter().flat_map(|collected| &collected.rounds);
    rounds.filter_map(|round| Some(round.control?.least)).reduce(|a, b| a.least(&b))
}

/// How many times as slow as at its best the machine was in these rounds.
fn slowness(rounds: &[Round], best: Option<Control>) -> Option<f64> {
    let best = best?;
    let best = ControlRange { least: best, most: best, waited: 0.0 };
    Some(mean_control(rounds)?.slower_than(&best))
}

fn mean_control(rounds: &[Round]) -> Option<ControlRange> {
    ControlRange::mean(&rounds.iter().filter_map(|round| round.control).collect::<Vec<_>>())
}

fn measure_op(
    workload: &Workload,
    setting: &Setting<'_>,
    control: &ControlWork,
    collected: &mut Collected,
) -> Result<()> {
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
    let mut take = || setting.sampling.take(setting.interrupt, || Ok(prepared.run()?));
    let (control, samples) = if is_of_device {
        (None, take())
    } else {
        let single = workload.is_single_threaded();
        let threads = if single { 1 } else { setting.target.threads().unwrap_or(1) };
        let (control, samples) = control.around(threads, &mut take);
        (Some(control), samples)
    };
    let samples = samples.map_err(|error| error.context(workload.name.clone()))?;
    let samples = samples.iter().map(|seconds| 1e6 * seconds).collect();
    collected.rounds.push(Round { samples, control });
    Ok(())
}

impl Outcomes {
    fn add(
        &mut self,
        benchmark: &Benchmark,
        collected: &Collected,
        limits: &Limits,
        best: Option<Control>,
    ) {
        let Benchmark { name, suite, task } = benchmark;
        if let Some(why) = collected.skipped.clone() {
            self.skipped.push(Skipped { name: name.clone(), suite: *suite, why });
            return;
        }
        let mut rounds = collected.rounds.clone();
        rounds.retain(|round| !round.samples.is_empty());
        let better = better(task);
        let kept = undisturbed(&rounds, better);
        let samples = |rounds: &[Round]| -> Vec<Vec<f64>> {
            rounds.iter().map(|round| round.samples.clone()).collect()
        };
        let Ok(mut metrics) = Metrics::from_rounds(unit(task), better, &samples(&kept)) else {
            self.missing.push(name.clone());
            return;
        };
        metrics.control = mean_control(&kept);
        let disagreement = disagreement(&rounds, better).filter(|_| kept.len() < AGREEING);
        metrics.noise = metrics.noise.into_iter().chain(disagreement).reduce(f64::max);
        let first = collected.first.as_ref();
        let mut metadata = first.map(|first| first.metadata.clone()).unwrap_or_default();
        if kept.len() < rounds.len() {
            let disturbed = format!("{} of {}", rounds.len() - kept.len(), rounds.len());
            metadata.insert("disturbed rounds".to_owned(), disturbed);
        }
        if let Some(slowness) = slowness(&kept, best).filter(|slowness| *slowness > SLOWER) {
            let slower = if slowness.is_infinite() {
                "shared".to_owned()
            } else {
                format!("{:.0} % slower", 100.0 * (slowness - 1.0))
            };
            metadata.insert("machine".to_owned(), slower);
        }
        let clock = collected.clock.map(|clock| match clock {
            Clock::Op => "the executor's, of the op",
            Clock::Host => "the host's",
        });
        metadata.extend(clock.map(|clock| ("clock".to_owned(), clock.to_owned())));
        let phases = closest(&collected.phases, metrics.value());
        let cost = match task {
            Task::Op(workload) => workload.cost,
            Task::Model(_) => first.map(|first| first.cost).unwrap_or_default(),
            Task::Timer(_) => OpCost::default(),
        };
        let roofline = metrics.value().and_then(|value| roofline(limits, cost, value, better));
        self.measured.push(Measured {
            name: name.clone(),
            suite: *suite,
            metrics,
            rounds: samples(&rounds),
            cost,
            roofline,
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
        Task::Model(figure) if figure.is_throughput() => Better::Higher,
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

/// A median on the roofline: microseconds of a run, or runs per second.
fn roofline(limits: &Limits, cost: OpCost, value: f64, better: Better) -> Option<Roofline> {
    let seconds = match better {
        Better::Lower => value / 1e6,
        Better::Higher => 1.0 / value,
    };
    results::roofline(limits, cost, seconds)
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

/// A bar on stderr, where that is a terminal.
pub(crate) fn progress_bar(steps: usize) -> ProgressBar {
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
        let of = |samples: &[f64]| Round { samples: samples.to_vec(), control: None };
        let rounds = [of(&[10.0, 10.2]), of(&[15.0, 15.1]), of(&[10.3, 10.4]), of(&[])];
        let kept = undisturbed(&rounds, Better::Lower);
        assert_eq!(kept, [of(&[10.0, 10.2]), of(&[10.3, 10.4])]);
        let speeds = [of(&[50.0]), of(&[100.0]), of(&[99.0])];
        assert_eq!(undisturbed(&speeds, Better::Higher), [of(&[100.0]), of(&[99.0])]);
        assert!(undisturbed(&[], Better::Lower).is_empty());
    }

    #[test]
    fn a_best_round_that_no_other_confirms_is_as_noisy_as_they_are_far() {
        let of = |value: f64| Round { samples: vec![value; 3], control: None };
        let rounds = [of(20.0), of(10.0), of(14.0)];
        assert!((disagreement(&rounds, Better::Lower).unwrap() - 0.4).abs() < 1e-9);
        assert!((disagreement(&rounds, Better::Higher).unwrap() - 0.3).abs() < 1e-9);
        assert_eq!(disagreement(&rounds[..1], Better::Lower), None);
    }

    #[test]
    fn rounds_know_how_slow_the_machine_was() {
        let at = |core_us| Control { core_us, memory_us: 2.0 };
        let of = |least, most| {
            let control = Some(ControlRange { least: at(least), most: at(most), waited: 0.0 });
            Collected {
                rounds: vec![Round { samples: vec![1.0], control }],
                ..Collected::default()
            }
        };
        let collected = [of(1.0, 1.0), of(1.5, 2.0)];
        let best = best_control(&collected);
        assert_eq!(best, Some(at(1.0)));
        let slowness = slowness(&collected[1].rounds, best).unwrap();
        assert!((slowness - 2.0).abs() < 1e-9, "{slowness}");
    }
}
