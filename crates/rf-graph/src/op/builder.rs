//! Graphs under construction: one method per op.

use std::collections::HashMap;
use std::ops::Range;

use super::{
    Activation, Attention, CausalConv, DeltaDecay, DeltaHeads, DeltaNet, Epilogue, ExpertMatMul,
    ExpertProjection, Function, Gating, LowRank, MatMul, Op, PositionScale, Projection, Prologue,
    Rope, Router, SelectiveScan, StateSpace, StateSpaceHeads,
};
use crate::value::{RowKind, Storage, ValueId, ValueShape, WeightId};
use crate::weight::{Weight, WeightShape};

/// Builds a graph op by op. Shapes follow from the operands.
///
/// A shape mismatch is a bug in the model architecture and panics. The shapes of a file are checked
/// earlier, when its weights are looked up.
#[derive(Debug, Default)]
pub struct GraphBuilder {
    pub(crate) ops: Vec<Op>,
    pub(crate) values: Vec<ValueShape>,
    pub(crate) weights: Vec<Weight>,
    /// For each layer, the number of ops up to its end.
    pub(crate) layer_ends: Vec<usize>,
    /// See [`Self::update`].
    updates: HashMap<WeightId, LowRank>,
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a weight.
    pub fn weight(&mut self, weight: Weight) -> WeightId {
        self.weights.push(weight);
        WeightId(self.weights.len() as u32 - 1)
    }

    /// Marks the end of a layer, where [`split`](crate::split()) may cut the program.
    pub(crate) fn end_layer(&mut self) {
        self.layer_ends.push(self.ops.len());
    }

    fn shape(&self, id: WeightId) -> WeightShape {
        self.weights[id.index()].shape()
    }

    /// Columns of a value.
    pub fn width(&self, id: ValueId) -> usize {
        self.values[id.index()].width
    }

    fn rows(&self, id: ValueId) -> RowKind {
        self.values[id.index()].rows
    }

    /// A new value.
    fn value(&mut self, rows: RowKind, width: usize) -> ValueId {
        self.values.push(ValueShape { rows, width, storage: Storage::F32 });
        ValueId(self.values.len() as u32 - 1)
    }

    /// A new value of the shape of `x`.
    fn like(&mut self, x: ValueId) -> ValueId {
        self.value(self.rows(x), self.width(x))
    }

    /// Appends an op and returns its output.
    fn push(&mut self, op: Op, out: ValueId) -> ValueId {
        self.ops.push(op);
        out
    }
}

/// The builder method of each op.
#[expect(clippy::missing_panics_doc, reason = "documented once, on the type")]
impl GraphBuilder {
    /// Appends [`Op::Embed`].
    pub fn embed(&mut self, table: WeightId, scale: f32) -> ValueId {
        let out = self.value(RowKind::Token, self.shape(table).columns);
        self.push(Op::Embed { table, scale, takes_media: false, norm: None, out }, out)
    }

    /// Appends [`Op::Embed`] in whose place [media rows](crate::Media) go.
    pub fn embed_or_media(&mut self, table: WeightId, scale: f32) -> ValueId {
        let out = self.value(RowKind::Token, self.shape(table).columns);
        self.push(Op::Embed { table, scale, takes_media: true, norm: None, out }, out)
    }

    /// Appends [`Op::AddMedia`].
    pub fn add_media(&mut self, x: ValueId, part: usize) -> ValueId {
        assert_eq!(self.rows(x), RowKind::Token);
        let out = self.like(x);
        self.push(Op::AddMedia { x, part, out }, out)
    }

    /// Appends [`Op::EmbedPosition`].
    pub fn embed_position(&mut self, table: WeightId) -> ValueId {
        let out = self.value(RowKind::Token, self.shape(table).columns);
        self.push(Op::EmbedPosition { table, out }, out)
    }

    /// Appends [`Op::Input`].
    pub fn input(&mut self, width: usize) -> ValueId {
        let out = self.value(RowKind::Token, width);
        self.push(Op::Input { out }, out)
    }

    /// Appends [`Op::Output`].
    pub fn output(&mut self, x: ValueId) {
        self.ops.push(Op::Output { x });
    }

