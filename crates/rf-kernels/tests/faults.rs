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

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rf_emu_hip::without_symbols;
use rf_graph::case::{Case, cases};
use rf_graph::{Backend, BackendError, Batch, Program, fuse};
use rf_kernels::objects::{build_note, embedded_targets};
use rf_kernels::{Error, GpuBackend, GpuOptions};

/// The environment variable that names the folder of the child process.
const FOLDER: &str = "RF_KERNELS_TEST_FOLDER";

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

fn case() -> Case {
    cases().into_iter().find(|case| case.name() == "model/llama-q8_0").unwrap()
}

/// Loads the model, runs a prompt and decode steps until they are replayed, and closes it.
fn run() -> Result<Vec<Vec<f32>>, BackendError> {
    let case = case();
    let backend = GpuBackend::new(GpuOptions::default()).map_err(BackendError::from)?;
    let program = case.program();
    let program = Program { graph: fuse(program.graph, backend.fusions()), ..program };
    let output = program.graph.value(program.graph.output());
    let mut executor = backend.compile(program, &mut |_| ())?;
    // The decode step is launched, captured, and then replayed twice.
    let batches = case.batches();
    let steps = [&batches[0], &batches[1], &batches[1], &batches[1]];
    let mut forward = |batch: &Batch<'_>| {
        let mut out = vec![f32::NAN; batch.rows(output.rows) * output.width];
        executor.forward(batch, &mut out)?;
        Ok(out)
    };
    steps.into_iter().map(|batch| batch.with(&mut forward)).collect()
}

/// One line of the log.
struct Call {
    function: String,
    number: u64,
    live_objects: usize,
}

/// The files through which the test and the stand-in talk.
struct Session<'a> {
    folder: &'a Path,
}

impl Session<'_> {
    /// Runs the model with a fault plan, and returns the calls from the first one after the plan
    /// was read.
    fn run(&self, plan: &str) -> (Result<Vec<Vec<f32>>, BackendError>, Vec<Call>) {
        fs::write(self.folder.join("plan"), plan).unwrap();
        let log = self.folder.join("log");
        let before = fs::metadata(&log).map_or(0, |log| log.len()) as usize;
        let outcome = run();
        let text = fs::read_to_string(log).unwrap();
        let calls = text[before..].lines().map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let [function, number, _, live_objects] = fields[..] else { panic!("{line}") };
            Call {
                function: function.to_owned(),
                number: number.parse().unwrap(),
                live_objects: live_objects.parse().unwrap(),
            }
        });
        (outcome, calls.skip_while(|call| call.function != "hipGetDeviceCount").collect())
    }
}

/// Runs this test again in a child process with the stand-in. Returns the folder in the child, and
/// `None` in the parent after the child has passed.
fn in_child(test: &str, library: &Path, limit: Duration) -> Option<std::path::PathBuf> {
    if let Some(folder) = env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path();
    fs::write(path.join("plan"), "").unwrap();
    let output = path.join("output");
    let file = fs::File::create(&output).unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(FOLDER, path)
        .env("ROCFORGE_GPU_PLATFORM", "amd")
        .env("ROCFORGE_HIP_LIBRARY", library)
        .env("ROCFORGE_EMU_ARCH", arch().unwrap())
        .env("ROCFORGE_EMU_CHECK", "none")
        .env("ROCFORGE_EMU_FAIL", format!("@{}", path.join("plan").display()))
        .env("ROCFORGE_EMU_LOG", path.join("log"))
        .stdout(Stdio::from(file.try_clone().unwrap()))
        .stderr(Stdio::from(file))
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if start.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let text = fs::read_to_string(output).unwrap();
    let plan = fs::read_to_string(path.join("plan")).unwrap();
    let Some(status) = status else { panic!("hung with the fault {plan}:\n{text}") };
    assert!(status.success() && text.contains("1 passed"), "fault {plan}:\n{text}");
    text.lines().filter(|line| line.contains("runs")).for_each(|line| println!("{line}"));
    None
}

