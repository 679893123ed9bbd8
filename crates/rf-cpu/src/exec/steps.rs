//! Steps: ops with what the CPU precomputes for them.

use std::ops::Range;

use rf_graph::{Activation, Attention, BackendError, Op, QkNorm, Rope, ValueId, WeightId};

use super::attention::AppendItem;
use super::matmul::{ExpertMatMulStep, MatMulStep, Scratch};
use super::{Loaded, Region, RopeTable, StepIndex, rows};
use crate::simd::Isa;
use crate::simd::activations::RowSource;
use crate::team::Member;

/// One op, ready to run.
pub(super) enum Step {
    Embed { table: WeightId, scale: f32, out: ValueId },
    Input { out: ValueId },
    RmsNorm { x: ValueId, weight: WeightId, eps: f32, out: ValueId },
    MatMul(MatMulStep),
    Rope { x: ValueId, rope: usize, out: ValueId },
    KvAppend { k: ValueId, v: ValueId, layer: usize },
    Attention(AttentionStep),
    Glu { activation: Activation, gate: ValueId, up: ValueId, out: ValueId },
    Add { a: ValueId, b: ValueId, out: ValueId },
    Scale { x: ValueId, factor: f32, out: ValueId },
    SelectRows { x: ValueId, out: ValueId },
    RopeAppend(RopeAppend),
    Route { logits: ValueId, used: usize, out: ValueId },
    ExpertMatMul(ExpertMatMulStep),
    CombineExperts { x: ValueId, route: ValueId, out: ValueId },
}

/// [`Op::Attention`].
pub(super) struct AttentionStep {
    pub(super) q: ValueId,
    pub(super) attention: Attention,
    pub(super) out: ValueId,
}

/// [`Op::RopeAppend`].
pub(super) struct RopeAppend {
    pub(super) q: ValueId,
    pub(super) k: ValueId,
    pub(super) v: ValueId,
    pub(super) qk_norm: Option<QkNorm>,
    pub(super) rope: usize,
    pub(super) layer: usize,
    pub(super) q_out: ValueId,
}

impl Step {
    pub(super) fn new(
        op: &Op,
        weights: &[Loaded],
        isa: Isa,
        ropes: &mut Vec<RopeTable>,
    ) -> Result<Self, BackendError> {
        let mut table = |rope: &Rope| {
            ropes.iter().position(|known| known.rope == *rope).unwrap_or_else(|| {
                ropes.push(RopeTable { rope: rope.clone(), cos_sin: Vec::new() });
                ropes.len() - 1
            })
        };
        Ok(match op.clone() {
            Op::Embed { table, scale, out } => Self::Embed { table, scale, out },
            Op::Input { out } => Self::Input { out },
            Op::RmsNorm { x, weight, eps, out } => Self::RmsNorm { x, weight, eps, out },
            Op::MatMul(m) => Self::MatMul(MatMulStep::new(m, weights, isa)),
            Op::Rope { x, rope, out } => Self::Rope { x, rope: table(&rope), out },
            Op::KvAppend { k, v, layer } => Self::KvAppend { k, v, layer },
            Op::Attention { q, attention, out } => {
                Self::Attention(AttentionStep { q, attention, out })
            }
            Op::Glu { activation, gate, up, out } => Self::Glu { activation, gate, up, out },
            Op::Add { a, b, out } => Self::Add { a, b, out },
            Op::Scale { x, factor, out } => Self::Scale { x, factor, out },
            Op::SelectRows { x, out } => Self::SelectRows { x, out },
            Op::RopeAppend { q, k, v, qk_norm, rope, layer, q_out } => {
                let rope = table(&rope);
                Self::RopeAppend(RopeAppend { q, k, v, qk_norm, rope, layer, q_out })
            }
            Op::Route { logits, used, out } => Self::Route { logits, used, out },
            Op::ExpertMatMul { x, route, weights: experts, out } => {
                Self::ExpertMatMul(ExpertMatMulStep::new([x, route, out], experts, weights))
            }
            Op::CombineExperts { x, route, out } => Self::CombineExperts { x, route, out },
            op => {
                let what = op.name().to_string();
                return Err(BackendError::Unsupported { backend: "CPU", what });
            }
        })
    }
}

