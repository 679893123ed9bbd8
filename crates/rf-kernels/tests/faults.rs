//! Every function of the runtime fails once, at its first and at its last use in the life of a
//! model: loading, prompt, decode, capture, replay, closing. The result is a typed error, or the
//! same bits as without the fault where a fallback exists. Nothing hangs, and nothing is left
//! allocated.
//!
//! The runtime is the emulator's stand-in for libamdhip64.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "functions of tests, which print skipped tests"
)]

mod scenario;
mod stand_in;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rf_emu_hip::without_symbols;
use rf_graph::{Backend, BackendError};
use rf_kernels::{Error, GpuBackend, GpuOptions};
use scenario::{case, last_calls, steps};
use stand_in::{Outputs, library, session};

/// `hipErrorInvalidValue`
const INVALID: i32 = 1;
/// `hipErrorOutOfMemory`
const OUT_OF_MEMORY: i32 = 2;
/// The status of a device that is lost.
const LOST: i32 = 719;
/// `hipErrorNotReady`, which is no failure.
const NOT_READY: i32 = 600;

/// Functions whose failure leaves an object, because nothing else releases it.
fn may_leave_an_object(function: &str) -> bool {
    let releases = ["Free", "Destroy", "Unload"];
    releases.iter().any(|name| function.contains(name))
        // Needed before every release.
        || function == "hipSetDevice"
        || function == "hipDeviceSynchronize"
}

/// Loads the model, runs a prompt and decode steps until they are replayed, and closes it.
fn run() -> Result<Outputs, BackendError> {
    let case = case();
    let backend = GpuBackend::new(GpuOptions::default()).map_err(BackendError::from)?;
    let mut executor = backend.compile(case.program().fused_for(&backend), &mut |_| ())?;
    // The decode step is launched, captured, and then replayed, with and without a check.
    steps(&case, &mut *executor, 4)
}

