//! Parts of a divided program on two emulated cards, which read the memory of each other or sum
//! through host memory. A part that fails or stalls ends the step of both with an error. Nothing
//! hangs, and nothing is left allocated.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "functions of tests, which print skipped tests"
)]

mod scenario;
mod stand_in;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rf_graph::tensor::{TensorBackend, divide};
use rf_graph::{Backend, BackendError, Member, Op, Output, Rendezvous};
use rf_kernels::{GpuBackend, GpuOptions};
use scenario::{case, last_calls, steps};
use stand_in::{Outputs, Session, arch, library};

/// The longest time of a test, which takes about one minute on a machine without other work.
const LIMIT: Duration = Duration::from_mins(15);

/// `hipErrorInvalidValue`
const INVALID: i32 = 1;
/// `hipErrorOutOfMemory`
const OUT_OF_MEMORY: i32 = 2;
/// `hipErrorNotReady`
const NOT_READY: i32 = 600;
/// The status of a device that is lost.
const LOST: i32 = 719;

/// The child's side of a test on two cards.
fn session(test: &str) -> Option<Session> {
    let arch = arch().unwrap_or_default();
    let cards = format!("{arch},{arch}");
    stand_in::session(test, &library(), &[("ROCFORGE_EMU_ARCH", Path::new(&cards))], LIMIT)
}

fn open(ordinal: usize, signals: bool) -> Result<GpuBackend, BackendError> {
    let options = GpuOptions::default().with_ordinal(ordinal).with_signals(signals);
    Ok(GpuBackend::new(options)?)
}

/// Loads the model on two cards, runs a prompt and decode steps, and closes it. Where the cards
/// access the memory of each other, they wait for signals or for events.
fn run_with(signals: bool) -> Result<Outputs, BackendError> {
    let case = case();
    let gpus = [open(0, signals)?, open(1, signals)?];
    let parts: [(&dyn Backend, f32); 2] = [(&gpus[0], 1.0), (&gpus[1], 1.0)];
    let backend = TensorBackend::new(&parts).unwrap().with_limit(Duration::from_mins(1));
    let mut executor = backend.compile(case.program(), &mut |_| ())?;
    steps(&case, &mut *executor, 3)
}

fn run() -> Result<Outputs, BackendError> {
    run_with(false)
}

#[test]
fn every_call_of_two_parts_fails_once_with_an_error() {
    let Some(session) = session("every_call_of_two_parts_fails_once_with_an_error") else { return };
    let (expected, calls) = session.run("", run);
    let expected = expected.unwrap();
    assert_eq!(calls.last().unwrap().live_objects, 0, "the run without a fault leaves objects");
    let last_calls = last_calls(&calls);
    // Loading is the same as on one card.
    let of_steps = |function: &&str| {
        let names = ["Launch", "Event", "Stream", "HostMalloc", "HostGetDevicePointer", "Peer"];
        names.iter().any(|name| function.contains(name))
    };
    let (mut runs, mut errors, mut wrong) = (0, 0, Vec::new());
    for function in last_calls.keys().map(String::as_str).filter(of_steps) {
        let last = last_calls[function];
        for number in [1, last / 2, last.saturating_sub(3), last] {
            for status in [INVALID, LOST] {
                let plan = format!("{function}:{}:{status}", number.max(1));
                let (outcome, calls) = session.run(&plan, run);
                runs += 1;
                // What could not be released of a lost device is left, and what was to be released
                // by the call itself.
                let left = calls.last().unwrap().live_objects - calls[0].live_objects;
                if left > usize::from(function.contains("Destroy") || function.contains("Free")) {
                    wrong.push(format!("{plan}: {left} objects are left"));
                }
                match outcome {
                    Ok(outputs) if outputs == expected => {}
                    Ok(_) => wrong.push(format!("{plan}: wrong results")),
                    Err(BackendError::Device(_) | BackendError::OutOfMemory { .. }) => errors += 1,
                    Err(error) => wrong.push(format!("{plan}: {error}")),
                }
            }
        }
    }
    println!("{runs} runs, {errors} with an error");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(2 * errors > runs, "{errors} errors in {runs} runs");
    for kernel in ["sum_parts_f32_q8:3", "copy_rows_f32:5"] {
        let (outcome, _) = session.run(&format!("{kernel}:{LOST}"), run);
        assert!(matches!(outcome, Err(BackendError::Device(_))), "{kernel}: {outcome:?}");
    }
    let plan = format!("hipHostMalloc:14+:{OUT_OF_MEMORY}");
    assert!(matches!(session.run(&plan, run).0, Err(BackendError::OutOfMemory { .. })));
    let (outcome, _) = session.run("", run);
    assert_eq!(outcome.unwrap(), expected, "the process stays usable");
}

