//! The program of one part.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::region::Regions;
use super::walk::{Columns, Region, Role};
use crate::graph::Graph;
use crate::kv::{KvLayer, KvLayout};
use crate::op::{Epilogue, ExpertMatMul, Function, MatMul, Op, Operand, Projection, Prologue};
use crate::program::Program;
use crate::value::{ValueId, ValueShape, WeightId};
use crate::weight::Weight;

/// Rows and columns of a weight of the whole program.
type WeightPart = (WeightId, Range<usize>, Range<usize>);

/// The program of a part under construction. Values keep their ids; those that the part has some
/// columns of are narrower. Sums and slices are new values at the end.
pub(super) struct PartProgram<'a> {
    whole: &'a Program,
    regions: &'a Regions,
    part: usize,
    ops: Vec<Op>,
    values: Vec<ValueShape>,
    weights: Vec<Weight>,
    weight_ids: HashMap<WeightPart, WeightId>,
    /// Values that are summands of their whole values.
    summands: HashSet<ValueId>,
    /// The sums of summands.
    sums: HashMap<ValueId, ValueId>,
    /// The columns of whole values.
    slices: HashMap<(ValueId, Range<usize>), ValueId>,
    /// The number of new ops at the end of each old one.
    ends: Vec<usize>,
}

impl<'a> PartProgram<'a> {
    pub(super) fn new(whole: &'a Program, regions: &'a Regions, part: usize) -> Self {
        let mut part = Self {
            whole,
            regions,
            part,
            ops: Vec::new(),
            values: whole.graph.values.clone(),
            weights: Vec::new(),
            weight_ids: HashMap::new(),
            summands: HashSet::new(),
            sums: HashMap::new(),
            slices: HashMap::new(),
            ends: Vec::new(),
        };
        part.add_ops();
        part
    }

    pub(super) fn finish(mut self) -> Program {
        let output = self.read_whole(self.whole.graph.output);
        let Program { graph, kv, max_batch_tokens, max_output_rows, .. } = self.whole;
        let (max_batch_tokens, max_output_rows) = (*max_batch_tokens, *max_output_rows);
        let kv = self.kv_layout(kv);
        let layer_ends = graph.layer_ends.iter().map(|end| self.ends[end - 1]).collect();
        let Self { ops, values, weights, .. } = self;
        let shapes = weights.iter().map(Weight::shape).collect();
        let graph = Graph { ops, values, output, weights: shapes, layer_ends };
        Program { graph, weights, kv, max_batch_tokens, max_output_rows }
    }

    fn kv_layout(&self, kv: &KvLayout) -> KvLayout {
        let layers = kv.layers.iter().enumerate().map(|(i, layer)| {
            let heads = self.regions.of_kv_layer(i).map(|cut| cut.ranges[self.part].len());
            KvLayer { num_kv_heads: heads.unwrap_or(layer.num_kv_heads), ..*layer }
        });
        KvLayout { layers: layers.collect(), ..kv.clone() }
    }

    fn add_ops(&mut self) {
        let graph = &self.whole.graph;
        for (i, op) in graph.ops.iter().enumerate() {
            match self.regions.role(i) {
                Some((role, region)) => self.divide(op, role, region),
                None => self.keep(i, op),
            }
            self.ends.push(self.ops.len());
        }
    }

    /// Adds an op of whole values. Summands go through linear ops and are summed before others.
    fn keep(&mut self, step: usize, op: &Op) {
        let mut op = op.clone();
        if self.is_linear(&op) {
            self.summands.extend(op.outputs());
        } else {
            self.sum_outputs(step);
            self.read_whole_inputs(&mut op);
        }
        self.keep_weights(&mut op);
        self.ops.push(op);
    }

    /// Sums all values of consecutive ops [`Op::Output`] before the first one, because an op
    /// between them would be another stage.
    fn sum_outputs(&mut self, step: usize) {
        for op in &self.whole.graph.ops[step..] {
            let Op::Output { x } = op else { return };
            self.read_whole(*x);
        }
    }

