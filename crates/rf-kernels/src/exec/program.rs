//! A program in device memory by address. Launches need no access to the buffers themselves.

use std::collections::HashMap;

use rf_graph::{Graph, Plan, RowNorm, ValueId, WeightId};
use rf_kv::PageGroup;

use super::analysis::GraphAnalysis;
use super::kv::KvPlace;
use super::media::MediaPlaces;
use super::step::StepShape;
use super::weights::WeightPlace;
use crate::params::{
    Activations, Address, Batch, Halves, KvCache, NormIn, NormOut, Operand, RowMemory, State,
};

/// The graph, its plan, and the addresses of weights, KV cache and activations.
pub(super) struct DeviceProgram {
    pub(super) graph: Graph,
    pub(super) analysis: GraphAnalysis,
    pub(super) plan: Plan,
    /// Weights by [`WeightId::index`].
    pub(super) weights: Vec<WeightPlace>,
    /// The layers of the KV cache.
    pub(super) kv: Vec<KvPlace>,
    /// The recurrent states.
    pub(super) states: Vec<State>,
    /// Tables of RoPE by op; 0 for other ops.
    pub(super) ropes: Vec<Address>,
    /// By number of heads, the head of every row of an operand with a row per token and head, as
    /// f32: [`Op::HeadMatMul`](rf_graph::Op::HeadMatMul) reads it as the route of a mixture of
    /// experts.
    pub(super) head_routes: Vec<(usize, Address)>,
    /// The arena of the plan.
    pub(super) arena: Address,
    pub(super) scratch: ScratchAddresses,
}

/// Memory that an op uses while it runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScratchAddresses {
    /// Scratch operand of matmuls that quantise their input.
    pub(super) operand: Activations,
    /// Scratch operand of f16 matmuls.
    pub(super) halves: Halves,
    /// Partial results of attention and matmuls.
    pub(super) partials: Address,
    /// Counters of finished partial results.
    pub(super) arrivals: Address,
    /// Tiles and slots of a mixture of experts or of heads, see [`GraphAnalysis::group_words`].
    pub(super) groups: Address,
}

/// A slot in host memory that the launches before a sum write.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectSlot {
    pub(super) index: usize,
    pub(super) address: Address,
}

/// A value in the form of a matmul operand.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredOperand {
    pub(super) operand: Operand,
    /// The missing factor of each row after an RMSNorm epilogue.
    pub(super) norm: Option<NormIn>,
}

/// A program and a batch of some shape.
#[derive(Clone, Copy)]
pub(super) struct BatchProgram<'a> {
    pub(super) program: &'a DeviceProgram,
    pub(super) shape: StepShape,
    /// The arrays of the batch in device memory, with the pages of each group, by
    /// [`PageGroup::index`].
    pub(super) groups: [Batch; 3],
    /// The rows of the tables of RoPE, by token.
    pub(super) rope_rows: Address,
    pub(super) media: MediaPlaces<'a>,
    /// Summands that are not in the arena but where other devices read them.
    pub(super) summands: &'a HashMap<ValueId, DirectSlot>,
}

impl BatchProgram<'_> {
    /// The arrays of the batch, for ops that read no pages.
    pub(super) fn batch(&self) -> &Batch {
        &self.groups[0]
    }

    /// The arrays of the batch with the pages of a layer of the KV cache, and its memory.
    pub(super) fn cache(&self, layer: usize) -> (Batch, KvCache) {
        let KvPlace { cache, group } = self.program.kv[layer];
        (self.groups[group.index()], cache)
    }

    /// The arrays of the batch with the pages of recurrent states, and one of the states.
    pub(super) fn state(&self, state: usize) -> (Batch, State) {
        (self.groups[PageGroup::State.index()], self.program.states[state])
    }

    /// Addresses of a value that is stored as an operand, one after the other: f32, f16, codes and
    /// their scales, scales of f16, sums of squares.
    pub(super) fn operand(&self, id: ValueId) -> Option<StoredOperand> {
        let form = self.program.analysis.operand(id)?;
        let (rows, width) = (self.rows(id), self.width(id));
        let mut next = self.address(id);
        let mut take = |floats: usize| {
            let address = next;
            next += 4 * floats as Address;
            address
        };
        let forms = form.forms(rows);
        let f32 = if forms.f32 { take(rows * width) } else { 0 };
        let mut f16 = Halves::default();
        if let Some(order) = forms.f16 {
            f16 = order.of(Halves { x: take(rows * width / 2), ..f16 });
        }
        let mut q8 = Activations::default();
        if forms.q8 {
            q8 = Activations { q: take(rows * width / 4), meta: take(rows * width / 16) };
        }
        if forms.f16.is_some() {
            f16.scale = take(rows * width / form.columns);
        }
        let norm = form.missing_norm(rows).map(|eps| NormIn {
            squares: take(rows * width / 32),
            count: (width / 32) as u32,
            eps,
        });
        Some(StoredOperand { operand: Operand { q8, f32, f16 }, norm })
    }

    /// The norm that the op before it writes; `None` if the norm has its own launch.
    pub(super) fn norm_out(&self, norm: &RowNorm) -> Option<NormOut> {
        let StoredOperand { operand, norm: lacking } = self.operand(norm.out)?;
        let squares = lacking?.squares;
        Some(NormOut { weight: self.vector(norm.weight), out: operand, squares })
    }

    pub(super) fn weight(&self, id: WeightId) -> &WeightPlace {
        &self.program.weights[id.index()]
    }
}

impl RowMemory for BatchProgram<'_> {
    fn address(&self, id: ValueId) -> Address {
        if let Some(slot) = self.summands.get(&id) {
            return slot.address;
        }
        self.program.arena + 4 * (self.program.plan.offset(id) * self.shape.tokens) as Address
    }

    fn output(&self, id: ValueId) -> Operand {
        match self.operand(id) {
            Some(stored) => stored.operand,
            None => Operand { f32: self.address(id), ..Operand::default() },
        }
    }

    fn is_operand(&self, id: ValueId) -> bool {
        self.program.analysis.operand(id).is_some()
    }

    fn rows(&self, id: ValueId) -> usize {
        self.shape.rows_of(self.program.graph.value(id).rows)
    }

    fn width(&self, id: ValueId) -> usize {
        self.program.graph.value(id).width
    }

    fn output_shape(&self, id: ValueId) -> [usize; 2] {
        let (rows, width) = (self.rows(id), self.width(id));
        let columns = self.program.analysis.operand(id).map_or(width, |form| form.columns);
        [rows * width / columns, columns]
    }

    fn vector(&self, id: WeightId) -> Address {
        self.weight(id).planes.low
    }

    fn group(&self, id: WeightId) -> usize {
        self.program.graph.weight(id).columns
    }

    fn weight_rows(&self, id: WeightId) -> usize {
        self.program.graph.weight(id).rows
    }

    fn output_rows(&self) -> Address {
        self.batch().output_rows
    }

    fn positions(&self) -> Address {
        self.rope_rows
    }
}