#[test]
fn sums_have_the_same_bits_with_and_without_access_to_other_memory() {
    /// The sums of three decode steps of two layers on two cards.
    const SIGNALLED: u64 = 3 * 2 * 2 * 2;
    let name = "sums_have_the_same_bits_with_and_without_access_to_other_memory";
    let Some(session) = session(name) else { return };
    let run_signals = || run_with(true);
    let counted = |plan: &str, signals| {
        let (outcome, calls) = session.run(plan, || run_with(signals));
        let calls = last_calls(&calls);
        let count = |function: &str| calls.get(function).copied().unwrap_or(0);
        let copies = count("hipMemcpyPeerAsync");
        (outcome.unwrap(), count("hipEventRecord"), copies, count("hipModuleLaunchKernel"))
    };
    let (expected, events, copies, launches) = counted("", false);
    assert_eq!(copies, 0, "kernels read what the other card wrote");
    let (outputs, fewer_events, copies, _) = counted("", true);
    assert_eq!((outputs, copies), (expected.clone(), 0), "signals");
    assert_eq!(fewer_events, events - SIGNALLED);
    // The first copy is a test of what a kernel reads.
    for plan in [format!("hipDeviceEnablePeerAccess:*:{INVALID}"), "copy_rows_f32:1:skipped".into()]
    {
        let (outputs, all_events, copies, _) = counted(&plan, true);
        assert_eq!((outputs, copies), (expected.clone(), 0), "{plan}: through host memory");
        assert!(all_events > events - SIGNALLED, "{plan}: {all_events} of {events} events");
    }
    for launch in [launches / 2, launches] {
        let (outcome, _) =
            session.run(&format!("hipModuleLaunchKernel:{launch}:{LOST}"), run_signals);
        assert!(matches!(outcome, Err(BackendError::Device(_))), "{launch}: {outcome:?}");
    }
    let (outcome, calls) = session.run("", run_signals);
    assert_eq!(outcome.unwrap(), expected, "the process stays usable");
    let left = calls.last().unwrap().live_objects - calls[0].live_objects;
    assert_eq!(left, 0, "objects are left");
}

/// Loads a part of the model on one card and runs its first batch, with a limit for waits.
fn run_alone(limit: Duration, parts: usize) -> Result<Outputs, BackendError> {
    let case = case();
    let gpu = open(0, false)?;
    let part = divide(&case.program(), &vec![1.0; parts.max(2)]).parts.remove(0);
    let part = part.fused_for(&gpu);
    assert!(part.graph.ops().iter().any(|op| matches!(op, Op::AllReduce { .. })));
    let output = part.graph.value(part.graph.output());
    let mut executor = gpu.compile(part, &mut |_| ())?;
    let collective = Arc::new(Rendezvous::new(parts, limit));
    executor.join(Member { collective, part: 0 })?;
    case.batches()[0].with(|batch| {
        let mut out = vec![f32::NAN; batch.rows(output.rows) * output.width];
        executor.forward(batch, Output::rows(&mut out))?;
        Ok(vec![out])
    })
}

#[test]
fn a_part_that_does_not_come_and_a_device_that_stalls_are_errors() {
    let name = "a_part_that_does_not_come_and_a_device_that_stalls_are_errors";
    let Some(session) = session(name) else { return };
    let limit = Duration::from_millis(50);
    let (outcome, _) = session.run("", || run_alone(limit, 2));
    let error = outcome.unwrap_err().to_string();
    assert_eq!(error, "part 2 of 2 did not come to a sum within 0.05 s");

    // Alone in its meeting, a part comes to the end of the step.
    let (outcome, _) = session.run("", || run_alone(limit, 1));
    assert!(outcome.unwrap()[0].iter().all(|logit| logit.is_finite()));
    let plan = format!("hipStreamQuery:*:{NOT_READY}");
    let (outcome, _) = session.run(&plan, || run_alone(limit, 1));
    let error = outcome.unwrap_err().to_string();
    assert_eq!(error, "part 1 of the model did not end a step within 0.05 s");
}
