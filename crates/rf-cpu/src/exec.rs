//! The executor: a program as steps, and the parallel region in which a team runs them.

#![expect(unsafe_code, reason = "disjoint mutable parts of shared buffers")]

mod attention;
mod experts;
mod heads;
mod latent;
mod matmul;
mod memory;
mod phases;
mod profile;
mod recurrent;
mod reduce;
mod rows;
mod steps;
mod storage;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memmap2::MmapMut;
use rf_graph::{
    BackendError, BackendExecutionSummary, Batch, BatchLimits, Costs, Executor, Graph, Member,
    MemoryUse, NonFiniteWeight, Output, Plan, Position, Program, Progress, Rope, RowKind, Span,
    Stage, Telemetry, Timeline, ValueId, WeightId,
};
use rf_kv::{CopyPage, PageGroup, PageId};

use crate::kv::{KvShape, KvStore};
use crate::panel::PackedMatrix;
use crate::simd::Isa;
use crate::state::StateStore;
use crate::team::{DisjointSlice, Rows, Team};
use matmul::{OperandBuffers, OperandSizes, Scratch};
use phases::{Phases, Walk};
use profile::{BatchClock, StepProfile};
use recurrent::SharedState;
use reduce::SharedReduction;
use steps::Step;
use storage::{StoragePlan, StoredWeight};

pub(crate) use memory::memory_need;

/// A program compiled for the CPU.
pub(crate) struct CpuExecutor {
    isa: Isa,
    team: Arc<Mutex<Team>>,
    graph: Graph,
    plan: Plan,
    limits: BatchLimits,
    weights: Vec<StoredWeight>,
    steps: Vec<Step>,
    stages: Vec<Stage>,
    phases: Phases,
    arena: MmapMut,
    operands: OperandBuffers,
    scratch: Vec<Scratch>,
    ropes: Vec<RopeTable>,
    kv: KvStore,
    states: StateStore,
    reduction: SharedReduction,
    costs: Costs,
    /// Number of batches so far.
    serial: u64,
    profile: Option<StepProfile>,
}

/// cos and sin of every coordinate up to the highest one used so far.
struct RopeTable {
    rope: Rope,
    /// See [`Rope::divides_text`].
    divides_text: bool,
    /// `[coordinates][pairs]` of (cos, sin).
    cos_sin: Vec<(f32, f32)>,
}

impl RopeTable {
    fn new(rope: Rope) -> Self {
        Self { divides_text: rope.divides_text(), rope, cos_sin: Vec::new() }
    }

    fn extend_to(&mut self, coordinates: usize) {
        let pairs = self.rope.inv_freq.len();
        for coordinate in self.cos_sin.len() / pairs.max(1)..coordinates {
            self.cos_sin.extend((0..pairs).map(|i| self.rope.cos_sin(coordinate, i)));
        }
    }

    /// cos and sin of each pair at a position. Those of different coordinates are gathered into
    /// `buffer`.
    fn at<'a>(&'a self, position: Position, buffer: &'a mut Vec<(f32, f32)>) -> &'a [(f32, f32)] {
        let pairs = self.rope.inv_freq.len();
        let [time, row, column, _] = position;
        let is_whole = time == row && time == column && !self.divides_text;
        if self.rope.axes.is_none() || is_whole {
            return &self.cos_sin[time as usize * pairs..][..pairs];
        }
        let of_pair = |i| self.cos_sin[self.rope.coordinate(position, i) * pairs + i];
        buffer.clear();
        buffer.extend((0..pairs).map(of_pair));
        buffer
    }
}

