//! Every workload with criterion, on the CPU and on a GPU where there is one: `cargo bench -p rf-bench -- cpu/matmul/q4_k`.
//!
//! Throughput is that of the bytes which a run has to move, so that it can be held against the memory's.
//!
//! `cargo test` runs one of each suite once, to see that they run; `cargo bench -p rf-bench -- --test` runs all.

#![expect(missing_docs, reason = "criterion's macros define undocumented public functions")]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rf_bench::{Error, Prepared, Suite, Target, Workload, workloads};

/// The expected outcome of what may be missing where this runs.
#[expect(clippy::print_stderr, reason = "says what was skipped")]
fn skipped(what: &str, why: &Error) {
    eprintln!("skipped: {what}: {why}");
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
        // Some take a second a run, and there are many.
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
            // Called again and again, and not at all where the filter leaves it out.
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

/// All, or where `cargo test` runs this, one.
fn chosen(suite: Suite) -> Vec<Workload> {
    let mut chosen = workloads(suite);
    // What `cargo bench` gives to every program that it runs.
    if !std::env::args().any(|argument| argument == "--bench") {
        chosen.retain(|workload| workload.quick);
        chosen.truncate(1);
    }
    chosen
}

criterion_group!(benches, all);
criterion_main!(benches);
