//! Tests of the list of workloads: stable names, and runs on every available target.

use std::collections::HashSet;
use std::time::Duration;

use rf_bench::{Clock, Error, Suite, Target, Workload, workloads};

fn all() -> impl Iterator<Item = Workload> {
    Suite::OPS.into_iter().flat_map(workloads)
}

/// Runs workloads twice each, one at a time, and returns the names of those that the target does
/// not support.
fn run(target: &Target, workloads: impl Iterator<Item = Workload>) -> Vec<String> {
    let mut skipped = Vec::new();
    for workload in workloads {
        let name = &workload.name;
        if let Err(error) = workload.check(target) {
            rf_testing::skip!("{name} on {target:?}: {error}");
            assert!(matches!(workload.prepare(target), Err(Error::Unsupported(_))), "{name}");
            skipped.push(workload.name);
            continue;
        }
        let mut prepared = workload.prepare(target).unwrap_or_else(|e| panic!("{name}: {e}"));
        for _ in 0..2 {
            let time = prepared.run().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(time > Duration::ZERO, "{name}");
        }
    }
    skipped
}

/// Stored baselines refer to workloads by name, so a name must denote the same work in every
/// version. `examples/list.rs` writes the file.
#[test]
fn workloads_are_those_of_the_committed_table() {
    let table: Vec<String> = all().map(|workload| workload.to_string()).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workloads.txt.gz");
    let committed = rf_testing::packed_text(path.as_ref());
    let committed: Vec<&str> = committed.lines().collect();
    assert_eq!(table, committed);
}

#[test]
fn names_are_unique_and_begin_with_their_suite() {
    let mut seen = HashSet::new();
    for workload in all() {
        let (suite, _) = workload.name.split_once('/').unwrap();
        assert_eq!(suite.parse::<Suite>(), Ok(workload.suite), "{workload}");
        assert!(seen.insert(workload.name.clone()), "{workload}");
    }
    let error = "speed".parse::<Suite>().unwrap_err().to_string();
    assert!(error.ends_with("matmul, attention, dequant, inference, memory, launch"), "{error}");
}

#[test]
fn the_quick_workloads_of_every_suite_run_on_the_cpu() {
    let target = Target::cpu(Some(2), None).unwrap();
    let skipped = run(&target, all().filter(|workload| workload.quick));
    assert_eq!(skipped, ["launch/replay/ops=1", "launch/replay/ops=64", "launch/replay/ops=512"]);
}

#[test]
fn every_workload_runs_on_a_gpu() {
    match Target::gpu(None) {
        Ok(target) => {
            let skipped = run(&target, all());
            // Work of the host: page management, conversion, attention step by step.
            let host = ["memory/grow/", "memory/fork/", "memory/prefix/", "quantize/", "/standard"];
            let is_of_host = |name: &String| host.iter().any(|part| name.contains(part));
            assert!(skipped.iter().all(is_of_host), "{skipped:?}");
        }
        Err(error) => rf_testing::skip!("{error}"),
    }
}

#[test]
fn ops_are_timed_by_the_executor_and_calls_by_the_host() {
    let target = Target::cpu(Some(1), None).unwrap();
    for (name, clock) in [
        ("matmul/f32/32x768/rows=32", Clock::Op),
        ("memory/append/1b/f16/tokens=1", Clock::Op),
        ("memory/grow/7b/page=32/step=1", Clock::Host),
        ("launch/step/ops=64", Clock::Host),
    ] {
        let workload = all().find(|workload| workload.name == name).unwrap();
        assert_eq!(workload.prepare(&target).unwrap().clock(), clock, "{name}");
    }
}
