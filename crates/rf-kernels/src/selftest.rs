//! How fast kernels are on a device, for `rf-cli selftest`; whether they are right, the conformance table of
//! `rf-graph` tells.
//!
//! A kernel takes microseconds and a step around it tens, so programs with many and with few of an op are timed,
//! and the difference is shared out. The many work on more memory than any cache holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rf_graph::{
    Attention, Backend, BackendError, Batch, DType, Graph, GraphBuilder, KvLayout, KvType, Program,
    Span, Weight, WeightBytes, WeightId, fuse,
};
use rf_hip::{DeviceBuffer, Event, Stream};
use rf_kv::PageId;

use crate::backend::GpuBackend;
use crate::error::Error;

/// What one run of an op takes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Speed {
    /// Seconds.
    pub seconds: f64,
    /// Bytes of weights or of cached keys and values that it reads.
    pub bytes: u64,
    /// Multiplications and additions.
    pub operations: u64,
}

impl Speed {
    /// Bytes read per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Multiplications and additions per second.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// Memory that the many ops of a program read together.
const WORKING_SET_BYTES: usize = 400 << 20;

/// Ops of the program with few.
const FEW: usize = 3;

/// Positions per page of attention's cache.
const PAGE_TOKENS: usize = 32;

/// Bytes per second that copying on the device moves, reading and writing each counted.
///
/// # Errors
///
/// If the device fails, or has not got the memory.
pub fn copy_bandwidth(backend: &GpuBackend) -> Result<f64, BackendError> {
    Ok(copy(backend)?)
}

fn copy(backend: &GpuBackend) -> Result<f64, Error> {
    const REPEATS: usize = 10;
    let context = backend.context();
    let (free_bytes, _) = context.memory_info()?;
    let elements = (256 << 20).min(free_bytes as usize / 8) / size_of::<f32>();
    let stream = Stream::new(context)?;
    let from = DeviceBuffer::<f32>::zeroed(context, elements)?;
    let to = DeviceBuffer::<f32>::new(context, elements)?;
    to.copy_from_device(&stream, 0, &from, 0..elements)?;
    let (start, end) = (Event::new(context, true)?, Event::new(context, true)?);
    start.record(&stream)?;
    for _ in 0..REPEATS {
        to.copy_from_device(&stream, 0, &from, 0..elements)?;
    }
    end.record(&stream)?;
    stream.synchronize()?;
    let seconds = Event::elapsed_us(&start, &end)? / 1e6;
    Ok((2 * REPEATS * from.size_bytes()) as f64 / seconds)
}

/// `x [tokens, columns] · Wᵀ`, `W [rows, columns]` of a format; three matrices are launched together, as Q, K and V
/// are.
///
/// # Errors
///
/// If the device fails, or has not got the memory.
pub fn product(
    backend: &GpuBackend,
    dtype: DType,
    rows: usize,
    columns: usize,
    tokens: usize,
) -> Result<Speed, BackendError> {
    let data = matrix(dtype, rows, columns)?;
    let bytes = data.bytes().len();
    // Of many tokens all products' outputs are held, and it is not memory that limits them.
    let many = if tokens == 1 { (WORKING_SET_BYTES / bytes).clamp(6, 48) } else { 9 };
    let many = many.next_multiple_of(FEW);
    let program = |count| {
        let mut net = GraphBuilder::new();
        let x = net.input(columns);
        let mut out = x;
        for _ in 0..count {
            let weight = Weight::new("weight", dtype, rows, columns, Arc::clone(&data));
            let weight = net.weight(weight.ok_or_else(|| no_shape(dtype, columns))?);
            out = net.matmul(x, weight);
        }
        let (graph, weights) = net.finish(out);
        Ok(Work { graph, weights, kv: Vec::new(), kv_type: KvType::F16, tokens, past_tokens: 0 })
    };
    let seconds = seconds_each(backend, program, many)?;
    let operations = 2 * (rows * columns * tokens) as u64;
    Ok(Speed { seconds, bytes: bytes as u64, operations })
}

/// Attention of one token over `past_tokens` cached ones: 32 heads of 128, 8 of them for keys and values. With
/// appending the token to the cache.
///
/// # Errors
///
/// If the device fails, or has not got the memory.
pub fn attention(
    backend: &GpuBackend,
    kv_type: KvType,
    past_tokens: usize,
) -> Result<Speed, BackendError> {
    const HEADS: usize = 32;
    const KV_HEADS: usize = 8;
    const HEAD_DIM: usize = 128;
    let layout = |layers| KvLayout {
        layers: vec![(KV_HEADS, HEAD_DIM); layers],
        page_tokens: PAGE_TOKENS,
        num_pages: 1,
        dtype: kv_type,
    };
    let bytes = layout(1).bytes_per_token() * past_tokens;
    let many = (WORKING_SET_BYTES / bytes.max(1)).clamp(6, 48);
    let projection = matrix(DType::F16, KV_HEADS * HEAD_DIM, HEADS * HEAD_DIM)?;
    let program = |count| {
        let mut net = GraphBuilder::new();
        let q = net.input(HEADS * HEAD_DIM);
        let (rows, columns) = (KV_HEADS * HEAD_DIM, HEADS * HEAD_DIM);
        let weight = Weight::new("weight", DType::F16, rows, columns, Arc::clone(&projection));
        let weight = net.weight(weight.ok_or_else(|| no_shape(DType::F16, columns))?);
        let k = net.matmul(q, weight);
        let mut out = q;
        for layer in 0..count {
            let attention = Attention::new(layer, HEADS, KV_HEADS, HEAD_DIM);
            out = net.attention(q, k, k, &attention);
        }
        let (graph, weights) = net.finish(out);
        let kv = layout(count).layers;
        Ok(Work { graph, weights, kv, kv_type, tokens: 1, past_tokens })
    };
    let seconds = seconds_each(backend, program, many)?;
    let operations = 4 * (HEADS * HEAD_DIM * past_tokens) as u64;
    Ok(Speed { seconds, bytes: bytes as u64, operations })
}

/// RMS norm of one row, one after the other: what a launch takes that waits for the one before.
///
/// # Errors
///
/// If the device fails.
pub fn rms_norm(backend: &GpuBackend, columns: usize) -> Result<Speed, BackendError> {
    let program = |count| {
        let mut net = GraphBuilder::new();
        let mut x = net.input(columns);
        for _ in 0..count {
            let gains: WeightId = net.weight(Weight::f32("gains", 1, columns, vec![1.0; columns]));
            x = net.rms_norm(x, gains, 1e-5);
        }
        let (graph, weights) = net.finish(x);
        Ok(Work { graph, weights, kv: Vec::new(), kv_type: KvType::F16, tokens: 1, past_tokens: 0 })
    };
    let seconds = seconds_each(backend, program, 48)?;
    Ok(Speed { seconds, bytes: 4 * columns as u64, operations: 4 * columns as u64 })
}

/// A program and the batch that is fed to it again and again.
struct Work {
    graph: Graph,
    weights: Vec<Weight>,
    /// Heads and their size, by layer.
    kv: Vec<(usize, usize)>,
    kv_type: KvType,
    tokens: usize,
    past_tokens: usize,
}

/// What one of `many` more ops takes.
fn seconds_each(
    backend: &GpuBackend,
    program: impl Fn(usize) -> Result<Work, BackendError>,
    many: usize,
) -> Result<f64, BackendError> {
    let few = program(FEW)?.seconds(backend)?;
    let all = program(FEW + many)?.seconds(backend)?;
    // Where timing is too coarse, nothing is better than a negative time.
    Ok((all - few).max(1e-9) / many as f64)
}

impl Work {
    /// The median of some runs.
    fn seconds(self, backend: &GpuBackend) -> Result<f64, BackendError> {
        const RUNS: usize = 41;
        const ENOUGH: Duration = Duration::from_millis(700);
        let Self { graph, weights, kv, kv_type, tokens, past_tokens } = self;
        let (width, columns) = (graph.value(graph.output()).width, input_width(&graph));
        let num_pages = (past_tokens + tokens).div_ceil(PAGE_TOKENS);
        let kv = KvLayout { layers: kv, page_tokens: PAGE_TOKENS, num_pages, dtype: kv_type };
        let graph = fuse(graph, backend.fusions());
        let program =
            Program { graph, weights, kv, max_batch_tokens: tokens, max_output_rows: tokens };
        let mut executor = backend.compile(program, &mut |_| ())?;
        let (ids, input) = (vec![0; tokens], numbers(tokens * columns));
        let pages: Vec<_> = (0..num_pages as u32).map(PageId::new).collect();
        let spans = [Span { tokens: 0..tokens, past_tokens, pages: &pages }];
        let batch = Batch { ids: &ids, spans: &spans, output_rows: &[], input: Some(&input) };
        let mut out = vec![0.0; tokens * width];
        // Once as launches, once captured, once more.
        for _ in 0..3 {
            executor.forward(&batch, &mut out)?;
        }
        let (started, mut times) = (Instant::now(), Vec::new());
        while times.len() < RUNS && (times.len() < 5 || started.elapsed() < ENOUGH) {
            let start = Instant::now();
            executor.forward(&batch, &mut out)?;
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}

fn input_width(graph: &Graph) -> usize {
    let input = graph.ops().iter().flat_map(rf_graph::Op::outputs).next();
    input.map_or(0, |input| graph.value(input).width)
}

/// A matrix of a format. Few rows are quantised and repeated: quantising well takes long.
fn matrix(dtype: DType, rows: usize, columns: usize) -> Result<Arc<dyn WeightBytes>, BackendError> {
    const DIFFERENT_ROWS: usize = 16;
    let few: Vec<f32> = numbers(DIFFERENT_ROWS * columns);
    let few = rf_quant::quantize_to_vec(dtype, &few).map_err(|_| no_shape(dtype, columns))?;
    let row_bytes = few.len() / DIFFERENT_ROWS;
    let bytes: Vec<u8> = few.iter().copied().cycle().take(rows * row_bytes).collect();
    Ok(Arc::new(bytes))
}

fn no_shape(dtype: DType, columns: usize) -> BackendError {
    BackendError::Unsupported { backend: "GPU", what: format!("{columns} columns of {dtype}") }
}

/// Numbers between -1 and 1, the same every time: a linear congruential generator with Knuth's factor.
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}
