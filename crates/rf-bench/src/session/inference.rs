//! Measurements of a whole model: load, prefill, TTFT, decode, memory.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rf_profile::memory::ProcessMemory;
use rf_profile::ttft::TtftBreakdown;
use rocmforge::engine::{self, MemoryNeed, OpCost, SyntheticFeeder};

use super::first_token::{self, FirstToken};
use super::sampling::Sampling;
use crate::contention::ContentionTimer;
use crate::model::ModelFile;
use crate::model_metric::{DECODE_BATCHES, DECODE_TOKENS, ModelMetric};
use crate::results::PhaseTime;
use crate::{Error, Interrupt, Target};

/// Decode steps in one sample of decode throughput.
const SAMPLE_TOKENS: usize = 16;

const MIB: f64 = 1024.0 * 1024.0;

/// The samples of a metric in one round.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    /// Samples in the unit of the metric.
    pub(super) samples: Vec<f64>,
    /// Cost of one token; zero for metrics that do not count tokens.
    pub(super) cost: OpCost,
    /// Phases of the median sample; empty except for TTFT.
    pub(super) phases: Vec<PhaseTime>,
    /// Further values for the report, such as the memory plan.
    pub(super) metadata: BTreeMap<String, String>,
}

/// The outcome of a metric in one round.
#[derive(Debug)]
pub(super) enum MetricOutcome {
    Sampled(Sampled),
    /// The metric is not supported here, with the reason.
    Skipped(String),
}

/// Loads the model once and takes the samples of a round. `done` receives each metric with its
/// outcome and the CPU contention of its samples, as a fraction.
pub(super) fn round(
    file: &ModelFile,
    target: &Target,
    metrics: &[ModelMetric],
    sampling: &Sampling,
    interrupt: &Interrupt,
    done: &mut dyn FnMut(ModelMetric, MetricOutcome, f64),
) -> Result<(), Error> {
    let threads = target.threads().unwrap_or(1);
    if target.is_gpu() && metrics.contains(&ModelMetric::PeakMemory) {
        // Warm-up: the driver initializes and translates kernels for the first model of a process.
        Loaded::new(file, target, metrics)?;
    }
    let loading = ContentionTimer::start();
    let mut model = Loaded::new(file, target, metrics)?;
    let loading = loading.fraction(threads);
    // Memory first: repetitions of other metrics would add to it.
    let is_memory = |metric: &&ModelMetric| **metric == ModelMetric::PeakMemory;
    let others = metrics.iter().filter(|metric| !is_memory(metric));
    for &metric in metrics.iter().filter(is_memory).chain(others) {
        if interrupt.is_requested() {
            break;
        }
        let contention = ContentionTimer::start();
        let outcome = model.measure(metric, metrics, sampling, interrupt);
        let outcome = outcome.map_err(|error| error.of(&metric.name()))?;
        let contention = match metric {
            ModelMetric::PeakMemory => 0.0,
            ModelMetric::Load => loading,
            _ => contention.fraction(threads),
        };
        done(metric, outcome, contention);
    }
    Ok(())
}

/// A loaded model with its load time and memory plan.
struct Loaded {
    feeder: SyntheticFeeder,
    need: MemoryNeed,
    load_time: Duration,
    /// Resident memory before the load; `None` where the system does not report it.
    rss_before_bytes: Option<u64>,
}

impl Loaded {
    fn new(file: &ModelFile, target: &Target, metrics: &[ModelMetric]) -> Result<Self, Error> {
        reset_peak_rss();
        let rss_before_bytes = ProcessMemory::now().ok().map(|memory| memory.rss_bytes);
        let start = Instant::now();
        let open = file.loader().open(&mut |_| ())?;
        let most = open.model().config().context_length;
        // The longest prompt and the largest decode batch use the same pages, at different times.
        let room = metrics.iter().map(|metric| metric.context_tokens()).max().unwrap_or(1);
        let sequences = DECODE_BATCHES.into_iter().max().unwrap_or(1);
        let tokens = room.min(most);
        let open = open
            .with(|loader| loader.context_tokens(tokens).kv_tokens(tokens).sequences(sequences));
        let engine = open.load_on_backend(target.backend(), &mut |_| ())?.engine;
        let need = engine.memory_need();
        let feeder = SyntheticFeeder::new(engine, sequences);
        let load_time = start.elapsed();
        Ok(Self { feeder, need, load_time, rss_before_bytes })
    }

    fn measure(
        &mut self,
        metric: ModelMetric,
        all: &[ModelMetric],
        sampling: &Sampling,
        interrupt: &Interrupt,
    ) -> Result<MetricOutcome, Error> {
        let context = self.feeder.engine.context_tokens();
        if metric.context_tokens() > context {
            let needed = metric.context_tokens();
            return Ok(MetricOutcome::Skipped(format!(
                "needs a context of {needed} tokens, and the model has {context}"
            )));
        }
        let sampled = match metric {
            ModelMetric::Load => {
                Sampled { samples: vec![1e3 * self.load_time.as_secs_f64()], ..Sampled::default() }
            }
            ModelMetric::Prefill(tokens) => self.prefill(tokens, sampling, interrupt)?,
            ModelMetric::Ttft(tokens) => self.ttft(tokens, sampling, interrupt)?,
            ModelMetric::Decode(batch) => self.decode(batch, sampling, interrupt)?,
            ModelMetric::PeakMemory => {
                self.once(all)?;
                match self.peak_memory() {
                    Ok(sampled) => sampled,
                    Err(why) => return Ok(MetricOutcome::Skipped(why)),
                }
            }
        };
        Ok(MetricOutcome::Sampled(sampled))
    }

