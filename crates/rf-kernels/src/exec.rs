//! The executor: a program in device memory and the launches for batches of each shape.
//!
//! A step is a batch, or a stage of one. It begins and ends with kernels instead of copies of the
//! runtime:
//!
//! 1. The host writes the batch (ids, positions, pages) to host memory that the device reads
//!    ([`step`]).
//! 2. It queues the launches ([`launches`]), or replays them as graphs ([`replay`]).
//! 3. It waits once, and reads the output rows or the candidates from host memory that the last
//!    kernel wrote ([`results`]).
//!
//! Launches of a prompt chunk are recorded each time. Chunks without outputs are queued one after
//! another, and four blocks of host memory are used in turn. Chunks whose outputs another device
//! reads are queued the same way ([`hand_over`]).

mod analysis;
mod hand_over;
mod kv;
mod launches;
mod media;
mod memory;
mod padding;
mod profile;
mod program;
mod record;
mod replay;
mod results;
mod rope;
mod run;
mod split_memory;
mod step;
mod summand;
mod sums;
mod top_k;
mod weights;
mod work;

use std::sync::Arc;

use rf_graph::{
    BackendError, BackendExecutionSummary, Batch, BatchLimits, Costs, Executor, Member, MemoryUse,
    Output, OutputRows, Plan, Program, Progress, Span, Telemetry, Timeline,
};
use rf_hip::Stream;
use rf_kv::{CopyPage, PageGroup, PageId};

use crate::error::Error;
use crate::graphs::LaunchMark;
use crate::launch::{Gpu, LaunchList, Recording};
use crate::params::MatmulDevice;
use analysis::GraphAnalysis;
use hand_over::HandOvers;
use kv::KvMemory;
use launches::{LaunchesKey, output_shape};
use media::MediaMemory;
use padding::Padding;
use profile::LaunchProfile;
use program::DeviceProgram;
use replay::KeptSteps;
use results::Results;
use rope::{OwnPositions, RopeTables, rope_of};
use run::ProgramRunner;
use step::{StepMemory, StepShape, StepSizes};
use sums::Sums;
use top_k::TopK;
use weights::{DeviceWeights, WeightPlan};
use work::Work;

pub(crate) use memory::memory_need;
pub(crate) use record::FUSIONS;

/// Kernels of steps that [`GpuExecutor::load_kernels`] loads besides those of ops.
const STEP_KERNELS: [&str; 5] =
    ["load_step_u32", "load_rows_f32", "store_rows_f32", "pass_stamp", "copy_bytes"];

/// A compiled program on a GPU.
pub(crate) struct GpuExecutor {
    runner: ProgramRunner,
    limits: BatchLimits,
    weights: DeviceWeights,
}