impl CpuExecutor {
    pub(crate) fn new(
        isa: Isa,
        team: Arc<Mutex<Team>>,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, BackendError> {
        let limits = BatchLimits::new(&program);
        let kv = KvStore::new(&program.kv)?;
        let states = StateStore::new(&program.kv)?;
        let reduction = SharedReduction::new(&program);
        let costs = Costs::new(&program);
        let Program { graph, weights, max_batch_tokens, .. } = program;
        let threads = team.lock().unwrap_or_else(PoisonError::into_inner).threads();
        let storage = StoragePlan::new(&graph, &weights);
        let mut ropes = Vec::new();
        let steps = graph.ops().iter().map(|op| Step::new(op, &storage, isa, &mut ropes));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        let weights = storage::load(&team, &storage, progress)?;
        let plan = Plan::new(&graph);
        let bytes = memory::arena_bytes(&plan, max_batch_tokens);
        let arena = MmapMut::map_anon(bytes)
            .map_err(|_| BackendError::OutOfMemory { what: "activations", bytes: bytes as u64 })?;
        #[cfg(target_os = "linux")]
        if let Err(e) = arena.advise(memmap2::Advice::HugePage) {
            tracing::debug!("no huge pages for activations: {e}");
        }
        let sizes = OperandSizes::new(&steps, &graph, max_batch_tokens);
        let operands = OperandBuffers::new(&sizes);
        let scratch = (0..threads).map(|_| Scratch::new(&sizes)).collect();
        Ok(Self {
            isa,
            team,
            plan,
            limits,
            weights,
            steps,
            stages: graph.stages(),
            graph,
            phases: Phases::default(),
            arena,
            operands,
            scratch,
            ropes,
            kv,
            states,
            reduction,
            costs,
            serial: 0,
            profile: None,
        })
    }
}

impl Executor for CpuExecutor {
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError> {
        let index = output.stage.unwrap_or(self.stages.len() - 1);
        let out = output.into_whole_rows()?;
        batch.check(&self.limits, index)?;
        let stage = &self.stages[index];
        // Several outputs have as many rows each.
        let rows = batch.rows(self.graph.value(stage.outputs[0]).rows);
        let width = self.graph.width_of(&stage.outputs);
        if out.len() != rows * width {
            let what = format!("room for {} outputs, {rows} × {width} are due", out.len());
            return Err(BackendError::InvalidBatch(what));
        }
        let input = batch.input_rows()?;
        let coordinates = batch.spans.iter().map(|span| span.max_coordinate() + 1).max();
        for rope in &mut self.ropes {
            rope.extend_to(coordinates.unwrap_or(0));
        }
        self.serial += 1;
        let token_spans = batch
            .spans
            .iter()
            .enumerate()
            .flat_map(|(i, span)| span.tokens.clone().map(move |_| i))
            .collect();
        let mut team = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        let region = Region {
            isa: self.isa,
            graph: &self.graph,
            plan: &self.plan,
            weights: &self.weights,
            ropes: &self.ropes,
            damaged: OnceLock::new(),
            threads: team.active(),
            batch,
            input,
            serial: self.serial,
            token_spans,
            arena: DisjointSlice::new(bytemuck::cast_slice_mut(&mut self.arena)),
            inputs: &stage.inputs,
            outputs: &stage.outputs,
            out: DisjointSlice::new(out),
            operands: self.operands.share(),
            kv: self
                .kv
                .layers
                .iter_mut()
                .map(|layer| SharedKv {
                    shape: layer.shape,
                    group: layer.group,
                    keys: DisjointSlice::new(&mut layer.keys),
                    values: DisjointSlice::new(&mut layer.values),
                })
                .collect(),
            states: SharedState::all(&mut self.states),
            reduction: &self.reduction,
        };
        self.phases.plan(&region, stage.ops.start, &self.steps[stage.ops.clone()]);
        let clock = self.profile.as_ref().map(|profile| profile.start(self.phases.deals().len()));
        let walk = Walk {
            region: &region,
            phases: &self.phases,
            steps: &self.steps,
            scratch: DisjointSlice::new(&mut self.scratch),
            times: clock.as_ref().map(BatchClock::step_times),
        };
        team.run(self.phases.deals(), &walk);
        if let Some(clock) = clock {
            let is_last = index + 1 == self.stages.len();
            clock.stop((&self.graph, &self.costs), stage.ops.clone(), is_last, batch);
        }
        self.reduction.finish()?;
        region.damaged.into_inner().map_or(Ok(()), |error| Err(error.into()))
    }

    fn join(&mut self, member: Member) -> Result<(), BackendError> {
        self.reduction.join(member);
        Ok(())
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        copies.iter().try_for_each(|copy| match copy.group {
            PageGroup::State => self.states.copy_page(*copy),
            PageGroup::Full | PageGroup::Window => self.kv.copy_page(*copy),
        })
    }

    fn read_page(
        &self,
        group: PageGroup,
        page: PageId,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        match group {
            PageGroup::State => self.states.read_page(page, out),
            PageGroup::Full | PageGroup::Window => self.kv.read_page(group, page, out),
        }
    }

    fn write_page(
        &mut self,
        group: PageGroup,
        page: PageId,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        match group {
            PageGroup::State => self.states.write_page(page, bytes),
            PageGroup::Full | PageGroup::Window => self.kv.write_page(group, page, bytes),
        }
    }

    fn memory(&self) -> MemoryUse {
        let scratch: usize = self.scratch.iter().map(Scratch::bytes).sum();
        MemoryUse {
            weights_bytes: self.weights.iter().map(StoredWeight::bytes).sum::<usize>() as u64,
            kv_bytes: self.kv.page_bytes() as u64,
            states_bytes: self.states.bytes(),
            buffers_bytes: (self.arena.len() + self.operands.bytes() + scratch) as u64
                + self.reduction.bytes(),
        }
    }

