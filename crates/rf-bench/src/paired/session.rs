//! The order of a paired comparison: passes, workloads, blocks.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rf_profile::baseline::Verdict;
use rf_profile::stats::Summary;
use serde::Serialize;

use super::process::WorkerProcess;
use super::protocol::{Slice, VERSION, WorkerSettings};
use super::statistics::{self, Estimate, PairedBlock, Pass};
use crate::contention::HIGH_CONTENTION;
use crate::{Error, Interrupt, MeasurementProgress};

/// Duration of a slice.
const SLICE: Duration = Duration::from_millis(2);

/// Duration of the slices of a workload in a pass, both sides together.
const PASS: Duration = Duration::from_millis(500);

/// The note of workloads that an interrupt left without a verdict.
const INTERRUPTED: &str = "interrupted";

/// One side of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The program, which has the subcommand `worker`.
    pub program: PathBuf,
    /// The name in reports: a revision or a path.
    pub label: String,
    /// The backend, as the worker describes it.
    pub backend: String,
}

/// The two sides of a comparison.
#[derive(Clone, Debug)]
pub struct PairedPlan {
    /// The side that is compared against.
    pub base: Side,
    /// This build.
    pub head: Side,
    /// The target of both sides.
    pub settings: WorkerSettings,
    /// Names of the workloads.
    pub workloads: Vec<String>,
    /// Change that counts: 0.025 is 2.5 %.
    pub threshold: f64,
    /// Time for all passes. A pass that has begun ends early when the time is over.
    pub budget: Duration,
}

/// The result of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct PairedResult {
    /// The workload.
    pub name: String,
    /// The verdict; `Missing` where a side does not support the workload, or nothing was measured.
    pub verdict: Verdict,
    /// Median time of a run on the base side, in nanoseconds.
    pub base_ns: Option<f64>,
    /// Median time of a run of this build, in nanoseconds.
    pub head_ns: Option<f64>,
    /// The ratio and its intervals.
    pub estimate: Option<Estimate>,
    /// Mean contention of all slices.
    pub contention: f64,
    /// The reason of the verdict, where it needs one.
    pub note: String,
    /// Values of all slices.
    pub passes: Vec<Pass>,
}

/// The result of a paired comparison.
#[derive(Clone, Debug, Serialize)]
pub struct PairedComparison {
    /// The side that is compared against.
    pub base: Side,
    /// This build.
    pub head: Side,
    /// Change that counts.
    pub threshold: f64,
    /// Passes over the workloads.
    pub passes: usize,
    /// Elapsed time.
    pub elapsed_s: f64,
    /// One row per workload, in the order of the plan.
    pub rows: Vec<PairedResult>,
}

/// A workload under comparison.
#[derive(Default)]
struct Entry {
    passes: Vec<Pass>,
    contention: Vec<f64>,
    unsupported: Option<String>,
    estimate: Option<Estimate>,
    verdict: Option<Verdict>,
}