impl Region<'_> {
    /// Runs one member's part of a step.
    pub(super) fn step(
        &self,
        member: &Member<'_>,
        index: StepIndex,
        step: &Step,
        scratch: &mut Scratch,
    ) {
        match step {
            Step::MatMul(m) => self.matmul(member, index, m, scratch),
            Step::Attention(op) => self.attention(member, index, op, scratch),
            Step::RopeAppend(op) => self.rope_append(member, index, op),
            Step::KvAppend { k, v, layer } => {
                let item = AppendItem { k: *k, v: *v, layer: *layer, k_norm: None, rope: None };
                self.append(member, index, &item);
            }
            Step::Route { logits, used, out } => {
                let (logits, out) = (self.rows(*logits), self.rows(*out));
                by_row(member, self.tokens(), |token| {
                    // SAFETY: written before the last barrier.
                    let y = rf_graph::reference::route(unsafe { logits.row(token) }, *used);
                    // SAFETY: each row is one member's.
                    unsafe { out.row_mut(token, 0..out.width) }.copy_from_slice(&y);
                });
            }
            Step::ExpertMatMul(m) => self.expert_matmul(member, index, m),
            Step::CombineExperts { x, route, out } => {
                let (x, route, out) = (self.rows(*x), self.rows(*route), self.rows(*out));
                let used = route.width / 2;
                by_row(member, self.tokens(), |token| {
                    // SAFETY: written before the last barrier.
                    let p = unsafe { &route.row(token)[used..] };
                    // SAFETY: as above.
                    let y = rf_graph::reference::combine_experts(unsafe { x.row(token) }, p);
                    // SAFETY: each row is one member's.
                    unsafe { out.row_mut(token, 0..out.width) }.copy_from_slice(&y);
                });
            }
            Step::Embed { table, scale, out } => {
                let out = self.rows(*out);
                by_row(member, self.tokens(), |token| {
                    // SAFETY: each row is one member's.
                    let row = unsafe { out.row_mut(token, 0..out.width) };
                    self.embed(*table, self.batch.ids[token] as usize, row);
                    for x in row {
                        *x *= scale;
                    }
                });
            }
            Step::Input { out } => {
                let out = self.rows(*out);
                let x = self.batch.input.unwrap_or_default();
                by_row(member, self.tokens(), |token| {
                    // SAFETY: each row is one member's.
                    let row = unsafe { out.row_mut(token, 0..out.width) };
                    row.copy_from_slice(&x[token * out.width..][..out.width]);
                });
            }
            Step::RmsNorm { x, weight, eps, out } => {
                let (x_rows, weight) = (self.rows(*x), self.vector(*weight));
                let out = self.rows(*out);
                by_row(member, self.num_rows(*x), |row| {
                    // SAFETY: written before the last barrier.
                    let x = unsafe { x_rows.row(row) };
                    // SAFETY: each row is one member's.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    let groups = x.chunks_exact(weight.len());
                    for (x, y) in groups.zip(y.chunks_exact_mut(weight.len())) {
                        rows::rms_norm(self.isa, x, weight, *eps, y);
                    }
                });
            }
            Step::Rope { x, rope, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                let table = &self.ropes[*rope];
                by_row(member, self.tokens(), |token| {
                    // SAFETY: each row is one member's.
                    let y = unsafe { out.row_mut(token, 0..out.width) };
                    // SAFETY: written before the last barrier.
                    y.copy_from_slice(unsafe { x_rows.row(token) });
                    y.chunks_exact_mut(table.rope.head_dim)
                        .for_each(|head| table.rotate(self.isa, self.place(token).1, head));
                });
            }
            Step::Glu { activation, gate, up, out } => {
                let (gate_rows, up_rows, out) = (self.rows(*gate), self.rows(*up), self.rows(*out));
                by_row(member, self.num_rows(*gate), |row| {
                    // SAFETY: written before the last barrier.
                    let gate = unsafe { gate_rows.row(row) };
                    // SAFETY: as above.
                    let up = unsafe { up_rows.row(row) };
                    // SAFETY: each row is one member's.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    let source = RowSource::Glu { activation: *activation, gate, up };
                    rows::evaluate(self.isa, source, y);
                });
            }
            Step::Add { a, b, out } => {
                self.elementwise(member, [*a, *b], *out, |[a, b]| a + b);
            }
            Step::Scale { x, factor, out } => {
                self.elementwise(member, [*x], *out, |[x]| x * factor);
            }
            Step::SelectRows { x, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                by_row(member, self.batch.output_rows.len(), |row| {
                    // SAFETY: written before the last barrier.
                    let x = unsafe { x_rows.row(self.batch.output_rows[row]) };
                    // SAFETY: each row is one member's.
                    unsafe { out.row_mut(row, 0..out.width) }.copy_from_slice(x);
                });
            }
        }
    }

    /// One row of an embedding table.
    fn embed(&self, table: WeightId, row: usize, out: &mut [f32]) {
        match &self.weights[table.index()] {
            Loaded::Table(w) => rf_quant::dequantize(w.dtype(), w.row(row), out)
                .expect("a row is a whole number of blocks"),
            Loaded::Matrix(m) => m.row_f32(row, out),
            Loaded::Vector(_) => unreachable!("an embedding table is no vector"),
        }
    }

    fn elementwise<const N: usize>(
        &self,
        member: &Member<'_>,
        inputs: [ValueId; N],
        out: ValueId,
        f: impl Fn([f32; N]) -> f32,
    ) {
        let rows = self.num_rows(out);
        let (inputs, out) = (inputs.map(|id| self.rows(id)), self.rows(out));
        let all: Range<usize> = 0..out.width;
        by_row(member, rows, |row| {
            // SAFETY: written before the last barrier.
            let x = inputs.map(|input| unsafe { input.row(row) });
            // SAFETY: each row is one member's.
            for (i, y) in unsafe { out.row_mut(row, all.clone()) }.iter_mut().enumerate() {
                *y = f(x.map(|x| x[i]));
            }
        });
    }
}

/// Calls `work` for this member's share of rows.
fn by_row(member: &Member<'_>, rows: usize, work: impl Fn(usize)) {
    member.share(rows).for_each(work);
}
