//! Code that ROCm's compiler makes on the user's machine: instead of the embedded code that a
//! driver refuses, and for choices of `rf-cli tune`. Without the compiler, the error says what is
//! missing.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "functions of tests, which print skipped tests"
)]

mod stand_in;
mod warnings;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rf_graph::{BackendError, DType, OperandFormat};
use rf_kernels::objects::{CodeOrigin, cache_folder, embedded_targets};
use rf_kernels::tuning::{Knob, Tuning};
use rf_kernels::{GpuBackend, GpuOptions};
use rf_kernels_build::Compiler;
use rf_oracle::case::{Case, cases};
use rf_oracle::conformance::{CaseOutcome, check};
use stand_in::{Outputs, Session, library, session};
use warnings::Warnings;

const LIMIT: Duration = Duration::from_mins(10);

/// `hipErrorNoBinaryForGpu`, for the first module.
const REFUSED: &str = "hipModuleLoadData:1:209";

/// Builds the stand-in for libhiprtc in a folder as `ROCM_PATH` has it. `None` without a compiler.
fn rocm_with_compiler(folder: &Path) -> Option<PathBuf> {
    let clang = Compiler::find().ok()?.path().to_owned();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in/hiprtc.c");
    std::fs::create_dir(folder.join("lib")).unwrap();
    let library = folder.join("lib/libhiprtc.so.7");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(library)
        .arg(source)
        .status();
    built.is_ok_and(|status| status.success()).then_some(clang)
}

/// The session of a test on a machine with the stand-in for libhiprtc, and with further variables.
fn session_with_compiler(name: &str, variables: &[(&str, &Path)]) -> Option<Session> {
    let folder = tempfile::TempDir::new().unwrap();
    let Some(clang) = rocm_with_compiler(folder.path()) else {
        rf_testing::skip!("no cc or no clang for kernels");
        return None;
    };
    let compiler = [("ROCM_PATH", folder.path()), ("TEST_HIPRTC_CLANG", &*clang)];
    session(name, &library(), &[&compiler, variables].concat(), LIMIT)
}

/// Checks the results of a case, which loads a few units.
fn run(backend: &GpuBackend) {
    let case = cases().into_iter().find(|case| case.name() == "add").unwrap();
    let outcome = check(backend, &case);
    assert!(matches!(outcome, Ok(CaseOutcome::Passed { .. })), "{outcome:?}");
}

/// Opens the backend with a fault and runs a case on it. Returns the origin of the code, and the
/// warnings.
fn open(session: &Session, plan: &str) -> (Result<CodeOrigin, rf_kernels::Error>, Vec<String>) {
    let (mut code, mut warnings) = (None, Vec::new());
    let (outcome, calls) = session.run(plan, || {
        ((), warnings) = Warnings::of(|| {
            let backend = GpuBackend::new(GpuOptions::default());
            if let Ok(backend) = &backend {
                run(backend);
            }
            code = Some(backend.map(|backend| backend.code()));
        });
        Ok(Outputs::new())
    });
    outcome.unwrap();
    let loads = calls.iter().filter(|call| call.function == "hipModuleLoadData");
    assert!(loads.map(|call| call.number).max() >= Some(1), "{plan}");
    assert_eq!(calls.last().unwrap().live_objects, 0, "{plan}");
    (code.unwrap(), warnings)
}

#[test]
fn refused_code_is_compiled_on_the_machine_and_gives_the_same_results() {
    let name = "refused_code_is_compiled_on_the_machine_and_gives_the_same_results";
    let Some(session) = session_with_compiler(name, &[]) else { return };
    let (code, warnings) = open(&session, "");
    assert!(matches!(code.unwrap(), CodeOrigin::Exact { .. }));
    assert_eq!(warnings, [""; 0]);

    let (code, warnings) = open(&session, REFUSED);
    let code = code.unwrap();
    let refusals: Vec<_> =
        warnings.iter().filter(|text| text.contains("the driver refuses the code")).collect();
    assert_eq!(refusals.len(), 1, "{warnings:?}");
    assert!(refusals[0].contains("hipErrorNoBinaryForGpu"), "{refusals:?}");
    if embedded_targets().any(|target| target.ends_with("-generic")) {
        assert!(matches!(code, CodeOrigin::Generic { .. }), "{code}");
        let both = format!("{REFUSED},hipModuleLoadData:2:209");
        assert!(matches!(open(&session, &both).0.unwrap(), CodeOrigin::RunTime { .. }));
    } else {
        assert!(matches!(code, CodeOrigin::RunTime { .. }), "{code}");
    }
    // A kernel that is not found counts, too: older drivers refuse code only then.
    let (code, _) = open(&session, "hipModuleGetFunction:1:500");
    assert!(!matches!(code.unwrap(), CodeOrigin::Exact { .. }));
}

