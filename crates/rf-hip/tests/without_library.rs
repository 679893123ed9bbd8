//! Without a GPU runtime every entry point returns an error.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::env;
use std::process::Command;

use rf_hip::{Compiler, Error, Platform, Runtime};

/// Marks the child process.
const ALONE: &str = "RF_HIP_TEST_ALONE";

/// Runs the test again in a child process with `environment`, because all tests of a process share
/// one environment. Returns `true` in the child, and `false` in the parent after the child passed.
fn alone(test: &str, environment: &[(&str, &str)]) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env_remove("ROCFORGE_GPU_PLATFORM")
        .env_remove("ROCFORGE_HIP_LIBRARY")
        .env_remove("ROCFORGE_CUDA_LIBRARY")
        .env(ALONE, "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{test} did not run:\n{text}");
    false
}

#[test]
fn missing_libraries_are_an_error_with_their_names() {
    let missing = "/nowhere/libmissing.so";
    let environment = [("ROCFORGE_HIP_LIBRARY", missing), ("ROCFORGE_CUDA_LIBRARY", missing)];
    if !alone("missing_libraries_are_an_error_with_their_names", &environment) {
        return;
    }
    for platform in [Platform::Amd, Platform::Nvidia] {
        let error = Runtime::load_platform(platform).unwrap_err();
        let Error::LibraryNotFound { tried } = &error else { panic!("{error}") };
        assert_eq!(tried.len(), 1);
        assert_eq!(tried[0].platform, platform);
        assert!(error.to_string().contains(missing), "{error}");
    }
    assert!(matches!(Runtime::load(), Err(Error::LibraryNotFound { .. })));
}

#[test]
fn a_library_without_the_functions_is_an_error_with_a_name() {
    // The C library loads but has no hipInit.
    let environment = [("ROCFORGE_HIP_LIBRARY", "libc.so.6")];
    if !alone("a_library_without_the_functions_is_an_error_with_a_name", &environment) {
        return;
    }
    match Runtime::load().unwrap_err() {
        Error::MissingSymbol { symbol, .. } => assert_eq!(symbol, "hipInit"),
        Error::LibraryNotFound { .. } => rf_testing::skip!("no libc.so.6 here"),
        error => panic!("{error}"),
    }
}

#[test]
fn an_unknown_platform_is_an_error() {
    if !alone("an_unknown_platform_is_an_error", &[("ROCFORGE_GPU_PLATFORM", "voodoo")]) {
        return;
    }
    let error = Runtime::load().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown GPU platform 'voodoo': set ROCFORGE_GPU_PLATFORM to amd or nvidia"
    );
}

#[test]
fn loading_in_this_environment_does_not_panic() {
    match Runtime::load() {
        Ok(runtime) => println!("loaded {}", runtime.library_path().display()),
        Err(error) => println!("{error}"),
    }
    match Compiler::load() {
        Ok(compiler) => println!("hiprtc {:?}", compiler.version()),
        Err(error) => println!("{error}"),
    }
}
