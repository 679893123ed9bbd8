//! Kernels of every ISA on one thread, with operands in cache: `cargo bench -p rf-cpu -- avx2/dot`.
//!
//! Criterion reports throughput in operations per second. A second line prints the best run as
//! % of the ISA's measured peak, and its bandwidth. `cargo bench -p rf-bench` measures whole
//! machines, with weights in memory.

#![expect(missing_docs, reason = "criterion's macros define undocumented public functions")]

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use rf_cpu::{CpuBackend, CpuOptions, Isa};
use rf_graph::{DType, KvType, OpCost, Peak};
use rf_oracle::case::{Case, Schedule, Timer, attention, matmul};

/// Weight rows: the panels fit into L2 at a typical number of columns.
const ROWS: usize = 256;
const COLUMNS: usize = 2048;

/// Tokens of a prompt chunk.
const PROMPT_TOKENS: usize = 512;

/// Cached tokens of a long conversation.
const DEPTH_TOKENS: usize = 4096;

/// Llama 3.2 1B: query heads, KV heads, head size.
const HEADS: [usize; 3] = [32, 8, 64];

fn all(criterion: &mut Criterion) {
    // `cargo bench` passes this argument; `cargo test` only checks that the benches run.
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
                let name = format!("{kernel}/{dtype}/tokens={tokens}");
                let case = matmul(dtype, ROWS, COLUMNS, Schedule::single(tokens));
                measure(&mut group, &name, isa, peak, &case);
            }
        }
        for (kv, tokens, past_tokens) in [
            (KvType::F16, PROMPT_TOKENS, 0),
            (KvType::F16, 1, DEPTH_TOKENS),
            (KvType::Q8_0, 1, DEPTH_TOKENS),
        ] {
            let name = format!("attention/{kv}/tokens={tokens}/depth={past_tokens}");
            let case = attention(kv, HEADS, Schedule::at_depth(past_tokens, tokens));
            measure(&mut group, &name, isa, peak, &case);
        }
        group.finish();
    }
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    isa: Isa,
    peak: Peak,
    case: &Case,
) {
    let cost = case.cost();
    let mut best = Duration::MAX;
    // Compiled once, and only if the filter selects the benchmark.
    let mut timer: Option<Timer> = None;
    group.throughput(Throughput::Elements(cost.operations()));
    group.bench_function(name, |bencher| {
        let timer = timer.get_or_insert_with(|| compile(isa, case));
        bencher.iter_custom(|runs| {
            let times = (0..runs).map(|_| timer.op_time().expect("the batch is valid"));
            times.inspect(|time| best = best.min(*time)).sum()
        });
    });
    if best < Duration::MAX {
        report(cost, best.as_secs_f64(), peak);
    }
}

fn compile(isa: Isa, case: &Case) -> Timer {
    let backend = CpuBackend::new(CpuOptions::default().with_threads(1).with_isa(isa));
    let backend = backend.expect("a thread starts");
    let mut timer = Timer::new(&backend, case, case.timed_program(1)).expect("enough memory");
    assert!(timer.profile(), "the CPU backend has a profile");
    timer
}

#[expect(clippy::print_stdout, reason = "adds a line to criterion's output")]
fn report(cost: OpCost, seconds: f64, peak: Peak) {
    let limit = if cost.int8_operations > 0 {
        peak.int8_operations_per_s
    } else {
        peak.f32_operations_per_s
    };
    let limit = limit.unwrap_or(f64::NAN);
    println!(
        "                        {:.1} % of {:.0} G operations/s, {:.1} GB/s",
        100.0 * cost.operations() as f64 / seconds / limit,
        limit / 1e9,
        cost.bytes as f64 / seconds / 1e9,
    );
}

criterion_group!(benches, all);
criterion_main!(benches);
