//! Ops over rows: the items of a phase are whole rows. These ops have no precomputed data.

use std::ops::Range;

use rf_graph::{Function, Gating, Op, Position, ValueId, WeightId};

use super::storage::StoredWeight;
use super::{Region, RopeTable};
use crate::simd::activations::{Evaluate, MapRow, RmsScale, RowSource};
use crate::simd::rope::Rotate;
use crate::simd::{Isa, LANES};
use crate::team::{PieceDivision, Share};

/// Returns true if [`Region::row_op`] can run an op.
pub(super) fn supports(op: &Op) -> bool {
    matches!(
        op,
        Op::Embed { norm: None, .. }
            | Op::EmbedPosition { .. }
            | Op::Input { .. }
            | Op::AddMedia { .. }
            | Op::Output { .. }
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Glu { .. }
            | Op::Add { .. }
            | Op::Mul { .. }
            | Op::Map { .. }
            | Op::Gate { .. }
            | Op::ScaleByPosition { .. }
            | Op::Slice { .. }
            | Op::SliceGroups { .. }
            | Op::JoinGroups { .. }
            | Op::SelectRows { .. }
            | Op::Route { shared_gate: None, .. }
            | Op::ScaleExperts { .. }
            | Op::CombineExperts { .. }
    )
}

impl Region<'_> {
    /// Deals the rows of an op that writes `out`.
    pub(super) fn row_deal(&self, out: ValueId) -> PieceDivision {
        PieceDivision::new(self.num_rows(out), row_ns(self.graph.value(out).width), self.threads)
    }

    /// Runs one member's share of the rows of an op.
    #[expect(clippy::too_many_lines, reason = "one arm per op, to be read as a table")]
    pub(super) fn row_op(&self, share: &mut Share<'_>, op: &Op) {
        match op {
            Op::Route { logits, shared_gate: None, router, out } => {
                let (logits, out) = (self.rows(*logits), self.rows(*out));
                let bias = router.selection_bias.map(|id| self.vector(id));
                let scale = router.expert_scale.map(|id| self.vector(id));
                by_row(share, |token| {
                    // SAFETY: written in an earlier phase.
                    let logits = unsafe { logits.row(token) };
                    let y = router.route(logits, None, [bias, scale]);
                    // SAFETY: each row belongs to one piece.
                    unsafe { out.row_mut(token, 0..out.width) }.copy_from_slice(&y);
                });
            }
            Op::ScaleExperts { x, route, out } => {
                let (x, route, out) = (self.rows(*x), self.rows(*route), self.rows(*out));
                let slots = route.width / 2;
                by_row(share, |token| {
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x.row(token) };
                    // SAFETY: as above.
                    let p = unsafe { &route.row(token)[slots..] };
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(token, 0..out.width) };
                    let width = out.width / slots;
                    let parts = y.chunks_exact_mut(width).zip(x.chunks_exact(width));
                    for ((y, x), p) in parts.zip(p) {
                        y.iter_mut().zip(x).for_each(|(y, x)| *y = p * x);
                    }
                });
            }
            Op::CombineExperts { x, route, residual, out } => {
                let (x, route, out) = (self.rows(*x), self.rows(*route), self.rows(*out));
                let residual = residual.map(|id| self.rows(id));
                let slots = route.width / 2;
                by_row(share, |token| {
                    // SAFETY: written in an earlier phase.
                    let p = unsafe { &route.row(token)[slots..] };
                    // SAFETY: as above.
                    let mut y = rf_graph::combine_experts(unsafe { x.row(token) }, p);
                    if let Some(residual) = residual {
                        // SAFETY: as above.
                        let residual = unsafe { residual.row(token) };
                        y.iter_mut().zip(residual).for_each(|(y, r)| *y += r);
                    }
                    // SAFETY: each row belongs to one piece.
                    unsafe { out.row_mut(token, 0..out.width) }.copy_from_slice(&y);
                });
            }
            Op::Embed { table, scale, takes_media, norm: None, out } => {
                let out = self.rows(*out);
                by_row(share, |token| {
                    // SAFETY: each row belongs to one piece.
                    let row = unsafe { out.row_mut(token, 0..out.width) };
                    if let Some(media) = self.media_row(token).filter(|_| *takes_media) {
                        row.copy_from_slice(&media[..row.len()]);
                        return;
                    }
                    self.embed(*table, self.batch.ids[token] as usize, row);
                    for x in row {
                        *x *= scale;
                    }
                });
            }
            Op::EmbedPosition { table, out } => {
                let out = self.rows(*out);
                let last = self.table_rows(*table) - 1;
                by_row(share, |token| {
                    // SAFETY: each row belongs to one piece.
                    let row = unsafe { out.row_mut(token, 0..out.width) };
                    self.embed(*table, (self.position(token)[0] as usize).min(last), row);
                });
            }
            // The op that computes the value writes to the output of the stage.
            Op::Output { .. } => {}
            Op::Input { out } => {
                let columns = self.columns_before(self.inputs, *out).unwrap_or(0);
                let out = self.rows(*out);
                let x = &self.input[columns * self.tokens()..];
                by_row(share, |token| {
                    // SAFETY: each row belongs to one piece.
                    let row = unsafe { out.row_mut(token, 0..out.width) };
                    row.copy_from_slice(&x[token * out.width..][..out.width]);
                });
            }
            Op::AddMedia { x, part, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                by_row(share, |token| {
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x_rows.row(token) };
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(token, 0..out.width) };
                    y.copy_from_slice(x);
                    if let Some(media) = self.media_row(token) {
                        let media = &media[part * out.width..];
                        y.iter_mut().zip(media).for_each(|(y, media)| *y += media);
                    }
                });
            }
            Op::RmsNorm { x, weight, eps, out } => {
                let group = self.graph.weight(*weight).columns;
                let (x_rows, weight) = (self.rows(*x), self.vector(*weight));
                let out = self.rows(*out);
                by_row(share, |row| {
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x_rows.row(row) };
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    let groups = x.chunks_exact(group).zip(y.chunks_exact_mut(group));
                    for ((x, y), weight) in groups.zip(weight.chunks_exact(group).cycle()) {
                        rms_norm(self.isa, x, weight, *eps, y);
                    }
                });
            }
            Op::LayerNorm { x, weight, bias, eps, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                let (weight, bias) = (self.vector(*weight), bias.map(|bias| self.vector(bias)));
                by_row(share, |row| {
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x_rows.row(row) };
                    // SAFETY: each row belongs to one piece.
                    layer_norm(x, weight, bias, *eps, unsafe { out.row_mut(row, 0..out.width) });
                });
            }
            Op::Glu { activation, gate, up, out } => {
                let (gate_rows, up_rows, out) = (self.rows(*gate), self.rows(*up), self.rows(*out));
                by_row(share, |row| {
                    // SAFETY: written in an earlier phase.
                    let gate = unsafe { gate_rows.row(row) };
                    // SAFETY: as above.
                    let up = unsafe { up_rows.row(row) };
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    let source = RowSource::Glu { activation: *activation, gate, up };
                    evaluate(self.isa, source, y);
                });
            }
            Op::Add { a, b, out } => {
                self.elementwise(share, [*a, *b], *out, |[a, b]| a + b);
            }
            Op::Mul { a, b, out } => {
                self.elementwise(share, [*a, *b], *out, |[a, b]| a * b);
            }
            Op::Map { x, function: Function::Scale(factor), out } => {
                self.elementwise(share, [*x], *out, |[x]| x * factor);
            }
            Op::Map { x, function, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                by_row(share, |row| {
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x_rows.row(row) };
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    self.isa.run(MapRow { function: *function, x, out: y });
                });
            }
            Op::Gate { function, x, gate, out } => {
                let (x_rows, gates, out) = (self.rows(*x), self.rows(*gate), self.rows(*out));
                let columns_per_gate = out.width / gates.width;
                by_row(share, |row| {
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x_rows.row(row) };
                    // SAFETY: as above.
                    let gates = unsafe { gates.row(row) };
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    let parts = y.chunks_exact_mut(columns_per_gate);
                    for ((y, x), gate) in parts.zip(x.chunks_exact(columns_per_gate)).zip(gates) {
                        let gate = match function {
                            Gating::Sigmoid => 1.0 / (1.0 + (-gate).exp()),
                            Gating::Softplus => gate.max(0.0) + (-gate.abs()).exp().ln_1p(),
                        };
                        y.iter_mut().zip(x).for_each(|(y, x)| *y = x * gate);
                    }
                });
            }
            Op::ScaleByPosition { x, scale, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                by_row(share, |token| {
                    let factor = scale.at(self.position(token)[0] as usize);
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x_rows.row(token) };
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(token, 0..out.width) };
                    y.iter_mut().zip(x).for_each(|(y, x)| *y = x * factor);
                });
            }
            Op::Slice { x, start, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                by_row(share, |row| {
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x_rows.row(row) };
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    y.copy_from_slice(&x[*start..][..out.width]);
                });
            }
            Op::SliceGroups { x, group, start, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                let width = out.width / (x_rows.width / group);
                by_row(share, |row| {
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x_rows.row(row) };
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(*group)) {
                        y.copy_from_slice(&x[*start..][..width]);
                    }
                });
            }
            Op::JoinGroups { a, b, groups, out } => {
                let (a_rows, b_rows, out) = (self.rows(*a), self.rows(*b), self.rows(*out));
                let [a_width, b_width] = [a_rows, b_rows].map(|rows| rows.width / groups);
                by_row(share, |row| {
                    // SAFETY: written in an earlier phase.
                    let a = unsafe { a_rows.row(row) }.chunks_exact(a_width);
                    // SAFETY: as above.
                    let b = unsafe { b_rows.row(row) }.chunks_exact(b_width);
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(row, 0..out.width) };
                    for (y, (a, b)) in y.chunks_exact_mut(a_width + b_width).zip(a.zip(b)) {
                        let (first, second) = y.split_at_mut(a_width);
                        first.copy_from_slice(a);
                        second.copy_from_slice(b);
                    }
                });
            }
            Op::SelectRows { x, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                by_row(share, |row| {
                    // SAFETY: written in an earlier phase.
                    let x = unsafe { x_rows.row(self.batch.output_rows[row]) };
                    // SAFETY: each row belongs to one piece.
                    unsafe { out.row_mut(row, 0..out.width) }.copy_from_slice(x);
                });
            }
            _ => unreachable!("`supports` accepts no other op"),
        }
    }

    /// Reads one row of an embedding table as f32.
    fn embed(&self, table: WeightId, row: usize, out: &mut [f32]) {
        match &self.weights[table.index()] {
            StoredWeight::Table(w) => {
                if let Err(error) = w.check_finite(row..row + 1) {
                    self.damaged.get_or_init(|| error);
                }
                rf_quant::dequantize(w.dtype(), w.row(row), out)
                    .expect("a row is a whole number of blocks");
            }
            StoredWeight::Matrix(m) => m.row_f32(row, out),
            StoredWeight::Vector(_) => unreachable!("an embedding table is not a vector"),
        }
    }

    /// Rows of an embedding table.
    fn table_rows(&self, table: WeightId) -> usize {
        match &self.weights[table.index()] {
            StoredWeight::Table(w) => w.rows(),
            StoredWeight::Matrix(m) => m.rows(),
            StoredWeight::Vector(_) => unreachable!("an embedding table is not a vector"),
        }
    }

    fn elementwise<const N: usize>(
        &self,
        share: &mut Share<'_>,
        inputs: [ValueId; N],
        out: ValueId,
        f: impl Fn([f32; N]) -> f32,
    ) {
        let (inputs, out) = (inputs.map(|id| self.rows(id)), self.rows(out));
        let all: Range<usize> = 0..out.width;
        by_row(share, |row| {
            // SAFETY: written in an earlier phase.
            let x = inputs.map(|input| unsafe { input.row(row) });
            // SAFETY: each row belongs to one piece.
            for (i, y) in unsafe { out.row_mut(row, all.clone()) }.iter_mut().enumerate() {
                *y = f(x.map(|x| x[i]));
            }
        });
    }
}