impl GpuExecutor {
    pub(crate) fn new(
        gpu: Arc<Gpu>,
        device: MatmulDevice,
        graphs: Option<Arc<LaunchMark>>,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let (limits, costs) = (BatchLimits::new(&program), Costs::new(&program));
        let Program { graph, weights, kv, max_batch_tokens, max_output_rows } = program;
        record::attention::check(&graph)?;
        let analysis = GraphAnalysis::new(&graph, device);
        let plan = Plan::with_floats(&graph, |id| analysis.floats(&graph, id));
        let weight_plan = WeightPlan::new(&graph, &weights);
        let kv_plan = Padding::kv_plan(&graph, &kv)?;
        let own_positions = OwnPositions::of(&graph, max_batch_tokens);
        let mut ropes = RopeTables::new(kv_plan.positions(), own_positions);
        let padding = Padding::new(&graph, &kv, &limits);

        let (context, stream) = (gpu.context(), Stream::new(gpu.context())?);
        let sums = Sums::new(&gpu, &graph, max_batch_tokens)?;
        // Load the weights last, so that no weight is read if an allocation fails.
        let work = Work::new(&stream, &analysis, &plan, max_batch_tokens)?;
        let kv_memory = KvMemory::new(&stream, kv_plan)?;
        let stages = graph.stages();
        let widths = stages.iter().map(|stage| {
            let inputs = stage.inputs.iter();
            inputs.map(|id| graph.value(*id).width).collect()
        });
        let sizes = StepSizes::new(max_batch_tokens, max_output_rows, kv.num_pages);
        let step = StepMemory::new(context, sizes.with_inputs(widths))?;
        let addresses = graph.ops().iter().map(|op| match rope_of(op) {
            Some(rope) => ropes.address(context, rope),
            None => Ok(0),
        });
        let rope_addresses = addresses.collect::<Result<_, _>>()?;
        ropes.extend_to(&stream, 1)?;
        let output_width = graph.value(graph.output()).width;
        let top_k = TopK::new(context, output_width, max_output_rows)?;
        let width = stages.iter().map(|stage| graph.width_of(&stage.outputs)).max().unwrap_or(1);
        let outputs = stages.iter().map(|stage| stage.outputs.len()).max().unwrap_or(1);
        let rows = (max_output_rows.max(max_batch_tokens), max_output_rows);
        let results = Results::new(context, width, rows, outputs)?;
        let weights = DeviceWeights::load(&stream, &weight_plan, weights, progress)?;
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
        let media = MediaMemory::of(&program.graph);
        let runner = ProgramRunner {
            gpu,
            stream,
            program,
            stages,
            kv: kv_memory,
            ropes,
            media,
            step,
            results,
            hand_overs: HandOvers::default(),
            sums,
            top_k,
            work,
            padding,
            kept: KeptSteps::default(),
            graphs,
            next_block: 0,
            is_copied: false,
            is_damaged: false,
            costs,
            profile: None,
        };
        let executor = Self { runner, limits, weights };
        executor.load_kernels()?;
        Ok(executor)
    }

    /// Loads the kernels for prompts and for decode of all sizes, so that no batch has to: it takes
    /// tens of milliseconds. An op that this backend does not support is an error.
    fn load_kernels(&self) -> Result<(), Error> {
        let shape = |tokens: usize, spans: usize| StepShape {
            tokens,
            spans,
            outputs: spans,
            shortest_span: tokens / spans,
            longest_span: tokens / spans,
            context: tokens / spans,
            has_positions: false,
        };
        let BatchLimits { max_batch_tokens, max_output_rows, .. } = self.limits;
        let sizes = padding::SIZES.into_iter().filter(|size| *size <= max_batch_tokens);
        let prompts = sizes.clone().chain([max_batch_tokens]).map(|tokens| shape(tokens, 1));
        // Decode of one sequence is a prompt of one token.
        let decode = sizes.filter(|size| (2..=max_output_rows).contains(size));
        let decode = decode.map(|size| shape(size, size));
        for shape in prompts.chain(decode) {
            for stage in 0..self.runner.stages.len() {
                self.runner.record(LaunchesKey { shape, stage, k: 0 }, 0, false)?;
            }
        }
        let mut kernels = STEP_KERNELS.iter().chain(&top_k::KERNELS);
        kernels.try_for_each(|kernel| self.runner.gpu.kernel(kernel).map(drop))
    }

    /// Checks a batch and the memory for its output.
    fn check(
        &self,
        batch: &Batch<'_>,
        stage: usize,
        output: &OutputRows<'_>,
    ) -> Result<(), BackendError> {
        batch.check(&self.limits, stage)?;
        let has_kernels = |span: &Span<'_>| {
            (span.media.is_none() || self.runner.media.is_some())
                && (span.positions.is_none() || self.runner.ropes.take_positions())
        };
        if !batch.spans.iter().all(has_kernels) {
            let what = "pictures in prompts of this model".to_owned();
            return Err(BackendError::Unsupported { backend: "GPU", what });
        }
        let stages = &self.runner.stages;
        let (rows, width) =
            output_shape(&self.runner.program.graph, &stages[stage], StepShape::of(batch));
        let width = match *output {
            OutputRows::Whole(_) => width,
            OutputRows::TopK { k, .. } => {
                let limit = self.max_top_k();
                if stage + 1 < stages.len() || !(1..=limit).contains(&k) {
                    let what = format!(
                        "the {k} largest elements of a row, the limit is 1 to {limit} of the last \
                         stage"
                    );
                    return Err(BackendError::InvalidBatch(what));
                }
                k
            }
        };
        if output.len() != rows * width {
            let what = format!("an output of {} elements, expected {rows} × {width}", output.len());
            return Err(BackendError::InvalidBatch(what));
        }
        Ok(())
    }
}

