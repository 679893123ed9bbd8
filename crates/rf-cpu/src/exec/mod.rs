//! The executor: a program as steps, and the parallel region in which a team runs them.

#![expect(unsafe_code, reason = "disjoint mutable parts of shared buffers")]

mod attention;
mod experts;
mod matmul;
mod memory;
mod profile;
mod rows;
mod steps;
mod storage;

use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapMut;
use rf_graph::{
    BackendError, BackendExecutionSummary, Batch, BatchLimits, Costs, Executor, Graph, MemoryUse,
    Plan, Program, Progress, Rope, RowKind, Span, Stage, Timeline, ValueId, WeightId,
};
use rf_kv::{CopyPage, PageGroup};

use crate::kv::{KvShape, KvStore};
use crate::panel::PackedMatrix;
use crate::simd::Isa;
use crate::team::{Counter, Member, Rows, Shared, Team};
use matmul::{OperandBuffers, OperandSizes, Scratch};
use profile::{BatchClock, Profile, StepTimes};
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
    /// Loop counters, two per step: a step has at most two shared loops.
    counters: Vec<Counter>,
    arena: MmapMut,
    operands: OperandBuffers,
    scratch: Vec<Scratch>,
    ropes: Vec<RopeTable>,
    kv: KvStore,
    costs: Costs,
    profile: Option<Profile>,
}

/// cos and sin of every position up to the highest one used so far.
struct RopeTable {
    rope: Rope,
    /// `[positions][pairs]` of (cos, sin).
    cos_sin: Vec<(f32, f32)>,
}

impl RopeTable {
    fn extend_to(&mut self, positions: usize) {
        let pairs = self.rope.inv_freq.len();
        for position in self.cos_sin.len() / pairs.max(1)..positions {
            self.cos_sin.extend((0..pairs).map(|i| self.rope.cos_sin(position, i)));
        }
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
        let counters = (0..2 * steps.len()).map(|_| Counter::default()).collect();
        Ok(Self {
            isa,
            team,
            plan,
            limits,
            weights,
            steps,
            stages: graph.stages(),
            graph,
            counters,
            arena,
            operands,
            scratch,
            ropes,
            kv,
            costs,
            profile: None,
        })
    }
}

impl CpuExecutor {
    fn threads(&self) -> usize {
        self.team.lock().unwrap_or_else(PoisonError::into_inner).threads()
    }

    /// The name of the backend, for reports.
    fn name(&self) -> String {
        format!("CPU ({})", crate::machine::description(self.isa, self.threads()))
    }
}

impl Executor for CpuExecutor {
    fn forward(&mut self, batch: &Batch<'_>, out: &mut [f32]) -> Result<(), BackendError> {
        self.forward_stage(self.stages.len() - 1, batch, out)
    }

    fn forward_stage(
        &mut self,
        index: usize,
        batch: &Batch<'_>,
        out: &mut [f32],
    ) -> Result<(), BackendError> {
        batch.check(&self.limits, index)?;
        let stage = &self.stages[index];
        let output = self.graph.value(stage.output);
        let (rows, width) = (batch.rows(output.rows), output.width);
        if out.len() != rows * width {
            let what = format!("room for {} outputs, {rows} × {width} are due", out.len());
            return Err(BackendError::InvalidBatch(what));
        }
        let positions = batch.spans.iter().map(|s| s.past_tokens + s.tokens.len()).max();
        for rope in &mut self.ropes {
            rope.extend_to(positions.unwrap_or(0));
        }
        self.counters.iter_mut().for_each(Counter::reset);
        let token_spans = batch
            .spans
            .iter()
            .enumerate()
            .flat_map(|(i, span)| span.tokens.clone().map(move |_| i))
            .collect();
        let region = Region {
            isa: self.isa,
            graph: &self.graph,
            plan: &self.plan,
            weights: &self.weights,
            ropes: &self.ropes,
            batch,
            token_spans,
            arena: Shared::new(bytemuck::cast_slice_mut(&mut self.arena)),
            output: stage.output,
            out: Shared::new(out),
            operands: self.operands.share(),
            kv: self
                .kv
                .layers
                .iter_mut()
                .map(|layer| SharedKv {
                    shape: layer.shape,
                    group: layer.group,
                    keys: Shared::new(&mut layer.keys),
                    values: Shared::new(&mut layer.values),
                })
                .collect(),
        };
        let scratch = Shared::new(&mut self.scratch);
        let steps = (stage.ops.start, &self.steps[stage.ops.clone()]);
        let team = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = self.profile.as_ref().map(Profile::start);
        let step_times = clock.as_ref().map(BatchClock::step_times);
        team.run(&self.counters, |member| region.walk(member, steps, scratch, step_times));
        if let Some(clock) = clock {
            let is_last = index + 1 == self.stages.len();
            clock.stop((&self.graph, &self.costs), stage.ops.clone(), is_last, batch);
        }
        Ok(())
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        copies.iter().try_for_each(|copy| self.kv.copy_page(*copy))
    }

