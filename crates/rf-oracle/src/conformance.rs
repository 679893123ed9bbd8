//! Conformance: the results of every backend agree with [`ReferenceBackend`] within a bound.
//!
//! [`check`] runs a [`Case`] on the reference as it is written, and on a backend both unfused and
//! in every fused form that the backend supports. It compares the results within the
//! [`ErrorBound`] of the case. The table is [`cases`](crate::case::cases).
//!
//! ```
//! use rf_oracle::ReferenceBackend;
//! use rf_oracle::case::cases;
//! use rf_oracle::conformance::{CaseOutcome, check};
//!
//! let case = cases().into_iter().find(|case| case.name() == "add").unwrap();
//! assert!(matches!(check(&ReferenceBackend, &case), Ok(CaseOutcome::Passed { .. })));
//! ```

use std::fmt;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use rf_graph::{
    Backend, BackendError, Batch, Collective, Fusions, Graph, KvType, Member, Op, Output, Program,
    Projection, QueuedRows, QueuedSummands, fuse,
};
use rf_quant::DType;

use crate::case::{Case, CaseBatch, ErrorBound};
use crate::reference::ReferenceBackend;

/// Runs a case on a backend.
///
/// # Errors
///
/// If a result exceeds the bound of the case, or the backend fails.
pub fn check(backend: &dyn Backend, case: &Case) -> Result<CaseOutcome, Mismatch> {
    prepare(case)?.check(backend)
}

/// Runs a case on the reference. Several backends can then be checked against the result.
///
/// # Errors
///
/// If the reference does not support the case.
pub fn prepare(case: &Case) -> Result<Prepared<'_>, Mismatch> {
    let program = case.program();
    let expected = run(&ReferenceBackend, copy(&program, program.graph.clone()), case.batches())
        .map_err(|source| failed(case, Fusions::NONE, source))?;
    Ok(Prepared { case, program, expected })
}

/// Runs `run` for every case, the cases dealt to all processors. Returns the results in the order
/// of the cases. The reference takes most of the time of a conformance test and uses one thread.
pub fn for_all<'a, T: Send>(cases: &'a [Case], run: impl Fn(&'a Case) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        while let Some((i, case)) = cases.iter().enumerate().nth(next.fetch_add(1, Relaxed)) {
            results.push((i, run(case)));
        }
        results
    };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |worker: ScopedJoinHandle<'_, _>| match worker.join() {
            Ok(results) => results,
            // The assertion of a test.
            Err(panic) => resume_unwind(panic),
        };
        workers.into_iter().flat_map(join).collect()
    });
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}

/// A case with the results of the reference.
pub struct Prepared<'a> {
    case: &'a Case,
    program: Program,
    expected: Vec<Vec<f32>>,
}

impl Prepared<'_> {
    /// Checks a backend against the results of the reference.
    ///
    /// # Errors
    ///
    /// If a result exceeds the bound of the case, or the backend fails.
    pub fn check(&self, backend: &dyn Backend) -> Result<CaseOutcome, Mismatch> {
        self.check_forms(backend, &backend.fusions().subsets())
    }

    /// Checks a backend with these fusions only; [`Self::check`] takes none, each one alone, and
    /// all.
    ///
    /// # Errors
    ///
    /// If a result exceeds the bound of the case, or the backend fails.
    pub fn check_forms(
        &self,
        backend: &dyn Backend,
        forms: &[Fusions],
    ) -> Result<CaseOutcome, Mismatch> {
        let case = self.case;
        let rounds = backend.rounds_operands_to_f16() && has_f16_operands(&self.program);
        let bound = if rounds { case.bound().with_f16_operands() } else { case.bound() };
        let mut worst = Deviation::default();
        let mut outputs = Vec::new();
        let mut graphs: Vec<Graph> = Vec::new();
        for &fusions in forms {
            let graph = fuse(self.program.graph.clone(), fusions);
            if graphs.contains(&graph) {
                continue;
            }
            graphs.push(graph.clone());
            let program = copy(&self.program, graph);
            let actual = match run(backend, program, case.batches()) {
                Ok(actual) => actual,
                Err(BackendError::Unsupported { backend, what }) => {
                    return Ok(CaseOutcome::Skipped(format!("{backend} cannot run {what}")));
                }
                Err(source) => return Err(failed(case, fusions, source)),
            };
            let deviation = Deviation::between(&actual, &self.expected);
            if !deviation.is_within(bound) {
                let case = case.name().to_owned();
                let fusions = Box::new(fusions);
                return Err(Mismatch::Deviates { case, fusions, deviation, bound });
            }
            worst = worst.max(deviation);
            outputs.extend(actual);
        }
        Ok(CaseOutcome::Passed { deviation: worst, bound, outputs })
    }
}