impl Drop for GpuExecutor {
    /// Waits for steps that are queued: they use memory of the host.
    fn drop(&mut self) {
        if let Err(error) = self.runner.stream.synchronize() {
            tracing::debug!("closing a program: {error}");
        }
    }
}

impl Executor for GpuExecutor {
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError> {
        let Output { stage, rows, queued } = output;
        let stage = stage.unwrap_or(self.runner.stages.len() - 1);
        self.check(batch, stage, &rows)?;
        let (batch, handed) = self.runner.take_input(batch, stage)?;
        if let Some(queued) = queued
            && rows.k() == 0
            && self.runner.runs_once(&batch)
        {
            *queued = Some(self.runner.hand_over(&batch, handed, stage)?);
            return Ok(());
        }
        // Without rows there is nothing to select.
        let rows = if rows.is_empty() { OutputRows::Whole(&mut []) } else { rows };
        Ok(self.runner.run(&batch, handed, stage, rows)?)
    }

    /// The part runs without captured graphs, because between two sums it would have a graph of a
    /// few launches only.
    fn join(&mut self, member: Member) -> Result<(), BackendError> {
        self.runner.sums.join(member);
        self.runner.graphs = None;
        Ok(())
    }

    fn max_top_k(&self) -> usize {
        let graph = &self.runner.program.graph;
        top_k::max_top_k(graph.value(graph.output()).width)
    }

    fn takes_media(&self) -> bool {
        self.runner.media.is_some() && self.runner.ropes.take_positions()
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        Ok(self.runner.finish()?)
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        let mut launches = LaunchList::default();
        for copy in copies {
            for params in self.runner.kv.page_copies(*copy)? {
                launches.push(params.launch(), params);
            }
        }
        let copies = Recording::load(&self.runner.gpu, launches)?;
        Ok(copies.queue(&self.runner.stream).map_err(Error::from)?)
    }

    fn read_page(
        &self,
        group: PageGroup,
        page: PageId,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        self.runner.kv.read_page(&self.runner.stream, group, page, out)
    }

    fn write_page(
        &mut self,
        group: PageGroup,
        page: PageId,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.runner.is_copied = true;
        self.runner.kv.write_page(&self.runner.stream, group, page, bytes)
    }

    fn telemetry(&mut self) -> Option<&mut dyn Telemetry> {
        Some(self)
    }

    fn memory(&self) -> MemoryUse {
        let buffers = self.runner.work.held_bytes()
            + self.runner.step.bytes()
            + self.runner.sums.bytes()
            + self.runner.media.as_ref().map_or(0, MediaMemory::bytes)
            + self.runner.top_k.held_bytes()
            + self.runner.ropes.bytes()
            + self.runner.kv.spare_bytes();
        MemoryUse {
            weights_bytes: self.weights.bytes() as u64,
            kv_bytes: self.runner.kv.bytes() as u64,
            states_bytes: self.runner.kv.states_bytes() as u64,
            buffers_bytes: buffers as u64,
        }
    }
}

impl Telemetry for GpuExecutor {
    fn profile(&mut self, on: bool) {
        let info = self.runner.gpu.context().info();
        self.runner.profile =
            on.then(|| LaunchProfile::new(format!("GPU ({}, {})", info.name, info.arch)));
    }

    fn record_timeline(&mut self, max_events: usize) -> bool {
        let Some(profile) = &mut self.runner.profile else { return false };
        profile.record_timeline(max_events);
        true
    }

    fn timelines(&mut self) -> Vec<Timeline> {
        self.runner.profile.iter().filter_map(LaunchProfile::timeline).collect()
    }

    fn summaries(&mut self) -> Vec<BackendExecutionSummary> {
        self.runner.profile.iter().map(LaunchProfile::summary).collect()
    }
}