    fn memory(&self) -> MemoryUse {
        let scratch: usize = self.scratch.iter().map(Scratch::bytes).sum();
        MemoryUse {
            weights_bytes: self.weights.iter().map(StoredWeight::bytes).sum::<usize>() as u64,
            kv_bytes: self.kv.page_bytes() as u64,
            buffers_bytes: (self.arena.len() + self.operands.bytes() + scratch) as u64,
        }
    }

    fn profile(&mut self, on: bool) -> bool {
        self.profile = on.then(|| Profile::new(self.steps.len()));
        true
    }

    fn record_timeline(&mut self, max_events: usize) -> bool {
        let threads = self.threads();
        let Some(profile) = &mut self.profile else { return false };
        profile.record_timeline(max_events, threads);
        true
    }

    fn timelines(&self) -> Vec<Timeline> {
        let timeline = |profile: &Profile| profile.timeline(self.name(), &self.graph, &self.costs);
        self.profile.as_ref().and_then(timeline).into_iter().collect()
    }

    fn summaries(&self) -> Vec<BackendExecutionSummary> {
        let summary = |profile: &Profile| profile.summary(self.name(), &self.graph);
        self.profile.as_ref().map(summary).into_iter().collect()
    }
}

/// The KV cache of one layer during a region.
struct SharedKv<'a> {
    shape: KvShape,
    group: PageGroup,
    keys: Shared<'a, u8>,
    values: Shared<'a, u8>,
}

/// The data that the steps of one batch share.
struct Region<'a> {
    isa: Isa,
    graph: &'a Graph,
    plan: &'a Plan,
    weights: &'a [StoredWeight],
    ropes: &'a [RopeTable],
    batch: &'a Batch<'a>,
    /// Index of the span of each token.
    token_spans: Vec<usize>,
    arena: Shared<'a, f32>,
    /// The value that is written to `out`.
    output: ValueId,
    out: Shared<'a, f32>,
    operands: matmul::SharedOperands<'a>,
    kv: Vec<SharedKv<'a>>,
}

/// The index of a step, which selects the counters of its shared loops.
#[derive(Clone, Copy)]
struct StepIndex(usize);

impl StepIndex {
    fn first_loop(self) -> usize {
        2 * self.0
    }

    fn second_loop(self) -> usize {
        2 * self.0 + 1
    }
}

impl<'a> Region<'a> {
    /// Runs steps, given with the index of the first one, with a barrier after each.
    fn walk(
        &self,
        member: &Member<'_>,
        (first, steps): (usize, &[Step]),
        scratch: Shared<'_, Scratch>,
        step_times: Option<StepTimes<'_>>,
    ) {
        // SAFETY: each member accesses its own element.
        let [scratch] = (unsafe { scratch.get_mut(member.index..member.index + 1) }) else {
            return;
        };
        if let Some(times) = step_times {
            times.enter();
        }
        let mut stopwatch = step_times.and_then(|times| times.stopwatch(member.index));
        for (i, step) in (first..).zip(steps) {
            self.step(member, StepIndex(i), step, scratch);
            if let Some(stopwatch) = &mut stopwatch {
                stopwatch.part(i);
            }
            member.barrier_then(|| {
                if let Some(times) = step_times {
                    times.step_ended(i);
                }
            });
            if let Some(stopwatch) = &mut stopwatch {
                stopwatch.next_lap();
            }
        }
    }

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

    /// The rows of a value in the arena.
    fn rows(&self, id: ValueId) -> Rows<'a> {
        let width = self.graph.value(id).width;
        if id == self.output {
            return Rows { data: self.out, width };
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

    /// The span and the position of a token.
    fn place(&self, token: usize) -> (&'a Span<'a>, usize) {
        let span = &self.batch.spans[self.token_spans[token]];
        (span, span.past_tokens + token - span.tokens.start)
    }
}
