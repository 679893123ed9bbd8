//! GPU failures are typed errors. The process and the CPU backend stay usable.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "functions of tests, which print skipped tests"
)]

use std::env;
use std::process::Command;

use rf_cpu::{CpuBackend, CpuOptions};
use rf_graph::{Backend, BackendError, Output};
use rf_kernels::{Error, GpuBackend, GpuOptions};
use rf_kv::PageGroup;
use rf_oracle::case::{Case, cases};
use rf_oracle::conformance::{CaseOutcome, check};

/// The environment variable that marks the child process.
const CHILD: &str = "RF_KERNELS_TEST_ALONE";

/// Runs a test again in a child process with the runtime libraries replaced by `library`, because
/// environment variables apply to the whole process. Returns true in the child, and false in the
/// parent after the child has passed.
fn in_child(test: &str, library: &str) -> bool {
    if env::var_os(CHILD).is_some() {
        return true;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env_remove("ROCFORGE_GPU_PLATFORM")
        .envs([("ROCFORGE_HIP_LIBRARY", library), ("ROCFORGE_CUDA_LIBRARY", library), (CHILD, "1")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    print!("{text}{error}");
    assert!(output.status.success(), "{error}");
    assert!(text.contains("1 passed"), "{test} did not run");
    false
}

fn case() -> Case {
    cases().into_iter().find(|case| case.name() == "model/llama-fp8").unwrap()
}

fn passes(backend: &dyn Backend) -> bool {
    matches!(check(backend, &case()), Ok(CaseOutcome::Passed { .. }))
}

fn cpu_computes() -> bool {
    passes(&CpuBackend::new(CpuOptions::default()).unwrap())
}

#[test]
fn without_a_runtime_the_cpu_computes() {
    if !in_child("without_a_runtime_the_cpu_computes", "/nowhere/libmissing.so") {
        return;
    }
    // Repeated attempts return the same error.
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
    if !in_child("with_a_library_that_is_no_runtime_the_cpu_computes", "libc.so.6") {
        return;
    }
    match GpuBackend::new(GpuOptions::default()).err().unwrap() {
        Error::Runtime(rf_hip::Error::MissingSymbol { .. }) => {}
        Error::Runtime(rf_hip::Error::LibraryNotFound { .. }) => {
            rf_testing::skip!("no libc.so.6 here");
        }
        error => panic!("{error}"),
    }
    assert!(cpu_computes());
}

#[test]
fn a_program_that_does_not_fit_is_an_error_and_others_still_run() {
    let backend = match GpuBackend::new(GpuOptions::default()) {
        Ok(backend) => backend,
        Err(error) => {
            rf_testing::skip!("{error}");
            return;
        }
    };
    let total_bytes = backend.device().total_memory_bytes;
    let mut running = backend.compile(case().program(), &mut |_| ()).unwrap();
    for factor in [1, 2, 1 << 10, 1 << 20] {
        let mut program = case().program();
        let page_bytes = program.kv.bytes_per_token(PageGroup::Full) * program.kv.page_tokens;
        program.kv.num_pages.full = total_bytes as usize / page_bytes * factor + 1;
        match backend.compile(program, &mut |_| ()).err().unwrap() {
            BackendError::DoesNotFit { need, available_bytes, .. } => {
                assert!(need.held.kv_bytes > total_bytes / 2 * factor as u64, "{need:?}");
                assert!(available_bytes < total_bytes, "{available_bytes}");
            }
            error => panic!("{error}"),
        }
    }
    // The running program, a new program and the CPU backend still work.
    case().batches()[0].with(|batch| running.forward(batch, Output::rows(&mut []))).unwrap();
    assert!(passes(&backend));
    assert!(cpu_computes());
}