/// Each value of a knob whose values are in the code, for matmuls of one and of many tokens and
/// their epilogues.
#[test]
fn choices_of_code_are_compiled_and_pass() {
    let name = "choices_of_code_are_compiled_and_pass";
    let Some(session) = session_with_compiler(name, &[]) else { return };
    let format = OperandFormat::Weight(DType::Q4K);
    let parts = ["/37x288", "/large", "/glu-Silu", "/rms_norm"];
    let selects = |case: &Case| {
        case.format() == Some(format) && parts.iter().any(|part| case.name().contains(part))
    };
    let selected: Vec<Case> = cases().into_iter().filter(selects).collect();
    assert!(selected.len() >= parts.len());
    let (outcome, _) = session.run("", || {
        let backend = GpuBackend::new(GpuOptions::default()).unwrap();
        for index in 0..5 {
            let mut tuning = Tuning::NONE;
            // The card may have no matrix units, for example.
            let exists = |knob: &Knob| backend.code_digest(*knob, format).is_some();
            let knobs = Knob::ALL.into_iter().filter(|knob| knob.is_of_code() && exists(knob));
            for knob in knobs {
                let value = knob.values().get(index).or(knob.values().last()).copied();
                assert!(tuning.set(knob, format, value));
            }
            let mut refused = Vec::new();
            let tuned = backend.with_loaded_tuning(tuning, &mut |knob, _, error| {
                refused.push((knob, error.to_string()));
            });
            assert!(refused.is_empty(), "{refused:?}");
            for case in &selected {
                let outcome = check(&tuned, case);
                let name = case.name();
                assert!(
                    matches!(outcome, Ok(CaseOutcome::Passed { .. })),
                    "{index} {name}: {outcome:?}"
                );
            }
        }
        Ok(Outputs::new())
    });
    outcome.unwrap();
    let folders = std::fs::read_dir(cache_folder().unwrap().join("kernels")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    let is_variant = |name: &&std::ffi::OsString| name.to_string_lossy().contains(".rows4-steps2-");
    assert_eq!(names.iter().filter(is_variant).count(), 1, "{names:?}");
}

#[test]
fn a_choice_of_code_without_a_compiler_is_left_out() {
    let name = "a_choice_of_code_without_a_compiler_is_left_out";
    let variables = [("ROCM_PATH", Path::new("/nowhere"))];
    let Some(session) = session(name, &library(), &variables, LIMIT) else { return };
    if rf_hip::Compiler::load().is_ok() {
        rf_testing::skip!("this machine has libhiprtc");
        return;
    }
    let (outcome, _) = session.run("", || {
        let backend = GpuBackend::new(GpuOptions::default()).unwrap();
        let format = OperandFormat::Weight(DType::Q4K);
        let mut tuning = Tuning::NONE;
        assert!(tuning.set(Knob::GluSteps, format, Some(2)));
        assert!(tuning.set(Knob::MatvecWaves, format, Some(16)));
        let mut refused = Vec::new();
        let tuned = backend.with_loaded_tuning(tuning, &mut |knob, _, error| {
            refused.push((knob, BackendError::from(error).to_string()));
        });
        let [(Knob::GluSteps, error)] = &refused[..] else { panic!("{refused:?}") };
        assert!(error.contains("libhiprtc"), "{error}");
        assert_eq!(tuned.tuning().get(Knob::GluSteps, format), None);
        assert_eq!(tuned.tuning().get(Knob::MatvecWaves, format), Some(16));
        Ok(Outputs::new())
    });
    outcome.unwrap();
}

#[test]
fn refused_code_without_a_compiler_is_an_error_with_the_cure() {
    let name = "refused_code_without_a_compiler_is_an_error_with_the_cure";
    let nowhere = Path::new("/nowhere");
    let variables = [("ROCM_PATH", nowhere)];
    let Some(session) = session(name, &library(), &variables, LIMIT) else { return };
    if rf_hip::Compiler::load().is_ok() {
        rf_testing::skip!("this machine has libhiprtc");
        return;
    }
    // Every kind of code.
    let error = BackendError::from(open(&session, "hipModuleLoadData:*:209").0.unwrap_err());
    let BackendError::Device(text) = &error else { panic!("{error:?}") };
    for part in ["refuses the kernels", "hipErrorNoBinaryForGpu", "libhiprtc", "ROCm 6.4"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Out of memory and a lost device are no reason for other code.
    for (status, text) in [(2, "out of memory"), (719, "(719)")] {
        let (code, warnings) = open(&session, &format!("hipModuleLoadData:1:{status}"));
        let error = BackendError::from(code.unwrap_err()).to_string();
        assert!(error.contains(text) && warnings.is_empty(), "{error} {warnings:?}");
    }
}

#[test]
fn a_compiler_that_fails_is_an_error_that_names_it() {
    let name = "a_compiler_that_fails_is_an_error_that_names_it";
    let fails = [("TEST_HIPRTC_FAILS", Path::new("1"))];
    let Some(session) = session_with_compiler(name, &fails) else { return };
    let code = open(&session, "hipModuleLoadData:*:209").0;
    let error = BackendError::from(code.unwrap_err()).to_string();
    assert!(error.contains("could not be compiled on this machine"), "{error}");
    assert!(error.contains("the compiler of the test fails"), "{error}");
}
