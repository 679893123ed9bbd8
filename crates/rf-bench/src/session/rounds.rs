//! Rounds over all benchmarks.

use std::path::Path;
use std::time::{Duration, Instant};

use rf_profile::baseline::Hardware;
use rf_profile::monitor::{self, Monitor, MonitorRecord};
use rf_profile::roofline::MachineLimits;

use super::inference;
use super::samples::{Round, Samples};
use super::sampling::Sampling;
use crate::contention::ContentionTimer;
use crate::model::IdentifiedModel;
use crate::model_metric::ModelMetric;
use crate::plan::{BenchmarkKind, BenchmarkPlan};
use crate::timers::{self, Timer};
use crate::{Clock, Error, Interrupt, MeasurementProgress, Target, Workload};

/// Interval between samples of the state of the GPUs.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// The benchmarks, the machine and the settings of a measurement in rounds.
#[derive(Debug)]
pub struct MeasurementSession<'a> {
    /// The checkout, whose revision names the build.
    pub root: &'a Path,
    /// The measured target.
    pub target: &'a Target,
    /// The hardware of the target.
    pub hardware: &'a Hardware,
    /// Roofline limits of the target.
    pub limits: &'a MachineLimits,
    /// The benchmarks.
    pub plan: &'a BenchmarkPlan,
    /// The model; needed if the plan has a metric of it.
    pub model: Option<&'a IdentifiedModel>,
    /// True if samples take less time and rounds end after a time budget.
    pub quick: bool,
    /// Rounds over all benchmarks; `None` for the default. A number lifts the time budget.
    pub rounds: Option<usize>,
    /// Monitor of the GPUs while the model runs.
    pub monitor: Option<Monitor>,
}

/// Takes the samples of a session, round by round.
pub(super) struct Sampler<'a> {
    session: &'a MeasurementSession<'a>,
    sampling: Sampling,
    interrupt: &'a Interrupt,
    /// Samples by index of the benchmark in the plan.
    pub(super) samples: Vec<Samples>,
    /// State of the GPUs while the model ran.
    pub(super) watched: Vec<MonitorRecord>,
    /// Rounds so far.
    pub(super) rounds: usize,
    /// Rounds that the time budget left out.
    pub(super) omitted_rounds: usize,
}

impl<'a> Sampler<'a> {
    pub(super) fn new(session: &'a MeasurementSession<'a>, interrupt: &'a Interrupt) -> Self {
        Self {
            session,
            sampling: Sampling::new(session.quick, session.rounds),
            interrupt,
            samples: session.plan.benchmarks.iter().map(|_| Samples::default()).collect(),
            watched: Vec::new(),
            rounds: 0,
            omitted_rounds: 0,
        }
    }

