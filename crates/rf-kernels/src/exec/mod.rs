//! The executor: a program in device memory and the launches for batches of each shape.
//!
//! For each batch the host uploads its data in one copy, queues the launches, queues the copy of
//! the output and waits once. Launches of decode (a few tokens) are recorded once per [`Shape`]
//! and, if the runtime supports it, replayed as a captured graph. Launches of a prompt chunk are
//! recorded each time.

mod analysis;
mod kv;
mod memory;
mod profile;
mod program;
mod record;
mod rope;
mod step;
mod top_k;
mod weights;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use rf_graph::{
    BackendError, BackendExecutionSummary, Batch, BatchLimits, Candidate, Costs, Executor,
    MemoryUse, Plan, Program, Progress, Stage, Timeline,
};
use rf_hip::{DeviceBuffer, GraphExec, PinnedBuffer, Stream};
use rf_kv::{CopyPage, PageGroup, PageId};

use crate::error::Error;
use crate::launch::{Gpu, Recording};
use crate::params::{Activations, Address, MatmulDevice};
use analysis::{GraphAnalysis, SPARE_ROWS};
use kv::{KvMemory, KvPlan, SavedStates};
use profile::Profile;
use program::{BatchProgram, DeviceProgram, ScratchAddresses};
use rope::RopeTables;
use step::{Shape, StepMemory, StepSizes};
use top_k::TopK;
use weights::{WeightPlan, Weights};

pub(crate) use memory::memory_need;
pub(crate) use record::FUSIONS;

/// Largest number of tokens of a decode batch. Launches of decode batches are kept and captured.
const DECODE_TOKENS: usize = 8;

/// Largest output that is copied through pinned memory. Larger outputs, as for perplexity, are
/// copied to pageable memory.
const PINNED_OUTPUT_FLOATS: usize = 4 << 20;

/// The use of captured graphs for decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphMode {
    /// Replay of captured graphs, if the runtime supports it and the replay gives the same bits as
    /// plain launches.
    #[default]
    On,
    /// Plain launches for every batch.
    Off,
}

/// A compiled program on a GPU.
pub(crate) struct GpuExecutor {
    gpu: Arc<Gpu>,
    stream: Stream,
    program: DeviceProgram,
    limits: BatchLimits,
    weights: Weights,
    kv: KvMemory,
    ropes: RopeTables,
    step: StepMemory,
    work: Work,
    output: PinnedBuffer<f32>,
    stages: Vec<Stage>,
    /// By shape and stage.
    decode: HashMap<(Shape, usize), Decode>,
    graphs: GraphMode,
    costs: Costs,
    profile: Option<Profile>,
    top_k: Option<TopK>,
}