    fn telemetry(&mut self) -> Option<&mut dyn Telemetry> {
        Some(self)
    }
}

impl Telemetry for CpuExecutor {
    fn profile(&mut self, on: bool) {
        self.profile = on.then(|| StepProfile::new(self.steps.len()));
    }

    fn record_timeline(&mut self, max_events: usize) -> bool {
        let members = self.scratch.len();
        let Some(profile) = &mut self.profile else { return false };
        profile.record_timeline(max_events, members);
        true
    }

    fn timelines(&mut self) -> Vec<Timeline> {
        let profile = self.profile.as_ref();
        profile
            .and_then(|profile| profile.timeline(self.name(), &self.graph, &self.costs))
            .into_iter()
            .collect()
    }

    fn summaries(&mut self) -> Vec<BackendExecutionSummary> {
        let profile = self.profile.iter();
        profile.map(|profile| profile.summary(self.name(), &self.graph)).collect()
    }
}

impl CpuExecutor {
    /// The name of the backend, for reports.
    fn name(&self) -> String {
        format!("CPU ({})", crate::machine::description(self.isa, self.scratch.len()))
    }
}

/// The KV cache of one layer during a region.
struct SharedKv<'a> {
    shape: KvShape,
    group: PageGroup,
    keys: DisjointSlice<'a, u8>,
    values: DisjointSlice<'a, u8>,
}

/// The data that the steps of one batch share.
struct Region<'a> {
    isa: Isa,
    graph: &'a Graph,
    plan: &'a Plan,
    weights: &'a [StoredWeight],
    ropes: &'a [RopeTable],
    /// Set by a step that reads a row of a mapped table that is not finite.
    damaged: OnceLock<NonFiniteWeight>,
    /// Number of threads of the team that work at present.
    threads: usize,
    batch: &'a Batch<'a>,
    /// The values of the ops [`Op::Input`](rf_graph::Op::Input).
    input: &'a [f32],
    /// The number of this batch, from 1 on.
    serial: u64,
    /// Index of the span of each token.
    token_spans: Vec<usize>,
    arena: DisjointSlice<'a, f32>,
    /// The values that are read from the input of the batch.
    inputs: &'a [ValueId],
    /// The values that are written to `out`.
    outputs: &'a [ValueId],
    out: DisjointSlice<'a, f32>,
    operands: matmul::SharedOperands<'a>,
    kv: Vec<SharedKv<'a>>,
    states: Vec<SharedState<'a>>,
    reduction: &'a SharedReduction,
}

impl<'a> Region<'a> {
    fn tokens(&self) -> usize {
        self.batch.ids.len()
    }

    /// Number of rows of a value in this batch.
    fn num_rows(&self, id: ValueId) -> usize {
        match self.graph.value(id).rows {
            RowKind::Token => self.tokens(),
            RowKind::Output => self.batch.output_rows.len(),
        }
    }

    /// The width of the values that precede a value in a list.
    fn columns_before(&self, values: &[ValueId], id: ValueId) -> Option<usize> {
        let place = values.iter().position(|value| *value == id)?;
        Some(self.graph.width_of(&values[..place]))
    }

    /// The rows of a value in the arena.
    fn rows(&self, id: ValueId) -> Rows<'a> {
        let width = self.graph.value(id).width;
        if let Some(columns) = self.columns_before(self.outputs, id) {
            let first = columns * self.num_rows(id);
            return Rows { data: self.out.part(first..first + width * self.num_rows(id)), width };
        }
        let first = self.plan.offset(id) * self.tokens();
        Rows { data: self.arena.part(first..first + width * self.num_rows(id)), width }
    }

    fn vector(&self, id: WeightId) -> &'a [f32] {
        match &self.weights[id.index()] {
            StoredWeight::Vector(v) => v,
            _ => unreachable!("only matmuls and embeddings read other layouts"),
        }
    }

    fn matrix(&self, id: WeightId) -> &'a PackedMatrix {
        match &self.weights[id.index()] {
            StoredWeight::Matrix(m) => m,
            _ => unreachable!("a matmul weight is a matrix"),
        }
    }

    /// The span of a token, and its index within the span.
    fn place(&self, token: usize) -> (&'a Span<'a>, usize) {
        let span = &self.batch.spans[self.token_spans[token]];
        (span, token - span.tokens.start)
    }

    fn position(&self, token: usize) -> Position {
        let (span, index) = self.place(token);
        span.position(index)
    }

    /// The media row of a token; `None` if it is a token.
    fn media_row(&self, token: usize) -> Option<&'a [f32]> {
        let (span, index) = self.place(token);
        span.media_row(index)
    }
}
