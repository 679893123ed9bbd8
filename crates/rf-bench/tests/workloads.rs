//! The workloads as others see them: their names, and that they run.

#![expect(clippy::print_stdout, reason = "says what was skipped")]

use std::collections::HashSet;
use std::time::Duration;

use rf_bench::{Clock, Error, Suite, Target, Workload, workloads};

fn all() -> impl Iterator<Item = Workload> {
    Suite::OPS.into_iter().flat_map(workloads)
}

/// Runs workloads twice each, one at a time.
fn run(target: &Target, workloads: impl Iterator<Item = Workload>) {
    for workload in workloads {
        let name = &workload.name;
        if let Err(error) = workload.check(target) {
            println!("skipped: {name} on {target:?}: {error}");
            assert!(matches!(workload.prepare(target), Err(Error::Unsupported(_))), "{name}");
            continue;
        }
        let mut prepared = workload.prepare(target).unwrap_or_else(|e| panic!("{name}: {e}"));
        for _ in 0..2 {
            let time = prepared.run().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(time > Duration::ZERO, "{name}");
        }
    }
}

/// Records are compared by name, so a name stands for the same work for good. `examples/list.rs` writes the file.
#[test]
fn workloads_are_those_of_the_committed_table() {
    let table: Vec<String> = all().map(|workload| workload.to_string()).collect();
    let committed: Vec<&str> = include_str!("workloads.txt").lines().collect();
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
fn every_suite_has_quick_workloads_and_they_run() {
    let target = Target::cpu(Some(2), None).unwrap();
    for suite in Suite::OPS {
        assert!(workloads(suite).iter().any(|workload| workload.quick), "{suite}");
    }
    run(&target, all().filter(|workload| workload.quick));
}

#[test]
fn every_workload_runs_on_a_gpu() {
    match Target::gpu(None) {
        Ok(target) => run(&target, all()),
        Err(error) => println!("skipped: {error}"),
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