/// Returns true if a backend may round a left operand of the program to f16: of matmuls with
/// weights of 16 bits, and of attention over a cache that is not f32.
fn has_f16_operands(program: &Program) -> bool {
    let graph = &program.graph;
    graph.ops().iter().any(|op| match op {
        Op::MatMul(m) => {
            let dtype = |p: &Projection| graph.weight(p.weight).dtype;
            m.projections.iter().map(dtype).any(|d| matches!(d, DType::F16 | DType::Bf16))
        }
        Op::Attention { attention, .. } => {
            attention.latent_dim.is_none() && program.kv.dtype != KvType::F32
        }
        _ => false,
    })
}

/// A program with another graph over the same weights.
fn copy(program: &Program, graph: Graph) -> Program {
    Program { graph, weights: program.weights.clone(), kv: program.kv.clone(), ..*program }
}

fn failed(case: &Case, fusions: Fusions, source: BackendError) -> Mismatch {
    let (fusions, source) = (Box::new(fusions), Box::new(source));
    Mismatch::Failed { case: case.name().to_owned(), fusions, source }
}

/// Runs all batches on one compiled program and returns the outputs by batch.
fn run(
    backend: &dyn Backend,
    program: Program,
    batches: &[CaseBatch],
) -> Result<Vec<Vec<f32>>, BackendError> {
    let output = program.graph.value(program.graph.output());
    let has_sums = program.graph.ops().iter().any(|op| matches!(op, Op::AllReduce { .. }));
    let mut executor = backend.compile(program, &mut |_| ())?;
    if has_sums {
        executor.join(Member { collective: Arc::new(EqualParts), part: 1 })?;
    }
    let mut forward = |batch: &Batch<'_>| {
        let rows = batch.rows(output.rows);
        // An element that the backend does not write stays NaN.
        let mut out = vec![f32::NAN; rows * output.width];
        executor.forward(batch, Output::rows(&mut out))?;
        Ok(out)
    };
    batches.iter().map(|batch| batch.with(&mut forward)).collect()
}

/// Parts that all have the values of the only one that runs, for cases with sums over parts.
#[derive(Debug)]
struct EqualParts;

impl EqualParts {
    /// The number of parts: more than a GPU adds in one launch.
    const COUNT: usize = 10;
}

impl Collective for EqualParts {
    fn gather(
        &self,
        _part: usize,
        values: Arc<dyn QueuedRows>,
    ) -> Result<QueuedSummands, BackendError> {
        Ok(vec![values; Self::COUNT])
    }

    fn limit(&self) -> Duration {
        Duration::from_mins(2)
    }
}

/// The outcome of a case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CaseOutcome {
    /// All forms of the program are within the bound.
    Passed {
        /// The largest deviation of all forms.
        deviation: Deviation,
        /// The allowed deviation.
        bound: ErrorBound,
        /// Every output of every form and batch, for backends that guarantee more than a bound.
        outputs: Vec<Vec<f32>>,
    },
    /// The backend does not support the case; the text is the reason.
    Skipped(String),
}

/// The distance of results from the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// `Σ(a − b)² / Σb²` over all outputs of all batches.
    pub nmse: f64,
    /// `max |a − b| / √(mean(b²))`, which detects a single wrong element.
    pub peak: f64,
}

impl Deviation {
    /// The deviation of outputs, batch by batch, from those of the reference.
    pub fn between(actual: &[Vec<f32>], expected: &[Vec<f32>]) -> Self {
        let (mut error, mut energy, mut peak, mut count) = (0.0, 0.0, 0.0_f64, 0_usize);
        for (a, b) in actual.iter().flatten().zip(expected.iter().flatten()) {
            let difference = (f64::from(*a) - f64::from(*b)).abs();
            error += difference * difference;
            energy += f64::from(*b) * f64::from(*b);
            peak = peak.max(difference);
            count += 1;
        }
        if error == 0.0 {
            return Self::default();
        }
        Self { nmse: error / energy, peak: peak / (energy / count as f64).sqrt() }
    }

    /// Returns true if both values are within a bound. NaN never is.
    pub fn is_within(self, bound: ErrorBound) -> bool {
        self.nmse <= bound.nmse() && self.peak <= bound.peak()
    }

    fn max(self, other: Self) -> Self {
        Self { nmse: self.nmse.max(other.nmse), peak: self.peak.max(other.peak) }
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NMSE {:.1e}, peak {:.1e}", self.nmse, self.peak)
    }
}

/// A failed check: the backend does not conform.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// Results exceed the bound.
    #[error(
        "{case}: {deviation}, allowed are {:.1e} and {:.1e} ({bound:?}); fused: {fusions:?}",
        bound.nmse(),
        bound.peak()
    )]
    Deviates {
        /// Name of the case.
        case: String,
        /// The fusions of the program.
        fusions: Box<Fusions>,
        /// The deviation.
        deviation: Deviation,
        /// The allowed deviation.
        bound: ErrorBound,
    },
    /// The backend failed.
    #[error("{case}: the backend failed; fused: {fusions:?}")]
    Failed {
        /// Name of the case.
        case: String,
        /// The fusions of the program.
        fusions: Box<Fusions>,
        /// The error of the backend.
        source: Box<BackendError>,
    },
}
