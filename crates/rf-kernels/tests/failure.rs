//! What goes wrong with a GPU is a typed error, and neither the process nor the CPU is the worse for it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "functions of tests, which say what was skipped"
)]

use std::{env, process::Command};

use rf_cpu::{CpuBackend, CpuOptions};
use rf_graph::case::{Case, cases};
use rf_graph::conformance::{Outcome, check};
use rf_graph::{Backend, BackendError};
use rf_kernels::{Error, GpuBackend, GpuOptions};

/// Marks the child process.
const ALONE: &str = "RF_KERNELS_TEST_ALONE";

/// The environment is the whole process', so a test with one of its own runs itself again in a child. `true` there;
/// `false` in the parent, once the child has passed.
fn alone(test: &str, library: &str) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env_remove("ROCFORGE_GPU_PLATFORM")
        .envs([("ROCFORGE_HIP_LIBRARY", library), ("ROCFORGE_CUDA_LIBRARY", library), (ALONE, "1")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{test} did not run");
    false
}

fn case() -> Case {
    cases().into_iter().find(|case| case.name() == "model/llama-fp8").unwrap()
}

fn passes(backend: &dyn Backend) -> bool {
    matches!(check(backend, &case()), Ok(Outcome::Passed { .. }))
}

fn cpu_computes() -> bool {
    passes(&CpuBackend::new(CpuOptions::default()).unwrap())
}

#[test]
fn without_a_runtime_the_cpu_computes() {
    if !alone("without_a_runtime_the_cpu_computes", "/nowhere/libmissing.so") {
        return;
    }
    // Again and again, as a program that asks for its devices more than once does.
    for _ in 0..3 {
        let error = GpuBackend::new(GpuOptions::default()).err().unwrap();
        let Error::Runtime(rf_hip::Error::LibraryNotFound { .. }) = &error else {
            panic!("{error}")
        };
        assert!(
            matches!(BackendError::from(error), BackendError::Device(text) if text.contains("libmissing"))
        );
    }
    assert!(cpu_computes());
}

#[test]
fn with_a_library_that_is_no_runtime_the_cpu_computes() {
    if !alone("with_a_library_that_is_no_runtime_the_cpu_computes", "libc.so.6") {
        return;
    }
    match GpuBackend::new(GpuOptions::default()).err().unwrap() {
        Error::Runtime(rf_hip::Error::MissingSymbol { .. }) => {}
        Error::Runtime(rf_hip::Error::LibraryNotFound { .. }) => {
            println!("skipped: no libc.so.6 here");
        }
        error => panic!("{error}"),
    }
    assert!(cpu_computes());
}

#[test]
fn what_does_not_fit_is_refused_and_the_rest_goes_on() {
    let backend = match GpuBackend::new(GpuOptions::default()) {
        Ok(backend) => backend,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let total_bytes = backend.device().total_memory_bytes;
    let mut running = backend.compile(case().program(), &mut |_| ()).unwrap();
    for share in [1, 2, 1 << 10, 1 << 20] {
        let mut program = case().program();
        let page_bytes = program.kv.bytes_per_token() * program.kv.page_tokens;
        program.kv.num_pages = total_bytes as usize / page_bytes * share + 1;
        match backend.compile(program, &mut |_| ()).err().unwrap() {
            BackendError::OutOfMemory { what, bytes } => {
                assert!(what.contains("KV cache"), "{what}");
                assert!(bytes > total_bytes / 2 * share as u64, "{bytes}");
            }
            error => panic!("{error}"),
        }
    }
    // What was there before still runs, what comes after does too, and so does the CPU.
    case().batches()[0].with(|batch| running.forward(batch, &mut [])).unwrap();
    assert!(passes(&backend));
    assert!(cpu_computes());
}
