//! The walk from a value back to the matmuls that compute it from whole values.

use std::collections::HashMap;
use std::ops::Range;

use super::cut::Cut;
use crate::graph::Graph;
use crate::op::{Attention, Epilogue, ExpertMatMul, MatMul, Op, Prologue};
use crate::value::{ValueId, WeightId};

/// The role of an op in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It reads whole values and writes the columns of a part.
    Source,
    /// It reads and writes the columns of a part, or appends them to the cache.
    Inner,
    /// It reads the columns of a part and writes a summand.
    Sum,
}

/// The divided columns of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// The value is so many matrices side by side, of which each is divided: slots of experts.
    pub(super) repeat: usize,
    pub(super) cut: Cut,
}

impl Columns {
    /// The columns of each part within one of the repeated matrices.
    pub(super) fn ranges(&self, width: usize) -> Vec<Range<usize>> {
        self.cut.columns(width / self.repeat).collect()
    }

    /// The columns of a part within one of the repeated matrices.
    pub(super) fn range(&self, width: usize, part: usize) -> Range<usize> {
        self.ranges(width)[part].clone()
    }
}

/// Ops that are divided together.
pub(super) struct Region {
    /// The roles of the ops, by the index of the op.
    pub(super) ops: HashMap<usize, Role>,
    /// Values whose columns are divided over the parts.
    pub(super) values: HashMap<ValueId, Columns>,
    /// Whole values of which the ops read the columns.
    pub(super) slices: HashMap<ValueId, Columns>,
    /// The layers of the KV cache that its attention reads, and the KV heads of the parts.
    pub(super) kv_layers: HashMap<usize, Cut>,
}

/// Writers and readers of values by the index of the op.
#[derive(Default)]
pub(super) struct Uses {
    writers: HashMap<ValueId, usize>,
    readers: HashMap<ValueId, Vec<usize>>,
    /// Readers of a stage's output include its caller.
    outputs: Vec<ValueId>,
}

impl Uses {
    pub(super) fn of(graph: &Graph) -> Self {
        let mut uses = Self::default();
        for (i, op) in graph.ops.iter().enumerate() {
            uses.writers.extend(op.outputs().into_iter().map(|id| (id, i)));
            for id in op.inputs() {
                uses.readers.entry(id).or_default().push(i);
            }
        }
        uses.outputs = graph.stages().into_iter().flat_map(|stage| stage.outputs).collect();
        uses
    }

    /// The ops that read a value.
    pub(super) fn readers(&self, id: ValueId) -> &[usize] {
        self.readers.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_output(&self, id: ValueId) -> bool {
        self.outputs.contains(&id)
    }
}

/// The side of attention that a value is on: queries and everything after attention, or keys and
/// values. The sides differ because several parts may have the same KV head. In a region without
/// attention all values are on the side of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttentionSide {
    Query,
    KeyValue,
}

