//! The table of cases that every backend passes against [`ReferenceBackend`].
//!
//! A [`Case`] is a small program with batches to feed it. [`check`] runs it on the reference as it is
//! written and on a backend both unfused and in every fused form that the backend takes, and compares
//! what comes out with the [`Bound`] of the case. To add an op: write its formula into
//! [`reference`](crate::reference), then a case here with the bound of its arithmetic.
//!
//! ```
//! use rf_graph::ReferenceBackend;
//! use rf_graph::conformance::{Outcome, cases, check};
//!
//! let case = cases().into_iter().find(|case| case.name() == "add").unwrap();
//! assert!(matches!(check(&ReferenceBackend, &case), Ok(Outcome::Passed { .. })));
//! ```

mod attention;
mod bounds;
mod experts;
mod inputs;
mod models;
mod products;
mod rows;

use std::fmt;
use std::ops::Range;

use rf_kv::PageId;

use crate::backend::{Backend, BackendError, Batch, KvLayout, Program, Span};
use crate::fuse::{Fusions, fuse};
use crate::graph::{Graph, RowKind};
use crate::op::ValueId;
use crate::reference::ReferenceBackend;
use crate::weight::Weight;
use inputs::{Net, Schedule};

pub use bounds::Bound;
pub use inputs::Numbers;

/// All cases. Programs and weights are made only when a case is run.
pub fn cases() -> Vec<Case> {
    let mut cases = rows::cases();
    cases.extend(products::cases());
    cases.extend(attention::cases());
    cases.extend(experts::cases());
    cases.extend(models::cases());
    cases
}

/// Runs a case on a backend.
///
/// # Errors
///
/// If a result is further from the reference than the case allows, or the backend fails.
pub fn check(backend: &dyn Backend, case: &Case) -> Result<Outcome, Mismatch> {
    case.prepare()?.check(backend)
}

/// A program, batches to feed it one after the other, and how far results may be off.
pub struct Case {
    name: String,
    bound: Bound,
    kv: KvLayout,
    batches: Vec<CaseBatch>,
    build: Box<dyn Fn(&mut Net) -> ValueId + Send + Sync>,
}

impl Case {
    fn new(
        name: impl Into<String>,
        bound: Bound,
        schedule: Schedule,
        build: impl Fn(&mut Net) -> ValueId + Send + Sync + 'static,
    ) -> Self {
        let Schedule { kv, batches } = schedule;
        Self { name: name.into(), bound, kv, batches, build: Box::new(build) }
    }

    /// A path of words: `matmul/Q4_K/37x768`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far results may be off.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// What is fed, one after the other.
    pub fn batches(&self) -> &[CaseBatch] {
        &self.batches
    }

    /// The program, unfused.
    pub fn program(&self) -> Program {
        let mut net = Net::new(&self.name);
        let output = (self.build)(&mut net);
        let (graph, weights) = net.g.finish(output);
        self.with_graph(graph, weights)
    }

    /// Runs the case on the reference, so that several backends can be checked against that.
    ///
    /// # Errors
    ///
    /// If the reference does not take the case.
    pub fn prepare(&self) -> Result<Prepared<'_>, Mismatch> {
        let Program { graph, weights, .. } = self.program();
        let program = self.with_graph(graph.clone(), weights.clone());
        let expected = run(&ReferenceBackend, program, &self.batches)
            .map_err(|source| self.failed(Fusions::NONE, source))?;
        Ok(Prepared { case: self, graph, weights, expected })
    }

    fn with_graph(&self, graph: Graph, weights: Vec<Weight>) -> Program {
        let tokens = self.batches.iter().map(|b| b.ids.len()).max().unwrap_or(0);
        let kv = self.kv.clone();
        Program { graph, weights, kv, max_batch_tokens: tokens, max_output_rows: tokens }
    }

    fn failed(&self, fusions: Fusions, source: BackendError) -> Mismatch {
        Mismatch::Failed { case: self.name.clone(), fusions, source }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.bound)
    }
}

/// A [`Batch`] that owns what it names.
#[derive(Clone, Debug)]
pub struct CaseBatch {
    ids: Vec<u32>,
    /// Tokens, past tokens and pages of each span.
    spans: Vec<(Range<usize>, usize, Vec<PageId>)>,
    output_rows: Vec<usize>,
    input: Option<Vec<f32>>,
}

impl CaseBatch {
    /// Calls `f` with the batch.
    pub fn with<R>(&self, f: impl FnOnce(&Batch<'_>) -> R) -> R {
        let spans: Vec<Span<'_>> = self
            .spans
            .iter()
            .map(|(tokens, past_tokens, pages)| Span {
                tokens: tokens.clone(),
                past_tokens: *past_tokens,
                pages,
            })
            .collect();
        f(&Batch {
            ids: &self.ids,
            spans: &spans,
            output_rows: &self.output_rows,
            input: self.input.as_deref(),
        })
    }
}

/// A case and what the reference computes for it.
pub struct Prepared<'a> {
    case: &'a Case,
    graph: Graph,
    weights: Vec<Weight>,
    expected: Vec<Vec<f32>>,
}