    fn prefill(
        &mut self,
        tokens: usize,
        sampling: &Sampling,
        interrupt: &Interrupt,
    ) -> Result<Sampled, Error> {
        let feeder = &mut self.feeder;
        let seconds = sampling.take(interrupt, || {
            feeder.truncate(0)?;
            let start = Instant::now();
            feeder.prompt(0, tokens)?;
            Ok(start.elapsed())
        })?;
        let cost = self.cost(tokens, |feeder| feeder.prompt(0, tokens))?;
        let samples = seconds.iter().map(|seconds| tokens as f64 / seconds).collect();
        Ok(Sampled { samples, cost, ..Sampled::default() })
    }

    fn decode(
        &mut self,
        batch: usize,
        sampling: &Sampling,
        interrupt: &Interrupt,
    ) -> Result<Sampled, Error> {
        let feeder = &mut self.feeder;
        feeder.truncate(0)?;
        let seconds = sampling.take(interrupt, || {
            if feeder.sessions[0].len() + SAMPLE_TOKENS > DECODE_TOKENS {
                feeder.truncate(0)?;
            }
            let start = Instant::now();
            for _ in 0..SAMPLE_TOKENS {
                feeder.step(batch)?;
            }
            Ok(start.elapsed())
        })?;
        let tokens = (batch * SAMPLE_TOKENS) as f64;
        let cost = self.cost(batch, |feeder| feeder.step(batch))?;
        let samples = seconds.iter().map(|seconds| tokens / seconds).collect();
        Ok(Sampled { samples, cost, ..Sampled::default() })
    }

    fn ttft(
        &mut self,
        tokens: usize,
        sampling: &Sampling,
        interrupt: &Interrupt,
    ) -> Result<Sampled, Error> {
        let mut first_token = FirstToken::new(&mut self.feeder, tokens)?;
        let mut breakdowns = Vec::new();
        let seconds = sampling.take(interrupt, || {
            let breakdown = first_token.run()?;
            let total = first_token::total(&breakdown)?;
            breakdowns.push(breakdown);
            Ok(total)
        })?;
        breakdowns.sort_by_key(TtftBreakdown::total);
        let median = breakdowns.swap_remove(breakdowns.len() / 2);
        let samples = seconds.iter().map(|seconds| 1e3 * seconds).collect();
        // Phases need one more run, which Ctrl-C prevents.
        let phases =
            if interrupt.is_requested() { Vec::new() } else { first_token.phases(median)? };
        Ok(Sampled { samples, phases, ..Sampled::default() })
    }

    /// Cost of one token from the profile of the executor, taken in an untimed run of `tokens`
    /// tokens. Zero if the executor has no profile.
    fn cost(
        &mut self,
        tokens: usize,
        run: impl FnOnce(&mut SyntheticFeeder) -> Result<(), engine::Error>,
    ) -> Result<OpCost, Error> {
        self.feeder.truncate(0)?;
        if !self.feeder.engine.profile(true) {
            return Ok(OpCost::default());
        }
        run(&mut self.feeder)?;
        let summaries = self.feeder.engine.summaries();
        self.feeder.engine.profile(false);
        let ops = summaries.iter().flat_map(|summary| summary.ops.values());
        Ok(ops.map(|op| op.cost).sum::<OpCost>().per(tokens as u64))
    }

    /// Runs every prompt and every batch once, so that all memory is allocated and touched.
    fn once(&mut self, metrics: &[ModelMetric]) -> Result<(), Error> {
        let context = self.feeder.engine.context_tokens();
        for metric in metrics.iter().filter(|metric| metric.context_tokens() <= context) {
            self.feeder.truncate(0)?;
            match *metric {
                ModelMetric::Prefill(tokens) => self.feeder.prompt(0, tokens)?,
                ModelMetric::Decode(batch) => self.feeder.step(batch)?,
                ModelMetric::Load | ModelMetric::Ttft(_) | ModelMetric::PeakMemory => {}
            }
        }
        Ok(())
    }

    /// Peak growth of the resident memory in MiB, with planned and held sizes as metadata.
    fn peak_memory(&self) -> Result<Sampled, String> {
        let now = ProcessMemory::now().map_err(|error| error.to_string())?;
        let before =
            self.rss_before_bytes.ok_or("the resident memory before the load is not known")?;
        let peak = now.peak_rss_bytes.saturating_sub(before) as f64 / MIB;
        let held = self.feeder.engine.memory();
        let mib = |bytes: u64| format!("{:.2} MiB", bytes as f64 / MIB);
        let metadata = [
            ("planned weights", mib(self.need.held.weights_bytes)),
            ("planned KV cache", mib(self.need.held.kv_bytes)),
            ("planned recurrent states", mib(self.need.held.states_bytes)),
            ("planned buffers", mib(self.need.held.buffers_bytes)),
            ("held weights", mib(held.weights_bytes)),
            ("held KV cache", mib(held.kv_bytes)),
            ("held recurrent states", mib(held.states_bytes)),
            ("held buffers", mib(held.buffers_bytes)),
            ("planned", mib(self.need.total_bytes())),
        ];
        let metadata = metadata.map(|(name, size)| (name.to_owned(), size)).into();
        Ok(Sampled { samples: vec![peak], metadata, ..Sampled::default() })
    }
}

/// Resets the peak resident memory of this process on Linux. If that fails, the peak is the one of
/// the whole run.
fn reset_peak_rss() {
    drop(fs::write("/proc/self/clear_refs", "5"));
}