    /// Appends [`Op::RmsNorm`].
    pub fn rms_norm(&mut self, x: ValueId, weight: WeightId, eps: f32) -> ValueId {
        assert!(self.width(x).is_multiple_of(self.shape(weight).columns));
        let out = self.like(x);
        self.push(Op::RmsNorm { x, weight, eps, out }, out)
    }

    /// Appends [`Op::LayerNorm`].
    pub fn layer_norm(
        &mut self,
        x: ValueId,
        weight: WeightId,
        bias: Option<WeightId>,
        eps: f32,
    ) -> ValueId {
        let mut vectors = [Some(weight), bias].into_iter().flatten();
        assert!(vectors.all(|id| self.shape(id).columns == self.width(x)));
        let out = self.like(x);
        self.push(Op::LayerNorm { x, weight, bias, eps, out }, out)
    }

    /// Appends [`Op::MatMul`] with one weight and nothing fused.
    pub fn matmul(&mut self, x: ValueId, weight: WeightId) -> ValueId {
        self.linear(x, weight, None)
    }

    /// Appends [`Op::MatMul`] with one weight and an optional bias, and the
    /// [update](Self::update) of the weight.
    pub fn linear(&mut self, x: ValueId, weight: WeightId, bias: Option<WeightId>) -> ValueId {
        let w = self.shape(weight);
        assert_eq!(self.width(x), w.columns, "{w:?}");
        let out = self.value(self.rows(x), w.rows);
        let projections = vec![Projection { weight, bias, out }];
        let prologue = Prologue::Plain(x);
        let epilogue = Epilogue::None;
        self.ops.push(Op::MatMul(MatMul { prologue, projections, residual: None, epilogue }));
        self.updated(x, weight, out)
    }

    /// Appends [`Op::Rope`].
    pub fn rope(&mut self, x: ValueId, rope: &Rope) -> ValueId {
        assert!(self.width(x).is_multiple_of(rope.head_dim) && rope.dims() <= rope.head_dim);
        let out = self.like(x);
        self.push(Op::Rope { x, rope: rope.clone(), out }, out)
    }

