//! A whole model: loading, prompts, time to first token, decode, memory.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rf_bench::{
    Target,
    contention::ContentionTimer,
    feeding::Feeder,
    model::ModelFile,
    model_metric::{DECODE_BATCHES, DECODE_TOKENS, ModelMetric},
};
use rf_engine::{EngineOptions, MemoryPlan};
use rf_graph::OpCost;
use rf_profile::{memory::ProcessMemory, ttft::TtftBreakdown};

use crate::{
    first_token::{self, FirstToken},
    interrupt::Interrupt,
    results::PhaseTime,
    sampling::Sampling,
};

/// Tokens of each sequence in a sample of decode speed.
const SAMPLE_TOKENS: usize = 16;

const MIB: f64 = 1024.0 * 1024.0;

/// What a figure came to in a round.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    /// In the figure's unit.
    pub(crate) samples: Vec<f64>,
    /// The cost of one token, if the metric counts tokens.
    pub(crate) cost: OpCost,
    /// Of the median sample.
    pub(crate) phases: Vec<PhaseTime>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// How a figure ended in a round.
#[derive(Debug)]
pub(crate) enum Outcome {
    Sampled(Sampled),
    Skipped(String),
}

/// Loads the model once and takes the samples of a round. `done` gets each metric with its outcome
/// and the contention of its samples.
pub(crate) fn round(
    file: &ModelFile,
    target: &Target,
    metrics: &[ModelMetric],
    sampling: &Sampling,
    interrupt: &Interrupt,
    done: &mut dyn FnMut(ModelMetric, Outcome, f64),
) -> Result<()> {
    let threads = target.threads().unwrap_or(1);
    if target.is_gpu() && metrics.contains(&ModelMetric::PeakMemory) {
        // The first model of a process makes the driver initialize and translate kernels.
        Loaded::new(file, target, metrics)?;
    }
    let loading = ContentionTimer::start();
    let mut model = Loaded::new(file, target, metrics)?;
    let loading = loading.fraction(threads);
    // Memory first: repetitions of other metrics do not add to it then.
    let is_memory = |metric: &&ModelMetric| **metric == ModelMetric::PeakMemory;
    let others = metrics.iter().filter(|metric| !is_memory(metric));
    for &metric in metrics.iter().filter(is_memory).chain(others) {
        if interrupt.requested() {
            break;
        }
        let contention = ContentionTimer::start();
        let outcome = model.measure(metric, metrics, sampling, interrupt);
        let outcome = outcome.with_context(|| format!("{} failed", metric.name()))?;
        let contention = match metric {
            ModelMetric::PeakMemory => 0.0,
            ModelMetric::Load => loading,
            _ => contention.fraction(threads),
        };
        done(metric, outcome, contention);
    }
    Ok(())
}

/// A model in memory, and what loading it took.
struct Loaded {
    feeder: Feeder,
    plan: MemoryPlan,
    load_time: Duration,
    /// Resident before it was loaded, where the system tells.
    rss_before_bytes: Option<u64>,
}

impl Loaded {
    fn new(file: &ModelFile, target: &Target, figures: &[ModelMetric]) -> Result<Self> {
        forget_peak();
        let rss_before_bytes = ProcessMemory::now().ok().map(|memory| memory.rss_bytes);
        let start = Instant::now();
        let model = file.open()?;
        let most = model.config().context_length;
        // The sequences of the largest batch share what the longest prompt needs: both have room in the same pages.
        let room = figures.iter().map(|figure| figure.context_tokens()).max().unwrap_or(1);
        let options =
            EngineOptions { context_tokens: Some(room.min(most)), ..EngineOptions::default() };
        let plan = model.memory_plan(&options)?;
        let sequences = DECODE_BATCHES.into_iter().max().unwrap_or(1);
        let feeder = Feeder::load(model, target.backend(), options, sequences)?;
        let load_time = start.elapsed();
        Ok(Self { feeder, plan, load_time, rss_before_bytes })
    }