#[test]
fn every_call_fails_once_with_an_error_or_a_fallback() {
    let name = "every_call_fails_once_with_an_error_or_a_fallback";
    let Some(session) = session(name, &library(), &[], Duration::from_mins(5)) else { return };
    let (expected, calls) = session.run("", run);
    let expected = expected.unwrap();
    assert_eq!(calls.last().unwrap().live_objects, 0, "the run without a fault leaves objects");
    let last_calls = last_calls(&calls);

    let (mut runs, mut wrong, mut fallbacks) = (0, Vec::new(), BTreeMap::new());
    for (function, &last) in &last_calls {
        let mut numbers = vec![1, last];
        numbers.dedup();
        let failure = if function.contains("Malloc") { OUT_OF_MEMORY } else { INVALID };
        for number in numbers {
            for status in [failure, LOST] {
                let plan = format!("{function}:{number}:{status}");
                let (outcome, calls) = session.run(&plan, run);
                runs += 1;
                // Earlier runs may have left objects.
                let left = calls.last().unwrap().live_objects - calls[0].live_objects;
                if left > usize::from(may_leave_an_object(function)) {
                    wrong.push(format!("{plan}: {left} objects are left"));
                }
                match outcome {
                    Ok(outputs) if outputs == expected => {
                        *fallbacks.entry(function.clone()).or_insert(0) += 1;
                    }
                    Ok(_) => wrong.push(format!("{plan}: wrong results")),
                    Err(BackendError::OutOfMemory { .. }) if status == OUT_OF_MEMORY => {}
                    Err(BackendError::Device(text)) if text.contains(function.as_str()) => {}
                    // A lost device is reported by the next call whose failure matters.
                    Err(BackendError::Device(text)) if status == LOST && text.contains("(719)") => {
                    }
                    Err(error) => wrong.push(format!("{plan}: {error}")),
                }
            }
        }
    }
    println!("{runs} runs, {} functions; with a fallback: {fallbacks:?}", last_calls.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (outcome, _) = session.run("", run);
    assert_eq!(outcome.unwrap(), expected, "the process stays usable");
}

/// Memory runs out at each allocation of a model's life.
#[test]
fn every_allocation_that_fails_is_an_error_or_a_fallback() {
    let name = "every_allocation_that_fails_is_an_error_or_a_fallback";
    let Some(session) = session(name, &library(), &[], Duration::from_mins(5)) else { return };
    let (expected, calls) = session.run("", run);
    let expected = expected.unwrap();
    let (mut runs, mut divided) = (0, 0);
    for function in ["hipMalloc", "hipHostMalloc"] {
        let last = calls.iter().filter(|call| call.function == function).map(|call| call.number);
        for number in 1..=last.max().unwrap() {
            let plan = format!("{function}:{number}:{OUT_OF_MEMORY}");
            let (outcome, calls) = session.run(&plan, run);
            runs += 1;
            assert_eq!(calls.last().unwrap().live_objects, 0, "{plan}");
            match outcome {
                Err(BackendError::OutOfMemory { .. }) => {}
                outcome => {
                    assert_eq!(outcome.unwrap(), expected, "{plan}");
                    divided += 1;
                }
            }
        }
    }
    println!("{runs} runs");
    assert_eq!(divided, 2, "the KV cache and the weights are divided");
}

/// A runtime that refuses large allocations, as HIP does on integrated GPUs, gets smaller ones.
#[test]
fn weights_are_several_allocations_where_one_is_refused() {
    let name = "weights_are_several_allocations_where_one_is_refused";
    let Some(session) = session(name, &library(), &[], Duration::from_mins(5)) else { return };
    let (expected, calls) = session.run("", run);
    let expected = expected.unwrap();
    let most_objects =
        |calls: &[stand_in::Call]| calls.iter().map(|call| call.live_objects).max().unwrap();
    let usual = most_objects(&calls);
    // The weights of the model have 1.7 MB, and are allocated last.
    let weights = calls.iter().rfind(|call| call.function == "hipMalloc").unwrap().number;
    let limited = |size: &str| format!("allocation:{weights}+>{size}:{OUT_OF_MEMORY}");
    for (limit, least) in [("1MiB", 1), ("512KiB", 3)] {
        let (outcome, calls) = session.run(&limited(limit), run);
        assert_eq!(outcome.unwrap(), expected, "{limit}");
        let more = most_objects(&calls) - usual;
        println!("in these runs: {more} allocations more, of at most {limit}");
        assert!(more >= least, "{limit}: {more} allocations more");
        assert_eq!(calls.last().unwrap().live_objects, 0, "{limit}");
    }
    // Less than a plane of a matrix.
    let (outcome, calls) = session.run(&limited("1KiB"), run);
    assert!(matches!(outcome, Err(BackendError::OutOfMemory { .. })), "{outcome:?}");
    assert_eq!(calls.last().unwrap().live_objects, 0);
}

/// HIP does not count what a compositor or a game uses of the card, and the kernel driver does.
#[test]
fn memory_that_the_runtime_names_and_others_use_is_not_free() {
    let name = "memory_that_the_runtime_names_and_others_use_is_not_free";
    let Some(session) = session(name, &library(), &[], Duration::from_mins(2)) else { return };
    let other_bytes = 1_u64 << 30;
    let check = |used_bytes: u64| {
        let backend = GpuBackend::new(GpuOptions::default()).map_err(BackendError::from)?;
        let device = backend.device();
        let (total_bytes, bus) = (device.total_memory_bytes, device.pci_bus_id.clone());
        let root = tempfile::TempDir::new().unwrap();
        let folder = root.path().join("sys/bus/pci/devices").join(bus.to_lowercase());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mem_info_vram_total"), total_bytes.to_string()).unwrap();
        fs::write(folder.join("mem_info_vram_used"), used_bytes.to_string()).unwrap();
        let backend = backend.with_system_root(root.path());
        let program = case().program().fused_for(&backend);
        let free_bytes = backend.available_memory_bytes().unwrap();
        assert_eq!(free_bytes, total_bytes - used_bytes);
        let need_bytes = backend.memory_need(&program)?.total_bytes();
        backend.compile(program, &mut |_| ())?;
        Ok((total_bytes, need_bytes))
    };
    let outcome = |used_bytes: u64| {
        let mut measured = Ok((0, 0));
        let (outcome, _) = session.run("hipMemGetInfo:*:+8GiB", || {
            measured = check(used_bytes);
            Ok(Outputs::new())
        });
        outcome.and(measured)
    };
    let (total_bytes, need_bytes) = outcome(other_bytes).unwrap();
    let error = outcome(total_bytes - need_bytes + 1).unwrap_err();
    assert!(matches!(error, BackendError::DoesNotFit { .. }), "{error}");
}

/// Stream-ordered pools are broken on Radeon cards.
#[test]
fn no_memory_comes_from_stream_ordered_pools() {
    let name = "no_memory_comes_from_stream_ordered_pools";
    let Some(session) = session(name, &library(), &[], Duration::from_mins(2)) else { return };
    let (outcome, calls) = session.run("", run);
    outcome.unwrap();
    let is_of_pools = |function: &str| {
        function.contains("Pool") || ["hipMallocAsync", "hipFreeAsync"].contains(&function)
    };
    assert!(calls.iter().any(|call| call.function == "hipMalloc"));
    let used: Vec<_> =
        calls.iter().map(|call| &*call.function).filter(|f| is_of_pools(f)).collect();
    assert!(used.is_empty(), "{used:?}");
    let runtime = rf_hip::Runtime::load().unwrap();
    assert!(!runtime.device(0).unwrap().info().memory_pools);
}

/// A kernel that fails in the middle of its work is reported by the next wait.
#[test]
fn a_kernel_that_faults_is_a_lost_device() {
    let name = "a_kernel_that_faults_is_a_lost_device";
    let Some(session) = session(name, &library(), &[], Duration::from_mins(2)) else { return };
    for kernel in [1, 7, 40] {
        let (outcome, calls) = session.run(&format!("kernel:{kernel}:700"), run);
        let error = outcome.unwrap_err();
        let BackendError::Device(text) = &error else { panic!("{error}") };
        assert!(text.contains("hipErrorIllegalAddress (700)"), "{text}");
        assert_eq!(calls.last().unwrap().live_objects, 0, "kernel {kernel}");
    }
}

/// A runtime that is not ready yet is asked again.
#[test]
fn slow_completions_change_nothing() {
    let name = "slow_completions_change_nothing";
    let Some(session) = session(name, &library(), &[], Duration::from_mins(2)) else { return };
    let (expected, _) = session.run("", run);
    let plan = format!("hipEventQuery:1-5:{NOT_READY},hipStreamQuery:1-5:{NOT_READY}");
    assert_eq!(session.run(&plan, run).0.unwrap(), expected.unwrap());
}

/// Functions that older runtimes lack have substitutes.
#[test]
fn an_older_runtime_gives_the_same_results() {
    let folder = tempfile::TempDir::new().unwrap();
    let old = folder.path().join("libold.so");
    let lacking = [
        "hipGetDevicePropertiesR0600",
        "hipGraphInstantiateWithFlags",
        "hipMallocAsync",
        "hipStreamBeginCapture",
    ];
    fs::write(&old, without_symbols(&fs::read(library()).unwrap(), &lacking).unwrap()).unwrap();
    let name = "an_older_runtime_gives_the_same_results";
    let Some(_) = session(name, &old, &[], Duration::from_mins(2)) else { return };
    let backend = GpuBackend::new(GpuOptions::default());
    assert!(!matches!(backend, Err(Error::Runtime(_))), "{:?}", backend.err());
    drop(backend);
    let case = case();
    let backend = GpuBackend::new(GpuOptions::default()).unwrap();
    let outcome = rf_oracle::conformance::check(&backend, &case);
    assert!(
        matches!(outcome, Ok(rf_oracle::conformance::CaseOutcome::Passed { .. })),
        "{outcome:?}"
    );
}