    /// Appends [`Op::KvAppend`] and [`Op::Attention`].
    pub fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId, a: &Attention) -> ValueId {
        assert_eq!(self.width(q), a.num_heads * a.head_dim);
        assert_eq!(self.width(k), a.num_kv_heads * a.head_dim);
        assert_eq!(self.width(v), a.num_kv_heads * a.head_dim);
        assert!(a.num_heads.is_multiple_of(a.num_kv_heads));
        self.ops.push(Op::KvAppend { k, v: Some(v), layer: a.layer });
        self.attend(q, a)
    }

    /// Appends [`Op::KvAppend`] of keys whose first elements are the values, and [`Op::Attention`].
    pub fn latent_attention(&mut self, q: ValueId, k: ValueId, a: &Attention) -> ValueId {
        assert!(a.latent_dim.is_some_and(|latent_dim| latent_dim <= a.head_dim));
        assert_eq!((a.num_kv_heads, self.width(k)), (1, a.head_dim));
        assert!(a.causal && (a.window, a.chunk, a.softcap, a.sinks) == (None, None, None, None));
        self.ops.push(Op::KvAppend { k, v: None, layer: a.layer });
        self.attend(q, a)
    }

    /// Appends [`Op::Attention`] over keys and values that an earlier op appended.
    pub fn attend(&mut self, q: ValueId, a: &Attention) -> ValueId {
        assert_eq!(self.width(q), a.num_heads * a.head_dim);
        assert!(a.causal || a.chunk.is_none(), "chunks of attention in both directions");
        let out = self.value(self.rows(q), a.num_heads * a.value_dim());
        self.push(Op::Attention { append: None, q, attention: a.clone(), out }, out)
    }

    /// Appends [`Op::Glu`].
    pub fn glu(&mut self, activation: Activation, gate: ValueId, up: ValueId) -> ValueId {
        assert_eq!(self.width(gate), self.width(up));
        let out = self.like(gate);
        self.push(Op::Glu { activation, gate, up, out }, out)
    }

    /// Appends [`Op::Add`].
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        assert_eq!((self.rows(a), self.width(a)), (self.rows(b), self.width(b)));
        let out = self.like(a);
        self.push(Op::Add { a, b, out }, out)
    }

    /// Appends [`Op::Add`] of a vector to every row.
    pub fn add_vector(&mut self, x: ValueId, vector: WeightId) -> ValueId {
        // A table of one row is the same at every position.
        let rows = self.embed_position(vector);
        let rows = if self.rows(x) == RowKind::Output { self.select_rows(rows) } else { rows };
        self.add(x, rows)
    }

    /// Appends [`Op::Mul`].
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        assert_eq!((self.rows(a), self.width(a)), (self.rows(b), self.width(b)));
        let out = self.like(a);
        self.push(Op::Mul { a, b, out }, out)
    }

    /// Appends [`Op::Map`].
    pub fn map(&mut self, x: ValueId, function: Function) -> ValueId {
        let out = self.like(x);
        self.push(Op::Map { x, function, out }, out)
    }

    /// Appends [`Op::Map`] with [`Function::Scale`].
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        self.map(x, Function::Scale(factor))
    }

    /// Appends [`Op::Gate`].
    pub fn gate(&mut self, function: Gating, x: ValueId, gate: ValueId) -> ValueId {
        assert!(self.width(x).is_multiple_of(self.width(gate)));
        assert_eq!(self.rows(x), self.rows(gate));
        let out = self.like(x);
        self.push(Op::Gate { function, x, gate, out }, out)
    }

    /// Appends [`Op::Gate`] with [`Gating::Sigmoid`].
    pub fn sigmoid_gate(&mut self, x: ValueId, gate: ValueId) -> ValueId {
        self.gate(Gating::Sigmoid, x, gate)
    }

    /// Appends [`Op::ScaleByPosition`].
    pub fn scale_by_position(&mut self, x: ValueId, scale: PositionScale) -> ValueId {
        assert_eq!(self.rows(x), RowKind::Token);
        let out = self.like(x);
        self.push(Op::ScaleByPosition { x, scale, out }, out)
    }

    /// Appends [`Op::Slice`].
    pub fn slice(&mut self, x: ValueId, columns: Range<usize>) -> ValueId {
        assert!(columns.start < columns.end && columns.end <= self.width(x));
        let out = self.value(self.rows(x), columns.len());
        self.push(Op::Slice { x, start: columns.start, out }, out)
    }

    /// Appends [`Op::SliceGroups`]: `columns` of each group of `group` columns.
    pub fn slice_groups(&mut self, x: ValueId, group: usize, columns: Range<usize>) -> ValueId {
        assert!(columns.start < columns.end && columns.end <= group);
        assert!(self.width(x).is_multiple_of(group));
        let out = self.value(self.rows(x), self.width(x) / group * columns.len());
        self.push(Op::SliceGroups { x, group, start: columns.start, out }, out)
    }

    /// Appends [`Op::JoinGroups`].
    pub fn join_groups(&mut self, a: ValueId, b: ValueId, groups: usize) -> ValueId {
        assert!([a, b].iter().all(|x| self.width(*x).is_multiple_of(groups)));
        assert_eq!(self.rows(a), self.rows(b));
        let out = self.value(self.rows(a), self.width(a) + self.width(b));
        self.push(Op::JoinGroups { a, b, groups, out }, out)
    }

    /// Appends [`Op::HeadMatMul`].
    pub fn head_matmul(&mut self, x: ValueId, weights: Vec<WeightId>) -> ValueId {
        let w = self.shape(weights[0]);
        assert!(weights.iter().all(|id| self.shape(*id) == w), "heads are alike");
        assert_eq!(self.width(x), weights.len() * w.columns);
        let out = self.value(self.rows(x), weights.len() * w.rows);
        self.push(Op::HeadMatMul { x, weights, out }, out)
    }

    /// Appends [`Op::AllReduce`].
    pub fn all_reduce(&mut self, x: ValueId) -> ValueId {
        let out = self.like(x);
        self.push(Op::AllReduce { x, residual: None, norm: None, out }, out)
    }

    /// Appends [`Op::SelectRows`].
    pub fn select_rows(&mut self, x: ValueId) -> ValueId {
        let out = self.value(RowKind::Output, self.width(x));
        self.push(Op::SelectRows { x, out }, out)
    }

    /// Appends [`Op::Route`].
    pub fn route(&mut self, logits: ValueId, router: &Router) -> ValueId {
        let experts = self.width(logits);
        assert!(router.experts_per_token <= experts);
        let mut vectors = router.selection_bias.into_iter().chain(router.expert_scale);
        assert!(vectors.all(|id| self.shape(id).columns == experts));
        assert!(router.groups.is_none_or(|groups| experts.is_multiple_of(groups.count)));
        assert!(!router.shared_expert, "only fusion joins the shared expert");
        let out = self.value(RowKind::Token, 2 * router.experts_per_token);
        let router = router.clone();
        self.push(Op::Route { logits, shared_gate: None, router, out }, out)
    }

    /// Appends [`Op::ExpertMatMul`], and the [update](Self::update) of the weights.
    pub fn expert_matmul(
        &mut self,
        x: ValueId,
        route: ValueId,
        weights: Vec<WeightId>,
        bias: Option<WeightId>,
    ) -> ValueId {
        let slots = self.width(route) / 2;
        let w = self.shape(weights[0]);
        assert!(weights.iter().all(|id| self.shape(*id) == w), "experts are alike");
        assert!([w.columns, slots * w.columns].contains(&self.width(x)));
        let bias_shape = bias.map(|id| self.shape(id));
        assert!(bias_shape.is_none_or(|b| (b.rows, b.columns) == (weights.len(), w.rows)));
        let out = self.value(RowKind::Token, slots * w.rows);
        let first = weights[0];
        let projections = vec![ExpertProjection { weights, bias, out }];
        let op = ExpertMatMul { x, route, projections, glu: None, combine: None };
        self.ops.push(Op::ExpertMatMul(op));
        self.updated_experts(x, route, first, out)
    }

    /// Appends [`Op::ScaleExperts`].
    pub fn scale_experts(&mut self, x: ValueId, route: ValueId) -> ValueId {
        assert!(self.width(x).is_multiple_of(self.width(route) / 2));
        let out = self.like(x);
        self.push(Op::ScaleExperts { x, route, out }, out)
    }

    /// Appends [`Op::CombineExperts`].
    pub fn combine_experts(&mut self, x: ValueId, route: ValueId) -> ValueId {
        let slots = self.width(route) / 2;
        assert!(self.width(x).is_multiple_of(slots));
        let out = self.value(RowKind::Token, self.width(x) / slots);
        self.push(Op::CombineExperts { x, route, residual: None, out }, out)
    }

    /// Appends [`Op::CausalConv`].
    pub fn causal_conv(
        &mut self,
        x: ValueId,
        filter: WeightId,
        bias: Option<WeightId>,
        silu: bool,
        state: usize,
    ) -> ValueId {
        assert_eq!(self.rows(x), RowKind::Token);
        let mut weights = [Some(filter), bias].into_iter().flatten();
        assert!(weights.all(|id| self.shape(id).columns == self.width(x)));
        let out = self.like(x);
        self.push(Op::CausalConv(CausalConv { x, filter, bias, silu, state, out }), out)
    }

    /// Appends [`Op::DeltaNet`].
    pub fn delta_net(
        &mut self,
        [qkv, alpha, beta]: [ValueId; 3],
        [decay, decay_bias]: [WeightId; 2],
        (heads, form): (DeltaHeads, DeltaDecay),
        eps: f32,
        state: usize,
    ) -> ValueId {
        assert!(heads.num_value_heads.is_multiple_of(heads.num_key_heads));
        assert_eq!(self.width(qkv), heads.qkv_width());
        assert_eq!(
            [alpha, beta].map(|id| self.width(id)),
            [form.width(heads), heads.num_value_heads]
        );
        let out = self.value(RowKind::Token, heads.value_width());
        let op = DeltaNet { qkv, alpha, beta, decay, decay_bias, heads, form, eps, state, out };
        self.push(Op::DeltaNet(op), out)
    }

    /// Appends [`Op::StateSpace`].
    pub fn state_space(
        &mut self,
        [xbc, dt]: [ValueId; 2],
        [dt_bias, decay, skip]: [WeightId; 3],
        heads: StateSpaceHeads,
        state: usize,
    ) -> ValueId {
        assert!(heads.num_heads.is_multiple_of(heads.num_groups));
        assert_eq!(self.width(xbc), heads.xbc_width());
        assert_eq!(self.width(dt), heads.num_heads);
        let out = self.value(RowKind::Token, heads.inner_width());
        let op = StateSpace { xbc, dt, dt_bias, decay, skip, heads, state, out };
        self.push(Op::StateSpace(op), out)
    }

    /// Appends [`Op::SelectiveScan`].
    pub fn selective_scan(
        &mut self,
        [x, dt, b, c]: [ValueId; 4],
        [decay, skip]: [WeightId; 2],
        state: usize,
    ) -> ValueId {
        let WeightShape { rows: state_dim, columns: channels, .. } = self.shape(decay);
        assert_eq!([x, dt].map(|id| self.width(id)), [channels; 2]);
        assert_eq!([b, c].map(|id| self.width(id)), [state_dim; 2]);
        assert_eq!(self.shape(skip).columns, channels);
        let out = self.like(x);
        self.push(Op::SelectiveScan(SelectiveScan { x, dt, b, c, decay, skip, state, out }), out)
    }
}