    fn measure(
        &mut self,
        figure: ModelMetric,
        all: &[ModelMetric],
        sampling: &Sampling,
        interrupt: &Interrupt,
    ) -> Result<Outcome> {
        let context = self.feeder.engine.context_tokens();
        if figure.context_tokens() > context {
            let needed = figure.context_tokens();
            return Ok(Outcome::Skipped(format!(
                "needs a context of {needed} tokens, and the model has {context}"
            )));
        }
        let sampled = match figure {
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
                    Err(why) => return Ok(Outcome::Skipped(why)),
                }
            }
        };
        Ok(Outcome::Sampled(sampled))
    }

    fn prefill(
        &mut self,
        tokens: usize,
        sampling: &Sampling,
        interrupt: &Interrupt,
    ) -> Result<Sampled> {
        let feeder = &mut self.feeder;
        let seconds = sampling.take(interrupt, || {
            feeder.truncate(0);
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
    ) -> Result<Sampled> {
        let feeder = &mut self.feeder;
        feeder.truncate(0);
        let seconds = sampling.take(interrupt, || {
            if feeder.sessions[0].len() + SAMPLE_TOKENS > DECODE_TOKENS {
                feeder.truncate(0);
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
    ) -> Result<Sampled> {
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
        // Phases take one more run, and after Ctrl-C there is none.
        let phases = if interrupt.requested() { Vec::new() } else { first_token.phases(median)? };
        Ok(Sampled { samples, phases, ..Sampled::default() })
    }

    /// The cost of a token by the executor's profile, in a batch that is not timed. Zero if the
    /// executor has no profile.
    fn cost(
        &mut self,
        tokens: usize,
        run: impl FnOnce(&mut Feeder) -> Result<(), rf_engine::Error>,
    ) -> Result<OpCost> {
        self.feeder.truncate(0);
        if !self.feeder.engine.profile(true) {
            return Ok(OpCost::default());
        }
        run(&mut self.feeder)?;
        let summaries = self.feeder.engine.summaries();
        self.feeder.engine.profile(false);
        let ops = summaries.iter().flat_map(|summary| summary.ops.values());
        Ok(ops.map(|op| op.cost).sum::<OpCost>().per(tokens as u64))
    }

    /// Every prompt and every batch, one time: what there is to hold is held then.
    fn once(&mut self, figures: &[ModelMetric]) -> Result<()> {
        let context = self.feeder.engine.context_tokens();
        for figure in figures.iter().filter(|figure| figure.context_tokens() <= context) {
            self.feeder.truncate(0);
            match *figure {
                ModelMetric::Prefill(tokens) => self.feeder.prompt(0, tokens)?,
                ModelMetric::Decode(batch) => self.feeder.step(batch)?,
                ModelMetric::Load | ModelMetric::Ttft(_) | ModelMetric::PeakMemory => {}
            }
        }
        Ok(())
    }

    /// Plan beside actual, and what the process grew by.
    fn peak_memory(&self) -> Result<Sampled, String> {
        let now = ProcessMemory::now().map_err(|error| error.to_string())?;
        let before = self.rss_before_bytes.ok_or("what was resident before is not known")?;
        let peak = now.peak_rss_bytes.saturating_sub(before) as f64 / MIB;
        let held = self.feeder.engine.memory();
        let mib = |bytes: u64| format!("{:.2} MiB", bytes as f64 / MIB);
        let metadata = [
            ("planned weights", mib(self.plan.weights_bytes)),
            ("planned KV cache", mib(self.plan.kv_bytes)),
            ("planned buffers", mib(self.plan.buffers_bytes)),
            ("held weights", mib(held.weights_bytes)),
            ("held KV cache", mib(held.kv_bytes)),
            ("held buffers", mib(held.buffers_bytes)),
            ("planned", mib(self.plan.total_bytes())),
        ];
        let metadata = metadata.map(|(name, size)| (name.to_owned(), size)).into();
        Ok(Sampled { samples: vec![peak], metadata, ..Sampled::default() })
    }
}

/// Has Linux forget the most that was ever resident. Where it cannot, the peak is that of the whole run.
fn forget_peak() {
    drop(fs::write("/proc/self/clear_refs", "5"));
}
