//! Every workload with criterion, on the CPU and on a GPU if there is one:
//! `cargo bench -p rf-bench -- cpu/matmul/q4_k`.
//!
//! Throughput is in bytes of the workload's cost, so it compares with the memory bandwidth.
//!
//! `cargo test` runs one workload of each suite once; `cargo bench -p rf-bench -- --test` runs all.

#![expect(missing_docs, reason = "criterion's macros define undocumented public functions")]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rf_bench::{Error, Prepared, Suite, Target, Workload, workloads};

/// Reports a target or a workload that is not available.
fn skipped(what: &str, why: &Error) {
    rf_testing::skip!("{what}: {why}");
}

fn all(criterion: &mut Criterion) {
    for (name, target) in [("cpu", Target::cpu(None, None)), ("gpu", Target::gpu(None))] {
        match target {
            Ok(target) => on(criterion, &target),
            Err(why) => skipped(name, &why),
        }
    }
}

fn on(criterion: &mut Criterion, target: &Target) {
    for suite in Suite::OPS {
        let mut group = criterion.benchmark_group(target.name());
        // Some runs take a second, and there are many workloads.
        group.sample_size(10);
        group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        for workload in chosen(suite) {
            if let Err(why) = workload.check(target) {
                skipped(&workload.name, &why);
                continue;
            }
            if workload.cost.bytes > 0 {
                group.throughput(Throughput::Bytes(workload.cost.bytes));
            }
            // Prepared once, and only if the filter selects the workload.
            let mut prepared: Option<Prepared> = None;
            group.bench_function(&workload.name, |bencher| {
                let prepared = prepared.get_or_insert_with(|| {
                    let mut prepared = workload.prepare(target).expect("enough memory");
                    // The first run maps pages and loads kernels.
                    prepared.run().expect("it runs");
                    prepared
                });
                bencher
                    .iter_custom(|runs| (0..runs).map(|_| prepared.run().expect("it runs")).sum());
            });
        }
        group.finish();
    }
}

/// Returns all workloads of a suite; under `cargo test` only the first quick one.
fn chosen(suite: Suite) -> Vec<Workload> {
    let mut chosen = workloads(suite);
    // `cargo bench` passes this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        chosen.retain(|workload| workload.quick);
        chosen.truncate(1);
    }
    chosen
}

criterion_group!(benches, all);
criterion_main!(benches);