/// The requested output and its destination.
enum Output<'a> {
    /// Whole rows, `[rows, width]`.
    Rows(&'a mut [f32]),
    /// The largest elements of each row: their number per row, and `[rows, k]` candidates.
    Best(usize, &'a mut [Candidate]),
}

/// The launches of a decode step.
struct Decode {
    recording: Recording,
    replay: Replay,
}

/// True if a recording can be replayed as a graph.
enum Replay {
    /// Not captured yet. The first run uses plain launches.
    Untried,
    /// Captured; the first replay gave the same bits as the launches.
    Checked(GraphExec),
    /// Not supported, or the first replay gave other bits.
    Off,
}

/// Activations in device memory.
pub(crate) struct Work {
    /// The arena of the plan.
    arena: DeviceBuffer<f32>,
    /// Scratch operand of matmuls that quantise their input.
    operand: Q8Buffer,
    /// Partial results of attention with divided keys (sums and statistics), and of matmuls with
    /// divided columns.
    partials: DeviceBuffer<f32>,
    /// Counters of finished partial results.
    arrivals: DeviceBuffer<u32>,
    /// Slots of a mixture of experts, grouped by expert.
    groups: DeviceBuffer<u32>,
    /// The head of each row of an operand of heads.
    head_rows: DeviceBuffer<f32>,
}

struct Q8Buffer {
    q: DeviceBuffer<i8>,
    meta: DeviceBuffer<f32>,
}

impl Q8Buffer {
    fn new(stream: &Stream, elements: usize) -> Result<Self, Error> {
        let context = stream.context();
        Ok(Self {
            q: DeviceBuffer::new(context, elements)?,
            meta: DeviceBuffer::new(context, elements / 16)?,
        })
    }

    fn params(&self) -> Activations {
        Activations { q: self.q.address(), meta: self.meta.address() }
    }
}

impl Work {
    /// Bytes of all buffers for the largest batch.
    fn bytes(analysis: &GraphAnalysis, plan: &Plan, max_tokens: usize) -> usize {
        let operand = analysis.scratch_elements(max_tokens);
        let arena = plan.floats_per_row() * (max_tokens + SPARE_ROWS);
        let counts = analysis.arrival_count(max_tokens) + analysis.group_words(max_tokens);
        let floats = arena + analysis.partial_floats() + analysis.head_rows(max_tokens).len();
        4 * (floats + counts) + operand + operand / 4
    }

    fn held_bytes(&self) -> usize {
        self.arena.size_bytes()
            + self.operand.q.size_bytes()
            + self.operand.meta.size_bytes()
            + self.partials.size_bytes()
            + self.arrivals.size_bytes()
            + self.groups.size_bytes()
            + self.head_rows.size_bytes()
    }

    fn new(
        stream: &Stream,
        analysis: &GraphAnalysis,
        plan: &Plan,
        max_tokens: usize,
    ) -> Result<Self, Error> {
        let context = stream.context();
        let arena = plan.floats_per_row() * (max_tokens + SPARE_ROWS);
        let heads = analysis.head_rows(max_tokens);
        let head_rows = DeviceBuffer::new(context, heads.len())?;
        head_rows.copy_from_slice(stream, 0, &heads)?;
        Ok(Self {
            head_rows,
            arena: DeviceBuffer::new(context, arena)?,
            operand: Q8Buffer::new(stream, analysis.scratch_elements(max_tokens))?,
            partials: DeviceBuffer::new(context, analysis.partial_floats())?,
            arrivals: DeviceBuffer::zeroed(context, analysis.arrival_count(max_tokens))?,
            groups: DeviceBuffer::new(context, analysis.group_words(max_tokens))?,
        })
    }

    fn scratch(&self) -> ScratchAddresses {
        ScratchAddresses {
            operand: self.operand.params(),
            partials: self.partials.address(),
            arrivals: self.arrivals.address(),
            groups: self.groups.address(),
        }
    }
}

impl GpuExecutor {
    pub(crate) fn new(
        gpu: Arc<Gpu>,
        graphs: GraphMode,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let (limits, costs) = (BatchLimits::new(&program), Costs::new(&program));
        let Program { graph, weights, kv, max_batch_tokens, max_output_rows } = program;
        let device = MatmulDevice::new(gpu.compute_units(), &gpu.context().info().arch);
        let analysis = GraphAnalysis::new(&graph, device);
        let plan = Plan::with_floats(&graph, |id| analysis.floats(&graph, id));
        let weight_plan = WeightPlan::new(&graph, &weights);
        let kv_plan = KvPlan::new(&kv)?;
        let mut ropes = RopeTables::new(kv_plan.positions());

        let stream = Stream::new(gpu.context())?;
        // Load the weights last, so that no weight is read if an allocation fails.
        let work = Work::new(&stream, &analysis, &plan, max_batch_tokens)?;
        let kv_memory = KvMemory::new(&stream, kv_plan)?;
        let sizes = StepSizes::new(max_batch_tokens, max_output_rows, kv.num_pages);
        let step = StepMemory::new(gpu.context(), sizes)?;
        let addresses = graph.ops().iter().map(|op| match record::rope_of(op) {
            Some(rope) => ropes.address(gpu.context(), rope),
            None => Ok(0),
        });
        let rope_addresses = addresses.collect::<Result<_, _>>()?;
        let weights = Weights::load(&stream, &weight_plan, weights, progress)?;
        let stages = graph.stages();
        let width = stages.iter().map(|stage| graph.width_of(&stage.outputs)).max().unwrap_or(1);
        let rows = max_output_rows.max(max_batch_tokens);
        let output =
            PinnedBuffer::new(gpu.context(), (width * rows).min(PINNED_OUTPUT_FLOATS.max(width)))?;
        let head_routes = analysis.head_routes(max_batch_tokens, work.head_rows.address());
        let program = DeviceProgram {
            graph,
            analysis,
            plan,
            weights: weights.places(&weight_plan),
            kv: kv_memory.places(),
            states: kv_memory.states(),
            ropes: rope_addresses,
            head_routes,
            arena: work.arena.address(),
            scratch: work.scratch(),
        };
        let executor = Self {
            gpu,
            stream,
            program,
            limits,
            weights,
            kv: kv_memory,
            ropes,
            step,
            work,
            output,
            stages,
            decode: HashMap::new(),
            graphs,
            costs,
            profile: None,
            top_k: None,
        };
        executor.load_kernels()?;
        Ok(executor)
    }

    /// Loads the kernels for one token and for a whole prompt, so that the first batch does not
    /// load them. An op that this backend does not support is an error.
    fn load_kernels(&self) -> Result<(), Error> {
        let shape = |tokens: usize| Shape {
            tokens,
            spans: 1,
            outputs: 1,
            shortest_span: tokens,
            longest_span: tokens,
            context: tokens,
        };
        for stage in 0..self.stages.len() {
            self.record(shape(1), stage)?;
            self.record(shape(self.limits.max_batch_tokens), stage)?;
        }
        top_k::KERNELS.iter().try_for_each(|kernel| self.gpu.function(kernel).map(drop))
    }

    fn record(&self, shape: Shape, stage: usize) -> Result<Recording, Error> {
        let groups = PageGroup::ALL.map(|group| self.step.params(&shape, group));
        let program = BatchProgram { program: &self.program, shape, groups };
        let list = record::record(program, self.stages[stage].ops.clone())?;
        Recording::load(&self.gpu, list)
    }

    /// The number of output rows of a stage, and their width.
    fn output_shape(&self, stage: usize, shape: Shape) -> (usize, usize) {
        let (graph, outputs) = (&self.program.graph, &self.stages[stage].outputs);
        // Several outputs have as many rows each.
        (shape.rows_of(graph.value(outputs[0]).rows), graph.width_of(outputs))
    }

    /// Runs the recording of a decode step, as a graph once the graph is verified.
    fn run_decode(
        &mut self,
        batch: &Batch<'_>,
        (shape, stage): (Shape, usize),
        out: Output<'_>,
    ) -> Result<(), Error> {
        let decode = match self.decode.remove(&(shape, stage)) {
            Some(decode) => decode,
            None => Decode { recording: self.record(shape, stage)?, replay: Replay::Untried },
        };
        let Decode { recording, mut replay } = decode;
        let outcome = self.run_recorded(&recording, &mut replay, batch, (shape, stage), out);
        self.decode.insert((shape, stage), Decode { recording, replay });
        outcome
    }

    fn run_recorded(
        &mut self,
        recording: &Recording,
        replay: &mut Replay,
        batch: &Batch<'_>,
        (shape, stage): (Shape, usize),
        out: Output<'_>,
    ) -> Result<(), Error> {
        match replay {
            Replay::Checked(graph) => graph.launch(&self.stream)?,
            Replay::Untried if self.graphs == GraphMode::On => {
                let before = self.kv.save_states(&self.stream, batch)?;
                recording.queue(&self.stream)?;
                let (rows, width) = self.output_shape(stage, shape);
                let mut rows = vec![0.0; rows * width];
                self.read_output(shape, stage, &mut rows)?;
                *replay = self.check_replay(recording, (batch, &before), (shape, stage), &rows);
                if matches!(replay, Replay::Off) {
                    // Overwrite the results of the wrong replay.
                    self.kv.restore_states(&self.stream, &before)?;
                    self.upload_input(batch, shape, stage)?;
                    recording.queue(&self.stream)?;
                }
            }
            Replay::Untried | Replay::Off => recording.queue(&self.stream)?,
        }
        self.collect(shape, stage, out)
    }

    /// Captures a recording and replays it for the batch that has just run. The replay writes the
    /// same values to the same places of the KV cache, and starts with the recurrent states
    /// `before` that batch, so its output must be the same.
    fn check_replay(
        &mut self,
        recording: &Recording,
        (batch, before): (&Batch<'_>, &SavedStates),
        (shape, stage): (Shape, usize),
        expected: &[f32],
    ) -> Replay {
        let mut replayed = vec![f32::NAN; expected.len()];
        let graph = recording.capture(&self.stream).and_then(|graph| {
            self.kv.restore_states(&self.stream, before)?;
            self.upload_input(batch, shape, stage)?;
            graph.launch(&self.stream)?;
            self.read_output(shape, stage, &mut replayed)?;
            Ok(graph)
        });
        match graph {
            Ok(graph) if bits_equal(&replayed, expected) => Replay::Checked(graph),
            Ok(_) => {
                tracing::warn!(
                    "graph replay disabled: its results differ from those of plain launches"
                );
                Replay::Off
            }
            Err(error) => {
                tracing::warn!(
                    "graph replay disabled: could not capture {} launches: {error}",
                    recording.len()
                );
                Replay::Off
            }
        }
    }

    /// Waits for the queue and copies the requested part of a stage's output.
    fn collect(&mut self, shape: Shape, stage: usize, out: Output<'_>) -> Result<(), Error> {
        match out {
            Output::Rows(rows) => self.read_output(shape, stage, rows),
            Output::Best(k, best) => {
                let output = self.program.graph.output();
                let offset = self.program.plan.offset(output) * shape.tokens;
                let logits = self.program.arena + 4 * offset as Address;
                let width = self.program.graph.value(output).width;
                let device = (&*self.gpu, &self.stream, self.profile.as_mut());
                TopK::choose(&mut self.top_k, device, (logits, width), k, best)
            }
        }
    }

    /// Waits for the queue and copies a stage's output.
    fn read_output(&mut self, shape: Shape, stage: usize, out: &mut [f32]) -> Result<(), Error> {
        let (rows, _) = self.output_shape(stage, shape);
        let (program, outputs) = (&self.program, &self.stages[stage].outputs);
        let (arena, stream, pinned) = (&self.work.arena, &self.stream, &mut self.output);
        let bytes = size_of_val(out);
        let is_pinned = out.len() <= pinned.len();
        let mut copy = || {
            let mut done = 0;
            for id in outputs {
                let first = program.plan.offset(*id) * shape.tokens;
                let range = done..done + rows * program.graph.value(*id).width;
                done = range.end;
                if is_pinned {
                    arena.copy_to_pinned(stream, first, pinned, range)?;
                } else {
                    arena.copy_to_slice(stream, first, &mut out[range])?;
                }
            }
            Ok(())
        };
        match &mut self.profile {
            Some(profile) => profile.read_back(stream, bytes, copy)?,
            None => copy()?,
        }
        if !is_pinned {
            return Ok(());
        }
        self.stream.synchronize()?;
        out.copy_from_slice(&self.output[..out.len()]);
        Ok(())
    }

    /// Queues the upload of the rows of the ops [`rf_graph::Op::Input`] to the arena, where later
    /// values may overwrite them.
    fn upload_input(&self, batch: &Batch<'_>, shape: Shape, stage: usize) -> Result<(), Error> {
        let mut rest = batch.input.unwrap_or_default();
        for id in &self.stages[stage].inputs {
            let floats = self.program.graph.value(*id).width * shape.tokens;
            let (rows, others) = rest.split_at(floats);
            let first = self.program.plan.offset(*id) * shape.tokens;
            self.work.arena.copy_from_slice(&self.stream, first, rows)?;
            rest = others;
        }
        Ok(())
    }

    fn run(&mut self, batch: &Batch<'_>, stage: usize, out: Output<'_>) -> Result<(), Error> {
        let started = Instant::now();
        let shape = Shape::of(batch);
        let pages = self.step.pages_of(batch);
        if !self.step.has_room(&shape, pages) {
            // Recordings contain the addresses of the old memory.
            self.decode.clear();
            let sizes = self.step.sizes().with_room_for(pages);
            self.step = StepMemory::new(self.gpu.context(), sizes)?;
        }
        let positions = batch.spans.iter().map(|s| s.past_tokens + s.tokens.len()).max();
        self.ropes.extend_to(&self.stream, positions.unwrap_or(0))?;
        if let Some(profile) = &mut self.profile {
            profile.start(&self.stream)?;
        }
        let bytes = self.step.upload(&self.stream, batch)?;
        self.upload_input(batch, shape, stage)?;
        let is_last = stage + 1 == self.stages.len();
        if let Some(profile) = &mut self.profile {
            profile.uploaded(&self.stream, bytes + batch.input.map_or(0, size_of_val))?;
            let recording = self.record(shape, stage)?;
            if let Some(profile) = &mut self.profile {
                profile.queue(&recording, &self.stream)?;
            }
            self.collect(shape, stage, out)?;
            if let Some(profile) = &mut self.profile {
                let program = (&self.program.graph, &self.costs);
                profile.finish(&recording, program, (batch, is_last), started)?;
            }
            return Ok(());
        }
        if shape.tokens <= DECODE_TOKENS {
            return self.run_decode(batch, (shape, stage), out);
        }
        self.record(shape, stage)?.queue(&self.stream)?;
        self.collect(shape, stage, out)
    }
}

impl GpuExecutor {
    fn last_stage(&self) -> usize {
        self.stages.len() - 1
    }

    /// Checks a batch and the length of its output, `room`: whole rows, or `k` elements per row.
    fn check(
        &self,
        batch: &Batch<'_>,
        stage: usize,
        room: usize,
        k: usize,
    ) -> Result<(), BackendError> {
        batch.check(&self.limits, stage)?;
        let (rows, width) = self.output_shape(stage, Shape::of(batch));
        let width = if k == 0 { width } else { k };
        if room != rows * width {
            let what = format!("an output of {room} elements, expected {rows} × {width}");
            return Err(BackendError::InvalidBatch(what));
        }
        Ok(())
    }
}

fn bits_equal(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

impl Executor for GpuExecutor {
    fn forward(&mut self, batch: &Batch<'_>, out: &mut [f32]) -> Result<(), BackendError> {
        self.forward_stage(self.last_stage(), batch, out)
    }

    fn forward_stage(
        &mut self,
        stage: usize,
        batch: &Batch<'_>,
        out: &mut [f32],
    ) -> Result<(), BackendError> {
        self.check(batch, stage, out.len(), 0)?;
        Ok(self.run(batch, stage, Output::Rows(out))?)
    }

    fn max_top_k(&self) -> usize {
        top_k::max_top_k(self.program.graph.value(self.program.graph.output()).width)
    }

    fn forward_top_k(
        &mut self,
        batch: &Batch<'_>,
        k: usize,
        out: &mut [Candidate],
    ) -> Result<(), BackendError> {
        if k == 0 || k > self.max_top_k() {
            let what = format!(
                "the {k} largest elements of a row, the limit is 1 to {}",
                self.max_top_k()
            );
            return Err(BackendError::InvalidBatch(what));
        }
        let stage = self.last_stage();
        self.check(batch, stage, out.len(), k)?;
        if out.is_empty() {
            return Ok(self.run(batch, stage, Output::Rows(&mut []))?);
        }
        Ok(self.run(batch, stage, Output::Best(k, out))?)
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        copies.iter().try_for_each(|copy| self.kv.copy_page(&self.stream, *copy))
    }

    fn read_page(
        &self,
        group: PageGroup,
        page: PageId,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        self.kv.read_page(&self.stream, group, page, out)
    }

    fn write_page(
        &mut self,
        group: PageGroup,
        page: PageId,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.kv.write_page(&self.stream, group, page, bytes)
    }

    fn profile(&mut self, on: bool) -> bool {
        let info = self.gpu.context().info();
        self.profile = on.then(|| Profile::new(format!("GPU ({}, {})", info.name, info.arch)));
        true
    }

    fn record_timeline(&mut self, max_events: usize) -> bool {
        let Some(profile) = &mut self.profile else { return false };
        profile.record_timeline(max_events);
        true
    }

    fn timelines(&self) -> Vec<Timeline> {
        self.profile.iter().filter_map(Profile::timeline).collect()
    }

    fn summaries(&self) -> Vec<BackendExecutionSummary> {
        self.profile.iter().map(Profile::summary).collect()
    }

    fn memory(&self) -> MemoryUse {
        let buffers = self.work.held_bytes() + self.step.bytes() + self.ropes.bytes();
        MemoryUse {
            weights_bytes: self.weights.bytes() as u64,
            kv_bytes: self.kv.bytes() as u64,
            states_bytes: self.kv.states_bytes() as u64,
            buffers_bytes: buffers as u64,
        }
    }
}
