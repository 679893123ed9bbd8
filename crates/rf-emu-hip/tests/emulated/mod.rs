//! Runs tests of this crate in processes that load the stand-in.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// Marks the child process.
const CHILD: &str = "RF_EMU_HIP_TEST_CHILD";

/// The library, which cargo builds next to the tests.
pub(crate) fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.with_file_name("librf_emu_hip.so")
}

/// Runs the test again in a child process with the stand-in and these variables, because all tests
/// of a process share one environment. Returns true in the child, and false in the parent after the
/// child passed.
pub(crate) fn in_child(test: &str, variables: &[(&str, &OsStr)]) -> bool {
    if env::var_os(CHILD).is_some() {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    command.env("ROCFORGE_GPU_PLATFORM", "amd").env("ROCFORGE_HIP_LIBRARY", library());
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{test} did not run:\n{text}");
    false
}