    /// Returns true if the output of an op is a summand because its inputs are.
    fn is_linear(&self, op: &Op) -> bool {
        let is_summand = |id: &ValueId| {
            let has_other_reader =
                self.regions.uses.readers(*id).len() > 1 || self.regions.uses.is_output(*id);
            self.summands.contains(id) && !has_other_reader
        };
        let is_whole = |id: &ValueId| !self.summands.contains(id);
        match op {
            Op::Add { a, b, .. } => is_summand(a) && is_summand(b),
            Op::Mul { a, b, .. } => is_summand(a) && is_whole(b) || is_whole(a) && is_summand(b),
            Op::CombineExperts { x, route: factor, residual: None, .. }
            | Op::ScaleExperts { x, route: factor, .. }
            | Op::Gate { x, gate: factor, .. } => is_summand(x) && is_whole(factor),
            Op::Map { x, function: Function::Scale(_), .. }
            | Op::ScaleByPosition { x, .. }
            | Op::Slice { x, .. }
            | Op::SelectRows { x, .. } => is_summand(x),
            // Integer matmuls round each summand.
            Op::MatMul(MatMul {
                prologue: Prologue::Plain(x),
                projections,
                residual: None,
                epilogue: Epilogue::None,
            }) => {
                let is_exact = |p: &Projection| {
                    p.bias.is_none() && self.whole.graph.weight(p.weight).dtype.is_float()
                };
                is_summand(x) && projections.iter().all(is_exact)
            }
            _ => false,
        }
    }

    /// The whole value of a value that may be a summand: adds the sum before the next op.
    fn read_whole(&mut self, id: ValueId) -> ValueId {
        if !self.summands.contains(&id) {
            return id;
        }
        if let Some(sum) = self.sums.get(&id) {
            return *sum;
        }
        let out = self.value(self.values[id.index()]);
        self.ops.push(Op::AllReduce { x: id, residual: None, norm: None, out });
        self.sums.insert(id, out);
        out
    }

    fn read_whole_inputs(&mut self, op: &mut Op) {
        for operand in op.operands_mut() {
            if let Operand::Input(id) = operand {
                *id = self.read_whole(*id);
            }
        }
    }

