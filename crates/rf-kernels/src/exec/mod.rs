//! The executor: a program in device memory, and the launches that a batch of some shape takes.
//!
//! A batch is uploaded as one small copy, its launches are queued, its output comes back, and the host
//! waits once. Launches of decode (a few tokens) are recorded per [`Shape`] and, where the runtime can,
//! replayed as a captured graph; a prompt's chunk is recorded anew.

mod kv;
mod profile;
mod record;
mod rope;
mod step;
mod top_k;
mod weights;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use rf_graph::{
    BackendError, BackendExecutionSummary, Batch, BatchLimits, Candidate, Costs, Executor, Graph,
    MemoryUse, Plan, Program, Progress, Timeline, ValueId,
};
use rf_hip::{DeviceBuffer, GraphExec, PinnedBuffer, Stream};
use rf_kv::PageId;

use crate::backend::GraphMode;
use crate::error::Error;
use crate::launch::{Gpu, Recording};
use crate::params::{Activations, Address};
use kv::{KvMemory, KvPlan};
use profile::Profile;
use record::{Facts, Recorder};
use rope::RopeTables;
use step::{Shape, StepMemory};
use top_k::TopK;
use weights::{WeightPlan, Weights};

/// Tokens up to which a batch counts as decode: its launches are kept and captured.
const DECODE_TOKENS: usize = 8;

/// Rows behind the last one of an operand, read by kernels for several columns and not used.
const SPARE_ROWS: usize = 8;

/// Outputs that come back through pinned memory; more of them (perplexity) through plain copies.
const PINNED_OUTPUT_FLOATS: usize = 4 << 20;

/// A compiled program on a GPU.
pub(crate) struct GpuExecutor {
    gpu: Arc<Gpu>,
    stream: Stream,
    graph: Graph,
    facts: Facts,
    plan: Plan,
    limits: BatchLimits,
    weights: Weights,
    kv: KvMemory,
    ropes: RopeTables,
    rope_addresses: Vec<Address>,
    step: StepMemory,
    work: Work,
    output: PinnedBuffer<f32>,
    decode: HashMap<Shape, Decode>,
    graphs: GraphMode,
    costs: Costs,
    profile: Option<Profile>,
    top_k: Option<TopK>,
}