impl Prepared<'_> {
    /// See [`check`].
    ///
    /// # Errors
    ///
    /// As [`check`].
    pub fn check(&self, backend: &dyn Backend) -> Result<Outcome, Mismatch> {
        let case = self.case;
        let mut worst = Deviation::default();
        let mut outputs = Vec::new();
        let mut graphs: Vec<Graph> = Vec::new();
        for fusions in variants(backend.fusions()) {
            let graph = fuse(self.graph.clone(), fusions);
            if graphs.iter().any(|earlier| earlier.ops() == graph.ops()) {
                continue;
            }
            graphs.push(graph.clone());
            let program = case.with_graph(graph, self.weights.clone());
            let actual = match run(backend, program, &case.batches) {
                Ok(actual) => actual,
                Err(BackendError::Unsupported { backend, what }) => {
                    return Ok(Outcome::Skipped(format!("{backend} cannot run {what}")));
                }
                Err(source) => return Err(case.failed(fusions, source)),
            };
            let deviation = Deviation::between(&actual, &self.expected);
            if !deviation.is_within(case.bound) {
                let bound = case.bound;
                let case = case.name.clone();
                return Err(Mismatch::Deviates { case, fusions, deviation, bound });
            }
            worst = worst.max(deviation);
            outputs.extend(actual);
        }
        Ok(Outcome::Passed { deviation: worst, outputs })
    }
}

/// No fusion, each alone, all that there are, as far as the backend takes them.
fn variants(taken: Fusions) -> Vec<Fusions> {
    let mut variants = vec![Fusions::NONE];
    if taken.shared_operand {
        variants.push(Fusions { shared_operand: true, ..Fusions::NONE });
    }
    if taken.norm_prologue {
        variants.push(Fusions { norm_prologue: true, ..Fusions::NONE });
    }
    if taken.glu_prologue {
        variants.push(Fusions { glu_prologue: true, ..Fusions::NONE });
    }
    if taken.residual {
        variants.push(Fusions { residual: true, ..Fusions::NONE });
    }
    if taken.rope_append {
        variants.push(Fusions { rope_append: true, ..Fusions::NONE });
    }
    variants.push(taken);
    variants
}

/// Runs all batches on one compiled program; the outputs by batch.
fn run(
    backend: &dyn Backend,
    program: Program,
    batches: &[CaseBatch],
) -> Result<Vec<Vec<f32>>, BackendError> {
    let output = program.graph.value(program.graph.output());
    let mut executor = backend.compile(program, &mut |_| ())?;
    let outputs = batches.iter().map(|batch| {
        let rows = match output.rows {
            RowKind::Token => batch.ids.len(),
            RowKind::Output => batch.output_rows.len(),
        };
        // What the backend does not write shows.
        let mut out = vec![f32::NAN; rows * output.width];
        batch.with(|batch| executor.forward(batch, &mut out))?;
        Ok(out)
    });
    outputs.collect()
}

/// What came of a case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// All forms of the program are within the bound.
    Passed {
        /// The worst of them.
        deviation: Deviation,
        /// Every output of every form and batch, for backends that promise more than a bound.
        outputs: Vec<Vec<f32>>,
    },
    /// The backend says that it has not got what the case needs.
    Skipped(String),
}

/// How far results are from the reference. NaN is right where the reference has NaN, and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// `Σ(a − b)² / Σb²` over all outputs of all batches.
    pub nmse: f64,
    /// `max |a − b| / √(mean(b²))`: one wrong element among many right ones.
    pub peak: f64,
}

impl Deviation {
    /// Of outputs, batch by batch, from those of the reference.
    pub fn between(actual: &[Vec<f32>], expected: &[Vec<f32>]) -> Self {
        let (mut error, mut energy, mut peak, mut count) = (0.0, 0.0, 0.0_f64, 0_usize);
        for (a, b) in actual.iter().flatten().zip(expected.iter().flatten()) {
            if a.is_nan() && b.is_nan() {
                continue;
            }
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

    /// Whether both are within a bound; NaN is not.
    pub fn is_within(self, bound: Bound) -> bool {
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

/// A backend that does not conform.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// Results are too far off.
    #[error("{case}: {deviation}, allowed are {:.1e} and {:.1e} ({bound:?}); fused: {fusions:?}", bound.nmse(), bound.peak())]
    Deviates {
        /// Name of the case.
        case: String,
        /// The form of the program.
        fusions: Fusions,
        /// How far.
        deviation: Deviation,
        /// How far is allowed.
        bound: Bound,
    },
    /// The backend failed.
    #[error("{case}: the backend failed; fused: {fusions:?}")]
    Failed {
        /// Name of the case.
        case: String,
        /// The form of the program.
        fusions: Fusions,
        /// Why.
        source: BackendError,
    },
}