/// A device for which kernels are embedded.
fn arch() -> Option<&'static str> {
    embedded_targets().find(|target| target.starts_with("gfx1") && !target.contains("generic"))
}

/// The stand-in, which cargo builds next to the tests.
fn library() -> std::path::PathBuf {
    env::current_exe().unwrap().with_file_name("librf_emu_hip.so")
}

#[test]
fn every_call_fails_once_with_an_error_or_a_fallback() {
    if arch().is_none() {
        println!("skipped: {}", build_note());
        return;
    }
    let name = "every_call_fails_once_with_an_error_or_a_fallback";
    let Some(folder) = in_child(name, &library(), Duration::from_mins(5)) else { return };
    let session = Session { folder: &folder };
    let (expected, calls) = session.run("");
    let expected = expected.unwrap();
    assert_eq!(calls.last().unwrap().live_objects, 0, "the run without a fault leaves objects");
    let mut last_calls = BTreeMap::new();
    for call in &calls {
        last_calls.insert(call.function.clone(), call.number);
    }

    let (mut runs, mut wrong, mut fallbacks) = (0, Vec::new(), BTreeMap::new());
    for (function, &last) in &last_calls {
        let mut numbers = vec![1, last];
        numbers.dedup();
        let failure = if function.contains("Malloc") { OUT_OF_MEMORY } else { INVALID };
        for number in numbers {
            for status in [failure, LOST] {
                let plan = format!("{function}:{number}:{status}");
                let (outcome, calls) = session.run(&plan);
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
    let (outcome, _) = session.run("");
    assert_eq!(outcome.unwrap(), expected, "the process stays usable");
}

/// A kernel that fails in the middle of its work is reported by the next wait.
#[test]
fn a_kernel_that_faults_is_a_lost_device() {
    if arch().is_none() {
        println!("skipped: {}", build_note());
        return;
    }
    let name = "a_kernel_that_faults_is_a_lost_device";
    let Some(folder) = in_child(name, &library(), Duration::from_mins(2)) else { return };
    let session = Session { folder: &folder };
    for kernel in [1, 7, 40] {
        let (outcome, calls) = session.run(&format!("kernel:{kernel}:700"));
        let error = outcome.unwrap_err();
        let BackendError::Device(text) = &error else { panic!("{error}") };
        assert!(text.contains("hipErrorIllegalAddress (700)"), "{text}");
        assert_eq!(calls.last().unwrap().live_objects, 0, "kernel {kernel}");
    }
}

/// A runtime that is not ready yet is asked again.
#[test]
fn slow_completions_change_nothing() {
    if arch().is_none() {
        println!("skipped: {}", build_note());
        return;
    }
    let name = "slow_completions_change_nothing";
    let Some(folder) = in_child(name, &library(), Duration::from_mins(2)) else { return };
    let session = Session { folder: &folder };
    let (expected, _) = session.run("");
    let plan = format!("hipEventQuery:1-5:{NOT_READY},hipStreamQuery:1-5:{NOT_READY}");
    assert_eq!(session.run(&plan).0.unwrap(), expected.unwrap());
}

/// Functions that older runtimes lack have substitutes.
#[test]
fn an_older_runtime_gives_the_same_results() {
    if arch().is_none() {
        println!("skipped: {}", build_note());
        return;
    }
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
    let Some(_) = in_child(name, &old, Duration::from_mins(2)) else { return };
    let backend = GpuBackend::new(GpuOptions::default());
    assert!(!matches!(backend, Err(Error::Runtime(_))), "{:?}", backend.err());
    drop(backend);
    let case = case();
    let backend = GpuBackend::new(GpuOptions::default()).unwrap();
    let outcome = rf_graph::conformance::check(&backend, &case);
    assert!(matches!(outcome, Ok(rf_graph::conformance::Outcome::Passed { .. })), "{outcome:?}");
}
