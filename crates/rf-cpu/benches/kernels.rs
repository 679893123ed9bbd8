//! Kernels of every ISA on one thread, their operands in cache: `cargo bench -p rf-cpu -- avx2/dot`.
//!
//! Throughput is in operations per second. Beside it stand the share of the ISA's measured limit, by the best run, and
//! the bytes that were read. What whole machines do, weights in memory, is `cargo bench -p rf-bench`.

#![expect(missing_docs, reason = "criterion's macros define undocumented public functions")]

use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use rf_cpu::{CpuBackend, CpuOptions, Isa, Peak};
use rf_graph::conformance::Numbers;
use rf_graph::{
    Attention, Backend, Batch, Costs, DType, Executor, GraphBuilder, KvLayout, KvType, OpCost,
    Program, Span, ValueId, Weight,
};
use rf_kv::PageId;

/// A panel group of weights that stays in L2, of a usual number of columns.
const ROWS: usize = 256;
const COLUMNS: usize = 2048;

/// Tokens of a chunk of a prompt.
const PROMPT_TOKENS: usize = 512;

/// What a long conversation has in its cache.
const DEPTH_TOKENS: usize = 4096;

const PAGE_TOKENS: usize = 32;

fn all(criterion: &mut Criterion) {
    // What `cargo bench` gives to every program that it runs; `cargo test` only sees that they run.
    let is_test = !std::env::args().any(|argument| argument == "--bench");
    for isa in Isa::available() {
        let peak = isa.measure_peak(1);
        let mut group = criterion.benchmark_group(isa.name());
        group.sample_size(10);
        group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        for dtype in DType::ALL {
            if is_test && dtype != DType::Q4K {
                continue;
            }
            for (kernel, tokens) in [("dot", 1), ("dot", 8), ("tile", PROMPT_TOKENS)] {
                let float = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
                let name = format!("{kernel}/{dtype}/tokens={tokens}");
                let step = Step { op: "matmul", tokens, past_tokens: 0 };
                measure(&mut group, &name, isa, (peak, float), step, || product(dtype));
            }
        }
        for (kv, tokens, past_tokens) in [
            (KvType::F16, PROMPT_TOKENS, 0),
            (KvType::F16, 1, DEPTH_TOKENS),
            (KvType::Q8_0, 1, DEPTH_TOKENS),
        ] {
            let name = format!("attention/{kv}/tokens={tokens}/depth={past_tokens}");
            let step = Step { op: "attention", tokens, past_tokens };
            measure(&mut group, &name, isa, (peak, true), step, || attention(kv));
        }
        group.finish();
    }
}

/// What of a program is run and timed.
#[derive(Clone, Copy)]
struct Step {
    op: &'static str,
    tokens: usize,
    past_tokens: usize,
}

impl Step {
    fn cost(self, program: &Program) -> OpCost {
        let ids = vec![0; self.tokens];
        let spans = [Span { tokens: 0..self.tokens, past_tokens: self.past_tokens, pages: &[] }];
        let batch = Batch { ids: &ids, spans: &spans, output_rows: &[], input: None };
        let costs = Costs::new(program);
        let ops = program.graph.ops().iter().filter(|op| op.name() == self.op);
        ops.map(|op| costs.of(&program.graph, op, &batch)).next().expect("the program has that op")
    }
}

/// One benchmark; `float` says which of the limits is that of its products.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    isa: Isa,
    (peak, float): (Peak, bool),
    step: Step,
    program: impl FnOnce() -> Program,
) {
    let program = program();
    let cost = step.cost(&program);
    let mut best = Duration::MAX;
    // Made where the filter lets it run, and once.
    let mut program = Some(program);
    let mut run: Option<Run> = None;
    group.throughput(Throughput::Elements(cost.operations()));
    group.bench_function(name, |bencher| {
        if let Some(program) = program.take() {
            run = Some(Run::new(isa, program, step));
        }
        let run = run.as_mut().expect("made before");
        bencher.iter_custom(|times| {
            let times = (0..times).map(|_| run.time());
            times.inspect(|time| best = best.min(*time)).sum()
        });
    });
    if best < Duration::MAX {
        let seconds = best.as_secs_f64();
        let limit = if float { peak.f32_operations_per_s } else { peak.int8_operations_per_s };
        report(cost, seconds, limit);
    }
}