/// A region that is being explored.
pub(super) struct Walk<'a> {
    graph: &'a Graph,
    uses: &'a Uses,
    /// Ops of other regions.
    taken: &'a HashMap<usize, usize>,
    root: ValueId,
    ops: HashMap<usize, Role>,
    values: HashMap<ValueId, (usize, AttentionSide)>,
    /// Values to visit.
    next: Vec<(ValueId, usize, AttentionSide)>,
    /// Whole values of which the region reads columns, with the reason why they are not divided.
    slices: HashMap<ValueId, (usize, AttentionSide, String)>,
    /// The greatest common divisor of the numbers of indivisible groups, by side.
    groups: [usize; 2],
    attention: Option<&'a Attention>,
    kv_layers: Vec<usize>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        uses: &'a Uses,
        taken: &'a HashMap<usize, usize>,
        root: ValueId,
    ) -> Self {
        Self {
            graph,
            uses,
            taken,
            root,
            ops: HashMap::new(),
            values: HashMap::new(),
            next: Vec::new(),
            slices: HashMap::new(),
            groups: [0; 2],
            attention: None,
            kv_layers: Vec::new(),
        }
    }

    /// Visits the readers of the root and all ops that compute it.
    pub(super) fn visit_all(&mut self) -> Result<(), String> {
        let repeat = self.visit_readers_of_root()?;
        self.next.push((self.root, repeat, AttentionSide::Query));
        while let Some((id, repeat, side)) = self.next.pop() {
            let slice = self.slices.get(&id).map(|(repeat, side, _)| (*repeat, *side));
            match self.values.get(&id).copied().or(slice) {
                None => self.visit(id, repeat, side)?,
                Some(known) if known == (repeat, side) => {}
                Some(_) => return Err("a value that is read in two ways".to_owned()),
            }
        }
        Ok(())
    }

    /// The matmuls that were found: those that read whole values, and those that end the region.
    pub(super) fn matmuls(&self) -> (Vec<usize>, Vec<usize>) {
        let of = |wanted| {
            let is_matmul = |op: &usize| left_operand(&self.graph.ops[*op]).is_some();
            let ops = self.ops.iter().filter(|(_, role)| **role == wanted);
            ops.map(|(op, _)| *op).filter(is_matmul).collect()
        };
        (of(Role::Source), of(Role::Sum))
    }

    /// Returns how many matrices side by side the root is.
    fn visit_readers_of_root(&mut self) -> Result<usize, String> {
        if self.uses.is_output(self.root) {
            return Ok(1);
        }
        let width = self.graph.value(self.root).width;
        let mut repeat = None;
        for reader in self.uses.readers(self.root) {
            let op = &self.graph.ops[*reader];
            if left_operand(op) != Some(self.root) {
                return Err(format!("{} reads a whole row", op.name()));
            }
            let weight = self.graph.weight(first_weight(op));
            if repeat.replace(width / weight.columns).is_some_and(|r| r != width / weight.columns) {
                return Err("a value that is read in two ways".to_owned());
            }
            // Blocks of formats are not divided.
            self.limit(AttentionSide::Query, weight.columns / weight.dtype.block_elements());
            self.ops.insert(*reader, Role::Sum);
        }
        repeat.ok_or_else(|| "no op reads it".to_owned())
    }

    fn limit(&mut self, side: AttentionSide, groups: usize) {
        let limit = &mut self.groups[side as usize];
        *limit = gcd(*limit, groups);
    }

    fn visit(&mut self, id: ValueId, repeat: usize, side: AttentionSide) -> Result<(), String> {
        let Some(writer) = self.uses.writers.get(&id).copied() else {
            return Err("a value without a writer".to_owned());
        };
        let graph = self.graph;
        let (width, op) = (graph.value(id).width, &graph.ops[writer]);
        if self.taken.contains_key(&writer) {
            return Err(format!("{} belongs to another region", op.name()));
        }
        match self.inputs(op, width, repeat, side) {
            Ok(Some(inputs)) => {
                self.ops.insert(writer, Role::Inner);
                self.next.extend(inputs);
            }
            Ok(None) => {
                self.ops.insert(writer, Role::Source);
            }
            Err(reason) => {
                self.slices.insert(id, (repeat, side, reason));
                self.limit(side, width / repeat);
                return Ok(());
            }
        }
        self.values.insert(id, (repeat, side));
        self.limit(side, width / repeat);
        Ok(())
    }

    /// The divided inputs of an op whose output is divided; `None` if it reads whole values. An
    /// error says why the output is whole.
    #[expect(clippy::type_complexity, reason = "read only here")]
    fn inputs(
        &mut self,
        op: &'a Op,
        width: usize,
        repeat: usize,
        side: AttentionSide,
    ) -> Result<Option<Vec<(ValueId, usize, AttentionSide)>>, String> {
        let all = |ids: &[ValueId]| Ok(Some(ids.iter().map(|id| (*id, repeat, side)).collect()));
        match op {
            Op::MatMul(_) if repeat == 1 && left_operand(op).is_some() => Ok(None),
            Op::ExpertMatMul(m) if left_operand(op).is_some() => {
                let rows = self.graph.weight(first_weight(op)).rows;
                if rows * repeat == width && self.graph.value(m.route).width == 2 * repeat {
                    Ok(None)
                } else {
                    Err("slots of experts that are read as one row".to_owned())
                }
            }
            Op::EmbedPosition { table, .. } if repeat == 1 => {
                let table = self.graph.weight(*table);
                self.limit(side, table.columns / table.dtype.block_elements());
                Ok(None)
            }
            Op::Glu { gate: a, up: b, .. } | Op::Add { a, b, .. } | Op::Mul { a, b, .. } => {
                all(&[*a, *b])
            }
            Op::Map { x, .. } | Op::ScaleByPosition { x, .. } => all(&[*x]),
            Op::ScaleExperts { x, route, .. } => {
                if self.graph.value(*route).width == 2 * repeat {
                    all(&[*x])
                } else {
                    Err("slots of experts that are read as one row".to_owned())
                }
            }
            Op::Gate { x, gate, .. } if repeat == 1 => {
                self.limit(side, self.graph.value(*gate).width);
                all(&[*x, *gate])
            }
            Op::RmsNorm { x, weight, .. } => {
                let weight = self.graph.weight(*weight);
                let groups = width / repeat / weight.columns;
                if groups < 2 || ![1, groups].contains(&weight.rows) {
                    return Err("a norm of the whole row".to_owned());
                }
                self.limit(side, groups);
                all(&[*x])
            }
            Op::Rope { x, rope, .. } if repeat == 1 => {
                self.limit(side, width / rope.head_dim);
                all(&[*x])
            }
            Op::SliceGroups { x, group, .. } if repeat == 1 => {
                self.limit(side, self.graph.value(*x).width / group);
                all(&[*x])
            }
            Op::JoinGroups { a, b, groups, .. } if repeat == 1 => {
                self.limit(side, *groups);
                all(&[*a, *b])
            }
            Op::Attention { append: None, q, attention, .. }
                if (repeat, side) == (1, AttentionSide::Query) && self.attention.is_none() =>
            {
                self.attend(*q, attention).map(Some)
            }
            Op::CausalConv(_) | Op::DeltaNet(_) | Op::StateSpace(_) | Op::SelectiveScan(_) => {
                Err("a recurrent state".to_owned())
            }
            op => Err(format!("the op {}", op.name())),
        }
    }

    /// The divided inputs of attention, and of the ops that append to its layer of the cache.
    fn attend(
        &mut self,
        q: ValueId,
        attention: &'a Attention,
    ) -> Result<Vec<(ValueId, usize, AttentionSide)>, String> {
        if attention.latent_dim.is_some() {
            return Err("latent attention".to_owned());
        }
        if attention.alibi.is_some() {
            return Err("attention with ALiBi, whose slopes depend on all heads".to_owned());
        }
        self.attention = Some(attention);
        self.kv_layers.push(attention.layer);
        let mut inputs = vec![(q, 1, AttentionSide::Query)];
        for (i, op) in self.graph.ops.iter().enumerate() {
            if let Op::KvAppend { k, v, layer } = op
                && *layer == attention.layer
                && !self.taken.contains_key(&i)
            {
                self.ops.insert(i, Role::Inner);
                inputs.extend(
                    [Some(*k), *v].into_iter().flatten().map(|x| (x, 1, AttentionSide::KeyValue)),
                );
            }
        }
        Ok(inputs)
    }

    /// The region, if it can be divided over parts and is worth a sum.
    pub(super) fn region(&self, shares: &[f32]) -> Result<Region, String> {
        let is_sliced = self.attention.is_some() && self.slices.values().all(|slice| slice.0 == 1);
        if let (false, Some((.., reason))) = (is_sliced, self.slices.values().next()) {
            return Err(reason.clone());
        }
        for id in self.values.keys().filter(|id| **id != self.root) {
            let readers = self.uses.readers(*id);
            let other = readers.iter().find(|reader| !self.ops.contains_key(reader));
            if let Some(other) = other {
                return Err(format!("{} reads a whole row", self.graph.ops[*other].name()));
            }
            if self.uses.is_output(*id) {
                return Err("the caller reads a whole row".to_owned());
            }
        }
        if self.uses.is_output(self.root)
            && !self.uses.readers(self.root).iter().all(is_output_op(self.graph))
        {
            return Err("an output that other ops read".to_owned());
        }
        self.check_size()?;
        let cuts = self.cuts(shares).ok_or_else(|| self.too_few(shares.len()))?;
        let columns = |repeat: usize, side: AttentionSide| Columns {
            repeat,
            cut: cuts[side as usize].clone(),
        };
        let values = self.values.iter().map(|(id, (repeat, side))| (*id, columns(*repeat, *side)));
        let slices =
            self.slices.iter().map(|(id, (repeat, side, _))| (*id, columns(*repeat, *side)));
        let num_kv_heads = self.attention.map_or(0, |attention| attention.num_kv_heads);
        let ranges = cuts[AttentionSide::KeyValue as usize].columns(num_kv_heads).collect();
        let kv_cut = Cut { units: num_kv_heads, ranges };
        Ok(Region {
            ops: self.ops.clone(),
            values: values.collect(),
            slices: slices.collect(),
            kv_layers: self.kv_layers.iter().map(|layer| (*layer, kv_cut.clone())).collect(),
        })
    }

    /// A sum over parts takes longer than small matrices save: those whose elements are few beside
    /// the square of the width of their input.
    fn check_size(&self) -> Result<(), String> {
        let elements = |op: &Op| match op {
            Op::MatMul(MatMul { projections, .. }) => {
                let shapes = projections.iter().map(|p| self.graph.weight(p.weight));
                shapes.map(|w| w.rows * w.columns).sum()
            }
            Op::ExpertMatMul(m) => m.projections[0].weights.len() * self.expert_elements(m),
            _ => 0,
        };
        let sources = || self.ops.iter().filter(|(_, role)| **role == Role::Source);
        let sources = sources().map(|(op, _)| &self.graph.ops[*op]);
        let sources: Vec<&Op> = sources.filter(|op| left_operand(op).is_some()).collect();
        if sources.is_empty() {
            return Err("no matmul before it".to_owned());
        }
        let columns = sources.iter().map(|op| self.graph.weight(first_weight(op)).columns).max();
        let columns = columns.unwrap_or(0);
        let all: usize = sources.iter().map(|op| elements(op)).sum();
        if 4 * all < columns * columns && !self.uses.is_output(self.root) {
            return Err("matrices too small for a sum over parts".to_owned());
        }
        Ok(())
    }

    fn expert_elements(&self, m: &ExpertMatMul) -> usize {
        self.graph.expert_weight(m).map_or(0, |w| w.rows * w.columns)
    }

    /// The cuts of both sides.
    fn cuts(&self, shares: &[f32]) -> Option<[Cut; 2]> {
        let [queries, keys] = self.groups;
        let width = |units: usize| {
            let (repeat, _) =
                self.values.get(&self.root).copied().unwrap_or((1, AttentionSide::Query));
            self.graph.value(self.root).width / repeat / units.max(1)
        };
        let Some(attention) = self.attention else {
            let cut = Cut::new(queries, width(queries), shares)?;
            return Some([cut.clone(), cut]);
        };
        let Attention { num_heads, num_kv_heads, .. } = *attention;
        let units = gcd(gcd(queries, keys), num_kv_heads);
        if let Some(cut) = Cut::new(units, width(units), shares) {
            return Some([cut.clone(), cut]);
        }
        let has_heads = gcd(keys, num_kv_heads) == num_kv_heads;
        Cut::of_shared_heads(gcd(queries, num_heads), num_kv_heads, shares).filter(|_| has_heads)
    }

    fn too_few(&self, parts: usize) -> String {
        let Some(attention) = self.attention else {
            let units = self.groups[AttentionSide::Query as usize];
            return format!("{units} blocks of columns for {parts} parts");
        };
        let Attention { num_heads, num_kv_heads, .. } = attention;
        format!("{num_heads} heads with {num_kv_heads} KV heads for {parts} parts")
    }
}

/// Returns true for the index of an op that hands a value to the caller.
fn is_output_op(graph: &Graph) -> impl Fn(&usize) -> bool {
    |op| matches!(graph.ops[*op], Op::Output { .. })
}

/// The left operand of a matmul that may end a region.
pub(super) fn left_operand(op: &Op) -> Option<ValueId> {
    match op {
        Op::MatMul(MatMul {
            prologue: Prologue::Plain(x),
            projections,
            residual: None,
            epilogue: Epilogue::None,
        }) if projections.len() == 1 => Some(*x),
        Op::ExpertMatMul(ExpertMatMul { x, projections, glu: None, combine: None, .. })
            if projections.len() == 1 =>
        {
            Some(*x)
        }
        _ => None,
    }
}

/// The weight of a matmul with one projection; of experts, the first one.
pub(super) fn first_weight(op: &Op) -> WeightId {
    match op {
        Op::MatMul(m) => m.projections[0].weight,
        Op::ExpertMatMul(m) => m.projections[0].weights[0],
        _ => unreachable!("`left_operand` accepts matmuls only"),
    }
}

/// The greatest common divisor; 0 counts as a multiple of everything.
fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