/// About how long an op takes for a row: the slower ones compute two elements in a nanosecond.
pub(super) fn row_ns(width: usize) -> usize {
    width / 2
}

/// Calls `work` for each row of a member's share.
#[expect(clippy::inline_always, reason = "the loops of `work` are vectorised where it is inlined")]
#[inline(always)]
pub(super) fn by_row(share: &mut Share<'_>, work: impl Fn(usize)) {
    for rows in share {
        for row in rows {
            work(row);
        }
    }
}

/// `y = x / √(mean(x²) + eps) · weight`.
pub(super) fn rms_norm(isa: Isa, x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    evaluate(isa, norm_source(isa, x, weight, eps), y);
}

/// `y = (x − mean(x)) / √(var(x) + eps) · weight (+ bias)`.
fn layer_norm(x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, y: &mut [f32]) {
    let width = x.len() as f32;
    let mean = sum_by_lane(x, |x| x) / width;
    let variance = sum_by_lane(x, |x| (x - mean) * (x - mean)) / width;
    let scale = 1.0 / (variance + eps).sqrt();
    for ((y, x), weight) in y.iter_mut().zip(x).zip(weight) {
        *y = (x - mean) * scale * weight;
    }
    if let Some(bias) = bias {
        y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
    }
}

/// `Σ f(x)`: each lane sums every 16th element, then the lane sums are added in order. The order,
/// and therefore the result, does not depend on the ISA.
fn sum_by_lane(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0_f32; LANES];
    for chunk in x.chunks(LANES) {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += f(*x);
        }
    }
    sums.iter().sum()
}

/// The RMS norm of a row as a source of operands.
pub(super) fn norm_source<'a>(
    isa: Isa,
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
) -> RowSource<'a> {
    RowSource::Norm { x, weight, scale: isa.run(RmsScale { x, eps }) }
}

/// Evaluates a row source as f32.
pub(super) fn evaluate(isa: Isa, source: RowSource<'_>, y: &mut [f32]) {
    isa.run(Evaluate { source, out: y });
}

impl RopeTable {
    /// Applies RoPE to one head at a position.
    pub(super) fn rotate(
        &self,
        isa: Isa,
        position: Position,
        buffer: &mut Vec<(f32, f32)>,
        head: &mut [f32],
    ) {
        let cos_sin = self.at(position, buffer);
        isa.run(Rotate { style: self.rope.style, cos_sin, head });
    }
}
