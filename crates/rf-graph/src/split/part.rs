//! A part of a program, with its values, weights, layers and parts of the cache renumbered.

use std::ops::Range;

use crate::graph::Graph;
use crate::kv::KvLayout;
use crate::op::{Op, Operand};
use crate::value::{ValueId, WeightId};
use crate::weight::Weight;

/// New indices of the parts of the cache that a side uses, by the old ones.
pub(super) struct Caches {
    kv_layers: Vec<Option<usize>>,
    states: Vec<Option<usize>>,
}

impl Caches {
    /// The parts that some ops use.
    pub(super) fn of<'g>(own: impl Iterator<Item = &'g Op>, kv: &KvLayout) -> Self {
        let mut kv_layers = vec![None; kv.layers.len()];
        let mut states = vec![None; kv.states.len()];
        for operand in own.flat_map(Op::operands) {
            match operand {
                Operand::KvLayer(layer) => kv_layers[*layer] = Some(0),
                Operand::State(state) => states[*state] = Some(0),
                _ => {}
            }
        }
        for indices in [&mut kv_layers, &mut states] {
            (0..).zip(indices.iter_mut().flatten()).for_each(|(new, index)| *index = new);
        }
        Self { kv_layers, states }
    }

    /// The part of a cache that the side uses.
    pub(super) fn layout(&self, kv: &KvLayout) -> KvLayout {
        fn used<T: Copy>(all: &[T], indices: &[Option<usize>]) -> Vec<T> {
            all.iter().zip(indices).filter_map(|(each, index)| index.map(|_| *each)).collect()
        }
        let layers = used(&kv.layers, &self.kv_layers);
        KvLayout { layers, states: used(&kv.states, &self.states), ..kv.clone() }
    }
}

/// A part of a program, with its values, weights and layers renumbered.
pub(super) struct ProgramPart<'a> {
    whole: &'a Graph,
    whole_weights: &'a [Weight],
    caches: Caches,
    graph: Graph,
    weights: Vec<Weight>,
    /// New ids by the index of the old ids. No value is alive across stages, so each stage has
    /// values of its own.
    value_ids: Vec<Option<ValueId>>,
    weight_ids: Vec<Option<WeightId>>,
    /// The end of the last ops of each layer of the whole program.
    layer_ends: Vec<Option<usize>>,
}

impl<'a> ProgramPart<'a> {
    pub(super) fn new(whole: &'a Graph, whole_weights: &'a [Weight], caches: Caches) -> Self {
        let graph = Graph {
            ops: Vec::new(),
            values: Vec::new(),
            output: whole.output,
            weights: Vec::new(),
            layer_ends: Vec::new(),
        };
        Self {
            whole,
            whole_weights,
            caches,
            graph,
            weights: Vec::new(),
            value_ids: vec![None; whole.values.len()],
            weight_ids: vec![None; whole_weights.len()],
            layer_ends: vec![None; whole.layer_ends.len()],
        }
    }

    /// Adds ops with the values that are handed over before and after them. Without such outputs,
    /// the ops are the end of a stage of the whole program.
    pub(super) fn add_stage(
        &mut self,
        inputs: &[ValueId],
        range: Range<usize>,
        outputs: &[ValueId],
    ) {
        let ops = &self.whole.ops[range.clone()];
        let first = self.graph.ops.len() + inputs.len();
        let starts = [0].into_iter().chain(self.whole.layer_ends.iter().copied());
        for ((start, end), own) in
            starts.zip(&self.whole.layer_ends).zip(self.layer_ends.iter_mut())
        {
            let (start, end) = (range.start.max(start), range.end.min(*end));
            if start < end {
                *own = Some(first + end - range.start);
            }
        }
        self.value_ids.fill(None);
        let last_output = ops.iter().rev().find_map(|op| match op {
            Op::Output { x } => Some(*x),
            _ => None,
        });
        let output = outputs.first().copied().or(last_output).unwrap_or(self.whole.output);
        let inputs = inputs.iter().map(|out| Op::Input { out: *out });
        let outputs_of = outputs.iter().map(|x| Op::Output { x: *x });
        for mut op in inputs.chain(ops.iter().cloned()).chain(outputs_of) {
            self.renumber(&mut op);
            self.graph.ops.push(op);
        }
        self.graph.output = self.value(output);
    }

    pub(super) fn finish(self) -> (Graph, Vec<Weight>) {
        let layer_ends = self.layer_ends.into_iter().flatten().collect();
        (Graph { layer_ends, ..self.graph }, self.weights)
    }

    fn value(&mut self, id: ValueId) -> ValueId {
        let values = &mut self.graph.values;
        *self.value_ids[id.index()].get_or_insert_with(|| {
            values.push(self.whole.value(id));
            ValueId(values.len() as u32 - 1)
        })
    }

    fn weight(&mut self, id: WeightId) -> WeightId {
        *self.weight_ids[id.index()].get_or_insert_with(|| {
            self.weights.push(self.whole_weights[id.index()].clone());
            self.graph.weights.push(self.whole.weight(id));
            WeightId(self.weights.len() as u32 - 1)
        })
    }

    fn renumber(&mut self, op: &mut Op) {
        for operand in op.operands_mut() {
            match operand {
                Operand::Input(id) | Operand::Output(id) | Operand::Scratch(id) => {
                    *id = self.value(*id);
                }
                Operand::Matrix(id) | Operand::Table(id) | Operand::Vector(id) => {
                    *id = self.weight(*id);
                }
                Operand::KvLayer(layer) => {
                    *layer = self.caches.kv_layers[*layer].expect("a layer of this part");
                }
                Operand::State(state) => {
                    *state = self.caches.states[*state].expect("a state of this part");
                }
            }
        }
    }
}