    /// Measures every benchmark of the plan once per round. After an error or an interrupt the
    /// samples so far are complete.
    pub(super) fn run(
        &mut self,
        progress: &mut dyn FnMut(MeasurementProgress<'_>),
    ) -> Result<(), Error> {
        let start = Instant::now();
        let rounds = self.sampling.rounds;
        let end = self.sampling.budget.map(|budget| start + budget);
        while self.rounds < rounds && !self.interrupt.is_requested() {
            let each = start.elapsed() / (self.rounds as u32).max(1);
            if self.rounds > 0 && end.is_some_and(|end| Instant::now() + each > end) {
                self.omitted_rounds = rounds - self.rounds;
                break;
            }
            self.round(&format!("round {}/{rounds}", self.rounds + 1), progress)?;
            self.rounds += 1;
        }
        Ok(())
    }

    /// Measures the benchmarks of a round. The model is first, because memory that other benchmarks
    /// leave in the process would hide its growth.
    fn round(
        &mut self,
        stage: &str,
        progress: &mut dyn FnMut(MeasurementProgress<'_>),
    ) -> Result<(), Error> {
        let places = self.places();
        let mut done = 0;
        let mut show = |done: usize, step: &str| {
            progress(MeasurementProgress { stage, done, total: places.len(), step });
        };
        let metrics: Vec<(usize, ModelMetric)> = places
            .iter()
            .filter_map(|&place| match self.session.plan.benchmarks[place].kind {
                BenchmarkKind::Model(metric) => Some((place, metric)),
                _ => None,
            })
            .collect();
        if let Some(model) = self.session.model.filter(|_| !metrics.is_empty()) {
            show(done, &model.file.name());
            let samples = &mut self.samples;
            let mut add = |metric: ModelMetric, outcome, contention| {
                done += 1;
                show(done, &metric.name());
                if let Some((place, _)) = metrics.iter().find(|(_, one)| *one == metric) {
                    samples[*place].add(outcome, contention);
                }
            };
            let due: Vec<ModelMetric> = metrics.iter().map(|(_, metric)| *metric).collect();
            let (target, sampling) = (self.session.target, &self.sampling);
            let monitor = self.session.monitor.clone();
            let watching = monitor.map(|monitor| monitor.start(WATCH_INTERVAL));
            let outcome =
                inference::round(&model.file, target, &due, sampling, self.interrupt, &mut add);
            self.watched.extend(watching.map(monitor::Sampling::stop));
            outcome?;
        }
        for &place in &places {
            if self.interrupt.is_requested() {
                break;
            }
            let benchmark = &self.session.plan.benchmarks[place];
            if let BenchmarkKind::Model(_) = benchmark.kind {
                continue;
            }
            show(done, &benchmark.name);
            match &benchmark.kind {
                BenchmarkKind::Op(workload) => self.op(place, workload)?,
                BenchmarkKind::Timer(timer) => self.timer(place, *timer)?,
                BenchmarkKind::Model(_) => {}
            }
            done += 1;
        }
        Ok(())
    }

    /// The indices of the benchmarks that a round measures.
    fn places(&self) -> Vec<usize> {
        let benchmarks = &self.session.plan.benchmarks;
        let is_due = |place: &usize| {
            // A process grows in the first round only.
            let is_once =
                matches!(benchmarks[*place].kind, BenchmarkKind::Model(ModelMetric::PeakMemory));
            self.samples[*place].skipped.is_none() && !(is_once && self.rounds > 0)
        };
        (0..benchmarks.len()).filter(is_due).collect()
    }

    /// Takes the samples of one round of an op, or records why the target does not support it.
    fn op(&mut self, place: usize, workload: &Workload) -> Result<(), Error> {
        let target = self.session.target;
        let samples = &mut self.samples[place];
        let mut prepared = match workload.prepare(target) {
            Ok(prepared) => prepared,
            Err(error @ (Error::Unsupported(_) | Error::OutOfMemory { .. })) => {
                samples.skipped = Some(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error.of(&workload.name)),
        };
        samples.clock = Some(prepared.clock());
        let is_of_device = target.is_gpu() && prepared.clock() == Clock::Op;
        let contention = ContentionTimer::start();
        let seconds = self.sampling.take(self.interrupt, || prepared.run());
        let is_single = workload.is_single_threaded();
        let threads = if is_single { 1 } else { target.threads().unwrap_or(1) };
        let contention = if is_of_device { 0.0 } else { contention.fraction(threads) };
        let seconds = seconds.map_err(|error| error.of(&workload.name))?;
        samples.rounds.push(Round {
            samples: seconds.iter().map(|seconds| 1e6 * seconds).collect(),
            contention,
        });
        Ok(())
    }

    /// Takes the samples of one round of a timer.
    fn timer(&mut self, place: usize, timer: Timer) -> Result<(), Error> {
        let contention = ContentionTimer::start();
        let seconds = self.sampling.take(self.interrupt, || Ok(timer.run()))?;
        let contention = contention.fraction(1);
        let count = f64::from(timers::COUNT);
        let samples = seconds.iter().map(|seconds| 1e6 * seconds / count).collect();
        self.samples[place].rounds.push(Round { samples, contention });
        Ok(())
    }
}