/// Updates of weights by adapters: see [`LowRank`].
impl GraphBuilder {
    /// Gives a weight an update, which later matmuls apply. The weight of experts is the first one
    /// of their list.
    ///
    /// # Panics
    ///
    /// If the numbers of matrices differ.
    pub fn update(&mut self, weight: WeightId, update: LowRank) {
        assert_eq!(update.a.len(), update.b.len());
        self.updates.insert(weight, update);
    }

    /// The output `y` of the matmul of `x` with `weight`, with the update of the weight if it has
    /// one.
    fn updated(&mut self, x: ValueId, weight: WeightId, y: ValueId) -> ValueId {
        let Some(LowRank { a, b, scales }) = self.updates.get(&weight).cloned() else { return y };
        let scales = match self.rows(x) {
            RowKind::Token => scales,
            RowKind::Output => self.select_rows(scales),
        };
        let latent = self.matmul(x, a[0]);
        let latent = self.mul(latent, scales);
        let update = self.matmul(latent, b[0]);
        self.add(y, update)
    }

    /// [`updated`](Self::updated) for a matmul of experts, which has a slot for each expert of a
    /// token.
    fn updated_experts(
        &mut self,
        x: ValueId,
        route: ValueId,
        first: WeightId,
        y: ValueId,
    ) -> ValueId {
        let Some(LowRank { a, b, scales }) = self.updates.get(&first).cloned() else { return y };
        let slots = self.width(route) / 2;
        let scales = (1..slots).fold(scales, |all, _| self.join_groups(all, scales, 1));
        let latent = self.expert_matmul(x, route, a, None);
        let latent = self.mul(latent, scales);
        let update = self.expert_matmul(latent, route, b, None);
        self.add(y, update)
    }
}

#[cfg(test)]
mod tests {
    use crate::{GraphBuilder, LowRank, Op, Weight};

    fn weight(g: &mut GraphBuilder, rows: usize, columns: usize) -> crate::WeightId {
        g.weight(Weight::f32("w", rows, columns, vec![0.0; rows * columns]))
    }

    #[test]
    fn only_matmuls_of_an_updated_weight_have_more_ops() {
        let mut g = GraphBuilder::new();
        let (scales, x) = (g.input(2), g.input(4));
        let [plain, w, a, b] =
            [(4, 4), (3, 4), (2, 4), (3, 2)].map(|(rows, columns)| weight(&mut g, rows, columns));
        g.update(w, LowRank { a: vec![a], b: vec![b], scales });
        let x = g.matmul(x, plain);
        let selected = g.select_rows(x);
        let out = g.matmul(selected, w);
        let (graph, _) = g.finish(out);
        let names: Vec<_> = graph.ops().iter().map(Op::name).collect();
        let update = ["matmul", "select_rows", "matmul", "mul", "matmul", "add"];
        assert_eq!(names, [&["input", "input", "matmul", "select_rows"], &update[..]].concat());
        assert_eq!(graph.value(graph.output()).width, 3);
    }
}