    fn value(&mut self, value: ValueShape) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() as u32 - 1)
    }

    /// Adds an op of a region, with the columns of the part.
    fn divide(&mut self, op: &Op, role: Role, region: &Region) {
        let mut op = op.clone();
        for id in op.outputs() {
            if let Some(columns) = region.values.get(&id) {
                let width = self.whole.graph.value(id).width;
                self.values[id.index()].width =
                    columns.repeat * columns.range(width, self.part).len();
            }
        }
        match role {
            Role::Source => self.read_whole_inputs(&mut op),
            Role::Inner => self.read_columns(&mut op, region),
            Role::Sum => {
                self.summands.extend(op.outputs());
                // The route of experts is whole.
                if let Op::ExpertMatMul(m) = &mut op {
                    m.route = self.read_whole(m.route);
                }
            }
        }
        self.divide_weights(&mut op, role, region);
        self.ops.push(op);
    }

    /// Inputs that are whole and not a route become the columns of the part.
    fn read_columns(&mut self, op: &mut Op, region: &Region) {
        for operand in op.operands_mut() {
            let Operand::Input(id) = operand else { continue };
            if region.values.contains_key(id) {
                continue;
            }
            let Some(columns) = region.slices.get(id) else {
                *id = self.read_whole(*id);
                continue;
            };
            let range = columns.range(self.whole.graph.value(*id).width, self.part);
            let x = self.read_whole(*id);
            *id = self.slice(x, range);
        }
    }

    /// The columns of a whole value, computed once.
    fn slice(&mut self, x: ValueId, columns: Range<usize>) -> ValueId {
        if let Some(slice) = self.slices.get(&(x, columns.clone())) {
            return *slice;
        }
        let value = self.values[x.index()];
        let out = self.value(ValueShape { width: columns.len(), ..value });
        self.ops.push(Op::Slice { x, start: columns.start, out });
        self.slices.insert((x, columns), out);
        out
    }

    /// Replaces weights and heads by those of the part.
    fn divide_weights(&mut self, op: &mut Op, role: Role, region: &Region) {
        let part = self.part;
        let columns_of = |id: &ValueId| region.values.get(id);
        let range = |columns: &Columns, width: usize| columns.range(columns.repeat * width, part);
        match (role, op) {
            (Role::Source, Op::MatMul(MatMul { projections, .. })) => {
                for Projection { weight, bias, out } in projections {
                    let Some(columns) = columns_of(out) else { continue };
                    let rows = range(columns, self.rows(*weight));
                    *weight = self.some_rows(*weight, rows.clone());
                    *bias = bias.map(|id| self.some_columns(id, rows.clone()));
                }
            }
            (Role::Source, Op::ExpertMatMul(ExpertMatMul { projections, .. })) => {
                for projection in projections {
                    let Some(columns) = columns_of(&projection.out) else { continue };
                    let rows = range(columns, self.rows(projection.weights[0]));
                    for weight in &mut projection.weights {
                        *weight = self.some_rows(*weight, rows.clone());
                    }
                    let bias = projection.bias;
                    projection.bias = bias.map(|id| self.some_columns(id, rows.clone()));
                }
            }
            (Role::Source, Op::EmbedPosition { table, out }) => {
                let Some(columns) = columns_of(out) else { return };
                *table = self.some_columns(*table, range(columns, self.columns(*table)));
            }
            // Only one of the summands has the bias.
            (Role::Sum, Op::MatMul(MatMul { prologue, projections, .. })) => {
                let Some(columns) = columns_of(&prologue.shape_of()) else { return };
                for Projection { weight, bias, .. } in projections {
                    *weight = self.some_columns(*weight, range(columns, self.columns(*weight)));
                    *bias = bias.filter(|_| part == 0).map(|id| self.whole_weight(id));
                }
            }
            (Role::Sum, Op::ExpertMatMul(ExpertMatMul { x, projections, .. })) => {
                let Some(columns) = columns_of(x) else { return };
                for projection in projections {
                    for weight in &mut projection.weights {
                        *weight = self.some_columns(*weight, range(columns, self.columns(*weight)));
                    }
                    let bias = projection.bias.filter(|_| part == 0);
                    projection.bias = bias.map(|id| self.whole_weight(id));
                }
            }
            (_, Op::RmsNorm { weight, out, .. }) => {
                let shape = self.whole.graph.weight(*weight);
                let rows = match columns_of(out) {
                    Some(columns) if shape.rows > 1 => range(columns, shape.rows),
                    _ => 0..shape.rows,
                };
                *weight = self.some_rows(*weight, rows);
            }
            (_, Op::Attention { attention, out, .. }) => {
                let Some(columns) = columns_of(out) else { return };
                let heads = range(columns, attention.num_heads);
                attention.num_heads = heads.len();
                if let Some(cut) = region.kv_layers.get(&attention.layer) {
                    attention.num_kv_heads = cut.ranges[part].len();
                }
                let sinks = attention.sinks;
                attention.sinks = sinks.map(|id| self.some_columns(id, heads.clone()));
            }
            (_, Op::JoinGroups { groups, out, .. }) => {
                let Some(columns) = columns_of(out) else { return };
                *groups = range(columns, *groups).len();
            }
            (_, op) => self.keep_weights(op),
        }
    }

    fn rows(&self, id: WeightId) -> usize {
        self.whole.graph.weight(id).rows
    }

    fn columns(&self, id: WeightId) -> usize {
        self.whole.graph.weight(id).columns
    }

    fn keep_weights(&mut self, op: &mut Op) {
        for operand in op.operands_mut() {
            if let Operand::Matrix(id) | Operand::Table(id) | Operand::Vector(id) = operand {
                *id = self.whole_weight(*id);
            }
        }
    }

    fn whole_weight(&mut self, id: WeightId) -> WeightId {
        self.some_rows(id, 0..self.rows(id))
    }

    fn some_rows(&mut self, id: WeightId, rows: Range<usize>) -> WeightId {
        self.weight((id, rows, 0..self.columns(id)))
    }

    fn some_columns(&mut self, id: WeightId, columns: Range<usize>) -> WeightId {
        self.weight((id, 0..self.rows(id), columns))
    }

    fn weight(&mut self, wanted: WeightPart) -> WeightId {
        let weights = &mut self.weights;
        *self.weight_ids.entry(wanted).or_insert_with_key(|(id, rows, columns)| {
            let whole = &self.whole.weights[id.index()];
            let part = whole.part(rows.clone(), columns.clone());
            weights.push(part.expect("regions are cut where blocks begin"));
            WeightId(weights.len() as u32 - 1)
        })
    }
}