/// Compares two builds until every workload has a verdict, the budget is spent, or the
/// interrupt is requested.
///
/// # Errors
///
/// [`Error::Worker`] where a side cannot be started, fails, or does not have this version of the
/// protocol. [`Error::Interrupted`] after an urgent interrupt: the workers are killed.
pub fn compare(
    plan: &PairedPlan,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(MeasurementProgress<'_>),
) -> Result<PairedComparison, Error> {
    let start = Instant::now();
    let mut sides = (plan.base.clone(), plan.head.clone());
    let mut entries: Vec<Entry> = plan.workloads.iter().map(|_| Entry::default()).collect();
    let is_over = || interrupt.is_requested() || start.elapsed() >= plan.budget;
    let mut pass = 0;
    while !is_over() {
        let undecided = |&place: &usize| entries[place].is_undecided();
        let mut places: Vec<usize> = (0..entries.len()).filter(undecided).collect();
        if places.is_empty() {
            break;
        }
        // Where the budget ends a pass, not always the same workloads miss it.
        if pass % 2 == 1 {
            places.reverse();
        }
        pass += 1;
        let stage = format!("pass {pass}");
        let (mut base, mut head) = start_pair(plan, &mut sides, pass, interrupt)?;
        for (done, &place) in places.iter().enumerate() {
            if is_over() {
                break;
            }
            let name = &plan.workloads[place];
            progress(MeasurementProgress { stage: &stage, done, total: places.len(), step: name });
            let entry = &mut entries[place];
            measure(&mut base, &mut head, name, entry, interrupt).map_err(|e| e.of(name))?;
            entry.judge(plan);
        }
    }
    let end = if interrupt.is_requested() { INTERRUPTED } else { "the time was over" };
    let rows = plan.workloads.iter().zip(entries).map(|(name, entry)| entry.row(name, end));
    Ok(PairedComparison {
        rows: rows.collect(),
        base: sides.0,
        head: sides.1,
        threshold: plan.threshold,
        passes: pass,
        elapsed_s: start.elapsed().as_secs_f64(),
    })
}

/// Starts the workers of a pass, alternating which side starts first.
fn start_pair(
    plan: &PairedPlan,
    sides: &mut (Side, Side),
    pass: usize,
    interrupt: &Interrupt,
) -> Result<(WorkerProcess, WorkerProcess), Error> {
    let settings = WorkerSettings { version: VERSION, ..plan.settings.clone() };
    let start = |side: &mut Side| {
        let (worker, backend) = WorkerProcess::start(&side.program, &settings, interrupt)?;
        side.backend = backend;
        Ok::<_, Error>(worker)
    };
    if pass % 2 == 1 {
        let base = start(&mut sides.0)?;
        Ok((base, start(&mut sides.1)?))
    } else {
        let head = start(&mut sides.1)?;
        Ok((start(&mut sides.0)?, head))
    }
}

/// Measures a workload in one pass. An interrupted pass is discarded.
fn measure(
    base: &mut WorkerProcess,
    head: &mut WorkerProcess,
    name: &str,
    entry: &mut Entry,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let run = match (base.prepare(name)?, head.prepare(name)?) {
        (Ok(base), Ok(head)) => base.max(head),
        (Err(base), Err(head)) if base == head => {
            entry.unsupported = Some(head);
            return Ok(());
        }
        (Err(reason), _) => {
            entry.unsupported = Some(format!("base: {reason}"));
            return Ok(());
        }
        (_, Err(reason)) => {
            entry.unsupported = Some(format!("head: {reason}"));
            return Ok(());
        }
    };
    let count = (PASS.as_secs_f64() / (4.0 * SLICE.max(run).as_secs_f64())) as usize;
    let mut pass = Pass::default();
    for i in 0..count.clamp(3, 48) {
        if interrupt.is_requested() {
            return Ok(());
        }
        let mut slice = |worker: &mut WorkerProcess| {
            let slice = worker.slice(SLICE)?;
            entry.contention.push(slice.contention);
            Ok::<_, Error>(fastest(&slice))
        };
        let block = if (i + entry.passes.len()).is_multiple_of(2) {
            let (a, b, c, d) = (slice(base)?, slice(head)?, slice(head)?, slice(base)?);
            PairedBlock { base: [a, d], head: [b, c] }
        } else {
            let (a, b, c, d) = (slice(head)?, slice(base)?, slice(base)?, slice(head)?);
            PairedBlock { base: [b, c], head: [a, d] }
        };
        pass.blocks.push(block);
    }
    entry.passes.push(pass);
    Ok(())
}

fn fastest(slice: &Slice) -> f64 {
    slice.samples_ns.iter().copied().fold(f64::INFINITY, f64::min)
}

impl Entry {
    fn is_undecided(&self) -> bool {
        self.verdict.is_none() && self.unsupported.is_none()
    }

    fn judge(&mut self, plan: &PairedPlan) {
        self.estimate = statistics::estimate(&self.passes, plan.workloads.len());
        let passes = self.passes.len();
        self.verdict = self
            .estimate
            .and_then(|estimate| statistics::verdict(&estimate, passes, plan.threshold));
    }

    /// The result, where `end` is the reason why the comparison ended.
    fn row(self, name: &str, end: &str) -> PairedResult {
        let mean = |values: &[f64]| Summary::of(values).map_or(0.0, |summary| summary.mean);
        let contention = mean(&self.contention);
        let (verdict, note) = match (self.unsupported, self.verdict) {
            (Some(reason), _) => (Verdict::Missing, reason),
            (None, Some(verdict)) => (verdict, String::new()),
            (None, None) if self.passes.is_empty() => {
                (Verdict::Missing, format!("not measured: {end}"))
            }
            (None, None) if end == INTERRUPTED => (Verdict::Inconclusive, end.to_owned()),
            (None, None) if contention > HIGH_CONTENTION => {
                (Verdict::Inconclusive, "CPU contention".to_owned())
            }
            (None, None) => (Verdict::Inconclusive, "noise".to_owned()),
        };
        let (base_ns, head_ns) = statistics::times(&self.passes).unzip();
        PairedResult {
            name: name.to_owned(),
            verdict,
            base_ns,
            head_ns,
            estimate: self.estimate,
            contention,
            note,
            passes: self.passes,
        }
    }
}

impl PairedComparison {
    /// The number of workloads with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// The exit code of programs: 1 with a regression, else 3 with an inconclusive workload, else
    /// 0.
    pub fn exit_code(&self) -> u8 {
        if self.count(Verdict::Regression) > 0 {
            1
        } else if self.count(Verdict::Inconclusive) > 0 {
            3
        } else {
            0
        }
    }
}
