//! Evaluation of the samples of all rounds.

use rf_oracle::rf_graph::OpCost;
use rf_profile::baseline::{Better, CONTENTION, Metrics};
use rf_profile::monitor::MonitorRecord;
use rf_profile::roofline::{MachineLimits, Roofline};

use super::samples::Samples;
use crate::Clock;
use crate::contention::HIGH_CONTENTION;
use crate::plan::{Benchmark, BenchmarkKind};
use crate::results::{self, GpuWatch, Measured, PhaseTime, Run, Skipped};

/// Adds the result of a benchmark to a run, or the reason why there is none.
pub(super) fn add(run: &mut Run, benchmark: &Benchmark, samples: &Samples) {
    let Benchmark { name, suite, kind } = benchmark;
    if let Some(why) = samples.skipped.clone() {
        run.skipped.push(Skipped { name: name.clone(), suite: *suite, why });
        return;
    }
    let better = better(kind);
    let measured = || samples.rounds.iter().filter(|round| !round.samples.is_empty());
    let rounds: Vec<Vec<f64>> = measured().map(|round| round.samples.clone()).collect();
    let Ok(metrics) = Metrics::from_rounds(unit(kind), better, &rounds) else {
        run.missing.push(name.clone());
        return;
    };
    let first = samples.first.as_ref();
    let mut metadata = first.map(|first| first.metadata.clone()).unwrap_or_default();
    let contention = measured().map(|round| round.contention).sum::<f64>() / rounds.len() as f64;
    if contention > HIGH_CONTENTION {
        metadata.insert(CONTENTION.to_owned(), format!("{:.0} %", 100.0 * contention));
    }
    let clock = samples.clock.map(|clock| match clock {
        Clock::Op => "executor, per op",
        Clock::Host => "host",
    });
    metadata.extend(clock.map(|clock| ("clock".to_owned(), clock.to_owned())));
    let phases = closest(&samples.phases, metrics.value());
    let cost = match kind {
        BenchmarkKind::Op(workload) => workload.cost,
        BenchmarkKind::Model(_) => first.map(|first| first.cost).unwrap_or_default(),
        BenchmarkKind::Timer(_) => OpCost::default(),
    };
    let roofline = metrics.value().and_then(|value| roofline(&run.limits, cost, value, better));
    run.results.push(Measured {
        name: name.clone(),
        suite: *suite,
        metrics,
        rounds,
        cost,
        roofline,
        phases,
        metadata,
    });
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
fn roofline(limits: &MachineLimits, cost: OpCost, value: f64, better: Better) -> Option<Roofline> {
    let seconds = match better {
        Better::Lower => value / 1e6,
        Better::Higher => 1.0 / value,
    };
    results::roofline(limits, cost, seconds)
}

/// Summarizes the samples of all rounds for each GPU.
pub(super) fn watches(records: &[MonitorRecord]) -> Vec<GpuWatch> {
    let Some(first) = records.first() else { return Vec::new() };
    let samples = records.iter().flat_map(|record| record.samples.iter().cloned()).collect();
    let all = MonitorRecord { samples, ..first.clone() };
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