#[expect(clippy::print_stdout, reason = "beside what criterion prints")]
fn report(cost: OpCost, seconds: f64, limit: f64) {
    println!(
        "                        {:.1} % of {:.0} G operations/s, {:.1} GB/s",
        100.0 * cost.operations() as f64 / seconds / limit,
        limit / 1e9,
        cost.bytes as f64 / seconds / 1e9,
    );
}

/// A program that is run again and again with the same batch.
struct Run {
    executor: Box<dyn Executor>,
    pages: Vec<PageId>,
    step: Step,
    before: Duration,
}

impl Run {
    fn new(isa: Isa, program: Program, step: Step) -> Self {
        let options = CpuOptions { threads: Some(1), isa: Some(isa) };
        let backend = CpuBackend::new(options).expect("a thread");
        let pages = (0..program.kv.num_pages as u32).map(PageId::new).collect();
        let mut executor = backend.compile(program, &mut |_| ()).expect("enough memory");
        assert!(executor.profile(true), "the CPU takes times");
        let mut run = Self { executor, pages, step, before: Duration::ZERO };
        for past_tokens in (0..step.past_tokens).step_by(PROMPT_TOKENS) {
            run.forward(PROMPT_TOKENS, past_tokens);
        }
        run.before = run.op_time();
        run
    }

    /// Time of the op in one run.
    fn time(&mut self) -> Duration {
        self.forward(self.step.tokens, self.step.past_tokens);
        let after = self.op_time();
        let time = after.saturating_sub(self.before);
        self.before = after;
        time
    }

    fn forward(&mut self, tokens: usize, past_tokens: usize) {
        let ids: Vec<u32> = (0..tokens as u32).collect();
        let spans = [Span { tokens: 0..tokens, past_tokens, pages: &self.pages }];
        let batch = Batch { ids: &ids, spans: &spans, output_rows: &[], input: None };
        self.executor.forward(&batch, &mut []).expect("it runs");
    }

    fn op_time(&self) -> Duration {
        let summaries = self.executor.summaries();
        summaries.iter().filter_map(|summary| summary.ops.get(self.step.op)).map(|op| op.time).sum()
    }
}

/// One product of rows of a table.
fn product(dtype: DType) -> Program {
    let mut graph = GraphBuilder::new();
    let x = table(&mut graph, COLUMNS);
    let weight = graph.weight(weight(dtype, ROWS, COLUMNS));
    let y = graph.matmul(x, weight);
    finish(graph, y, Vec::new(), KvType::F32)
}

/// One layer of attention of Llama 3.2 1B, over rows of three tables.
fn attention(kv: KvType) -> Program {
    let (num_heads, num_kv_heads, head_dim) = (32, 8, 64);
    let mut graph = GraphBuilder::new();
    let q = table(&mut graph, num_heads * head_dim);
    let k = table(&mut graph, num_kv_heads * head_dim);
    let v = table(&mut graph, num_kv_heads * head_dim);
    let attention = Attention::new(0, num_heads, num_kv_heads, head_dim);
    let y = graph.attention(q, k, v, &attention);
    finish(graph, y, vec![(num_kv_heads, head_dim)], kv)
}

fn table(graph: &mut GraphBuilder, width: usize) -> ValueId {
    let table = graph.weight(weight(DType::F32, PROMPT_TOKENS, width));
    graph.embed(table, 1.0)
}

fn finish(
    mut graph: GraphBuilder,
    y: ValueId,
    layers: Vec<(usize, usize)>,
    dtype: KvType,
) -> Program {
    let rows = graph.select_rows(y);
    let (graph, weights) = graph.finish(rows);
    let num_pages = (DEPTH_TOKENS + PROMPT_TOKENS) / PAGE_TOKENS;
    let kv = KvLayout { layers, page_tokens: PAGE_TOKENS, num_pages, dtype };
    Program { graph, weights, kv, max_batch_tokens: PROMPT_TOKENS, max_output_rows: 1 }
}

fn weight(dtype: DType, rows: usize, columns: usize) -> Weight {
    let mut numbers = Numbers::new("kernels");
    let values: Vec<f32> = (0..columns).map(|_| numbers.normal()).collect();
    let row = rf_quant::quantize_to_vec(dtype, &values).expect("whole blocks");
    let bytes = row.repeat(rows);
    Weight::new("w", dtype, rows, columns, Arc::new(bytes)).expect("as many bytes as it takes")
}

criterion_group!(benches, all);
criterion_main!(benches);