/// What is wanted of the output's rows, and where it goes.
enum Output<'a> {
    Rows(&'a mut [f32]),
    /// So many of each.
    Best(usize, &'a mut [Candidate]),
}

/// The launches of a decode step.
struct Decode {
    recording: Recording,
    replay: Replay,
}

/// What is known of a recording as a graph.
enum Replay {
    /// Not captured yet: it runs once as launches first.
    Untried,
    /// Captured, and found to give the same bits as the launches.
    Checked(GraphExec),
    /// Not to be had, or wrong.
    Off,
}

/// Activations in device memory.
pub(crate) struct Work {
    /// The arena of the plan.
    arena: DeviceBuffer<f32>,
    /// Operands in f32 that no value holds: normalised rows, gated units.
    operand_f32: DeviceBuffer<f32>,
    /// Two operands as int8: one is read while the other is written.
    operands_q8: [Q8Buffer; 2],
    /// Of attention that shares a sequence's keys out: sums, statistics, counters.
    partials: DeviceBuffer<f32>,
    arrivals: DeviceBuffer<u32>,
    /// Sums of squares of what a norm is on its way to.
    squares: DeviceBuffer<f32>,
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
    /// Floats of arena, of an operand, of attention's partial sums.
    fn bytes(facts: &Facts, plan: &Plan, max_tokens: usize) -> usize {
        let operand = facts.operand_elements(max_tokens);
        let arena = plan.floats_per_row() * (max_tokens + SPARE_ROWS);
        4 * (arena
            + operand
            + operand / 32
            + facts.partial_floats()
            + facts.arrival_count(max_tokens))
            + 2 * (operand + operand / 4)
    }

    fn new(stream: &Stream, facts: &Facts, plan: &Plan, max_tokens: usize) -> Result<Self, Error> {
        let context = stream.context();
        let operand = facts.operand_elements(max_tokens);
        let arena = plan.floats_per_row() * (max_tokens + SPARE_ROWS);
        Ok(Self {
            arena: DeviceBuffer::new(context, arena)?,
            operand_f32: DeviceBuffer::new(context, operand)?,
            operands_q8: [Q8Buffer::new(stream, operand)?, Q8Buffer::new(stream, operand)?],
            partials: DeviceBuffer::new(context, facts.partial_floats())?,
            arrivals: DeviceBuffer::zeroed(context, facts.arrival_count(max_tokens))?,
            squares: DeviceBuffer::new(context, operand / 32)?,
        })
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
        let facts = Facts::of(&graph, &weights, &gpu);
        let plan = Plan::aligned(&graph, 64);
        let weight_plan = WeightPlan::new(&graph, &weights);
        let kv_plan = KvPlan::new(&kv)?;
        let mut ropes = RopeTables::new(kv_plan.positions());
        let rope_bytes = ropes.bytes_for(graph.ops().iter().filter_map(record::rope_of));
        let work_bytes = Work::bytes(&facts, &plan, max_batch_tokens) + rope_bytes;
        check_memory(&gpu, weight_plan.bytes(), kv_plan.bytes(), work_bytes)?;

        let stream = Stream::new(gpu.context())?;
        // Small things first: if the weights do not fit after all, nothing was read for them.
        let work = Work::new(&stream, &facts, &plan, max_batch_tokens)?;
        let kv_memory = KvMemory::new(&stream, kv_plan)?;
        let pages = (2 * kv.num_pages).max(1024);
        let step = StepMemory::new(gpu.context(), max_batch_tokens, max_output_rows, pages)?;
        let addresses = graph.ops().iter().map(|op| match record::rope_of(op) {
            Some(rope) => ropes.address(gpu.context(), rope),
            None => Ok(0),
        });
        let rope_addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let weights = Weights::load(&stream, &weight_plan, weights, progress)?;
        let width = graph.value(graph.output()).width;
        let rows = max_output_rows.max(max_batch_tokens);
        let output =
            PinnedBuffer::new(gpu.context(), (width * rows).min(PINNED_OUTPUT_FLOATS.max(width)))?;
        let executor = Self {
            gpu,
            stream,
            graph,
            facts,
            plan,
            limits,
            weights,
            kv: kv_memory,
            ropes,
            rope_addresses,
            step,
            work,
            output,
            decode: HashMap::new(),
            graphs,
            costs,
            profile: None,
            top_k: None,
        };
        executor.load_kernels()?;
        Ok(executor)
    }

    /// Loads what one token and what a whole prompt take, so that the first batch need not; an op that this
    /// backend has not got shows here.
    fn load_kernels(&self) -> Result<(), Error> {
        let shape = |tokens: usize| Shape {
            tokens,
            spans: 1,
            outputs: 1,
            shortest_span: tokens,
            longest_span: tokens,
            context: tokens,
        };
        self.record(shape(1))?;
        self.record(shape(self.limits.max_batch_tokens))?;
        top_k::KERNELS.iter().try_for_each(|kernel| self.gpu.function(kernel).map(drop))
    }

    fn record(&self, shape: Shape) -> Result<Recording, Error> {
        Recorder::new(self, shape).record()
    }

    /// Address and row count of a value in a batch.
    fn value(&self, id: ValueId, shape: &Shape) -> (Address, usize) {
        let rows = shape.rows_of(self.graph.value(id).rows);
        let floats = self.plan.offset(id) * shape.tokens;
        (self.work.arena.address() + 4 * floats as Address, rows)
    }

    /// Runs what is recorded for a decode step, as a graph where that is proven.
    fn run_decode(
        &mut self,
        batch: &Batch<'_>,
        shape: Shape,
        out: Output<'_>,
    ) -> Result<(), Error> {
        let decode = match self.decode.remove(&shape) {
            Some(decode) => decode,
            None => Decode { recording: self.record(shape)?, replay: Replay::Untried },
        };
        let Decode { recording, mut replay } = decode;
        let outcome = self.run_recorded(&recording, &mut replay, batch, shape, out);
        self.decode.insert(shape, Decode { recording, replay });
        outcome
    }

    fn run_recorded(
        &mut self,
        recording: &Recording,
        replay: &mut Replay,
        batch: &Batch<'_>,
        shape: Shape,
        out: Output<'_>,
    ) -> Result<(), Error> {
        match replay {
            Replay::Checked(graph) => graph.launch(&self.stream)?,
            Replay::Untried if self.graphs == GraphMode::On => {
                recording.queue(&self.stream)?;
                let output = self.graph.value(self.graph.output());
                let mut rows = vec![0.0; shape.rows_of(output.rows) * output.width];
                self.read_output(shape, &mut rows)?;
                *replay = self.check_replay(recording, batch, shape, &rows);
                if matches!(replay, Replay::Off) {
                    // What the replay has left there is not to be relied on.
                    self.upload_input(batch, shape)?;
                    recording.queue(&self.stream)?;
                }
            }
            Replay::Untried | Replay::Off => recording.queue(&self.stream)?,
        }
        self.collect(shape, out)
    }

    /// Captures a recording and replays it for the batch that has just run: a step writes the same places of
    /// the cache with the same values, so nothing else may come out.
    fn check_replay(
        &mut self,
        recording: &Recording,
        batch: &Batch<'_>,
        shape: Shape,
        expected: &[f32],
    ) -> Replay {
        let mut replayed = vec![f32::NAN; expected.len()];
        let graph = recording.capture(&self.stream).and_then(|graph| {
            self.upload_input(batch, shape)?;
            graph.launch(&self.stream)?;
            self.read_output(shape, &mut replayed)?;
            Ok(graph)
        });
        match graph {
            Ok(graph) if bits_equal(&replayed, expected) => Replay::Checked(graph),
            Ok(_) => {
                tracing::warn!("a replayed graph gives other results than its launches: not used");
                Replay::Off
            }
            Err(error) => {
                tracing::warn!("no graph of {} launches: {error}", recording.len());
                Replay::Off
            }
        }
    }

    /// Waits for the queue and fetches what is wanted of the graph's output.
    fn collect(&mut self, shape: Shape, out: Output<'_>) -> Result<(), Error> {
        match out {
            Output::Rows(rows) => self.read_output(shape, rows),
            Output::Best(k, best) => {
                let (logits, _) = self.value(self.graph.output(), &shape);
                let width = self.graph.value(self.graph.output()).width;
                let device = (&*self.gpu, &self.stream, self.profile.as_mut());
                TopK::choose(&mut self.top_k, device, (logits, width), k, best)
            }
        }
    }

    /// Waits for the queue and copies the graph's output.
    fn read_output(&mut self, shape: Shape, out: &mut [f32]) -> Result<(), Error> {
        let first = self.plan.offset(self.graph.output()) * shape.tokens;
        let (arena, stream, pinned) = (&self.work.arena, &self.stream, &mut self.output);
        let (range, bytes) = (0..out.len(), size_of_val(out));
        let is_pinned = out.len() <= pinned.len();
        let copy = || {
            if is_pinned {
                arena.copy_to_pinned(stream, first, pinned, range)?;
            } else {
                arena.copy_to_slice(stream, first, out)?;
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

    /// What [`rf_graph::Op::Input`] is, to its place in the arena; later values may take that over.
    fn upload_input(&self, batch: &Batch<'_>, shape: Shape) -> Result<(), Error> {
        if let (Some(id), Some(rows)) = (self.facts.input(), batch.input) {
            let first = self.plan.offset(id) * shape.tokens;
            self.work.arena.copy_from_slice(&self.stream, first, rows)?;
        }
        Ok(())
    }

    fn run(&mut self, batch: &Batch<'_>, out: Output<'_>) -> Result<(), Error> {
        let started = Instant::now();
        let shape = Shape::of(batch);
        let pages = batch.spans.iter().map(|span| span.pages.len()).sum();
        if !self.step.has_room(&shape, pages) {
            // Addresses change, so recordings go.
            self.decode.clear();
            self.step = StepMemory::new(
                self.gpu.context(),
                self.limits.max_batch_tokens,
                self.limits.max_output_rows,
                2 * pages,
            )?;
        }
        let positions = batch.spans.iter().map(|s| s.past_tokens + s.tokens.len()).max();
        self.ropes.extend_to(&self.stream, positions.unwrap_or(0))?;
        if let Some(profile) = &mut self.profile {
            profile.start(&self.stream)?;
        }
        let bytes = self.step.upload(&self.stream, batch)?;
        self.upload_input(batch, shape)?;
        if let Some(profile) = &mut self.profile {
            profile.uploaded(&self.stream, bytes + batch.input.map_or(0, size_of_val))?;
            let recording = self.record(shape)?;
            if let Some(profile) = &mut self.profile {
                profile.queue(&recording, &self.stream)?;
            }
            self.collect(shape, out)?;
            if let Some(profile) = &mut self.profile {
                profile.finish(&recording, (&self.graph, &self.costs), batch, started)?;
            }
            return Ok(());
        }
        if shape.tokens <= DECODE_TOKENS {
            return self.run_decode(batch, shape, out);
        }
        self.record(shape)?.queue(&self.stream)?;
        self.collect(shape, out)
    }
}

impl GpuExecutor {
    /// Whether a batch can run, and `room` is what its output takes: whole rows, or `k` of each.
    fn check(&self, batch: &Batch<'_>, room: usize, k: usize) -> Result<(), BackendError> {
        batch.check(&self.limits)?;
        let output = self.graph.value(self.graph.output());
        let rows = Shape::of(batch).rows_of(output.rows);
        let width = if k == 0 { output.width } else { k };
        if room != rows * width {
            let what = format!("room for {room} outputs, {rows} × {width} are due");
            return Err(BackendError::InvalidBatch(what));
        }
        Ok(())
    }
}

fn bits_equal(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// The memory plan against what the device has free.
fn check_memory(gpu: &Gpu, weights: usize, kv: usize, work: usize) -> Result<(), Error> {
    /// What drivers keep for themselves: queues, code, staging.
    const RESERVE_BYTES: u64 = 64 << 20;
    let (free_bytes, _) = gpu.context().memory_info()?;
    let needed_bytes = (weights + kv + work) as u64 + RESERVE_BYTES;
    tracing::debug!(weights, kv, work, free_bytes, "memory plan in bytes");
    if needed_bytes <= free_bytes {
        return Ok(());
    }
    let what = if weights as u64 + RESERVE_BYTES > free_bytes {
        "weights"
    } else if (weights + kv) as u64 + RESERVE_BYTES > free_bytes {
        "weights and KV cache"
    } else {
        "weights, KV cache and activations"
    };
    Err(Error::DoesNotFit { what, needed_bytes, free_bytes })
}

impl Executor for GpuExecutor {
    fn forward(&mut self, batch: &Batch<'_>, out: &mut [f32]) -> Result<(), BackendError> {
        self.check(batch, out.len(), 0)?;
        Ok(self.run(batch, Output::Rows(out))?)
    }

    fn max_top_k(&self) -> usize {
        top_k::max_top_k(self.graph.value(self.graph.output()).width)
    }

    fn forward_top_k(
        &mut self,
        batch: &Batch<'_>,
        k: usize,
        out: &mut [Candidate],
    ) -> Result<(), BackendError> {
        if k == 0 || k > self.max_top_k() {
            let what = format!("the {k} best of a row, {} are to be had", self.max_top_k());
            return Err(BackendError::InvalidBatch(what));
        }
        self.check(batch, out.len(), k)?;
        if out.is_empty() {
            return Ok(self.run(batch, Output::Rows(&mut []))?);
        }
        Ok(self.run(batch, Output::Best(k, out))?)
    }

    fn copy_pages(&mut self, copies: &[(PageId, PageId)]) -> Result<(), BackendError> {
        copies.iter().try_for_each(|&(from, to)| self.kv.copy_page(&self.stream, from, to))
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
        let work = &self.work;
        let q8 = work.operands_q8.iter().map(|b| b.q.size_bytes() + b.meta.size_bytes());
        let buffers = work.arena.size_bytes()
            + work.operand_f32.size_bytes()
            + q8.sum::<usize>()
            + work.partials.size_bytes()
            + work.arrivals.size_bytes()
            + self.step.bytes()
            + self.ropes.bytes();
        MemoryUse {
            weights_bytes: self.weights.bytes() as u64,
            kv_bytes: self.kv.bytes() as u64,
            buffers_bytes: buffers as u64,
        }
    }
}
