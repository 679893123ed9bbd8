//! The search for the runtime, with stand-ins in the places of several installations of ROCm.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod emulated;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use emulated::{in_child, library};
use rf_emu_hip::without_devices;
use rf_hip::{Compiler, Runtime};

/// Installs a stand-in for HIP of a major version, which lists a card or not.
fn install(root: &Path, major: u32, lists_card: bool) {
    let bytes = fs::read(library()).unwrap();
    let bytes = if lists_card { bytes } else { without_devices(&bytes).unwrap() };
    fs::create_dir_all(root.join("lib")).unwrap();
    fs::write(root.join(format!("lib/libamdhip64.so.{major}")), bytes).unwrap();
}

/// Installs a stand-in for the compiler of a major version. Returns false without a C compiler.
fn install_compiler(root: &Path, major: u32) -> bool {
    let source = root.join("hiprtc.c");
    let text = format!(
        "int hiprtcCompileProgram(void) {{ return 0; }}\n\
         int hiprtcVersion(int *major, int *minor) {{ *major = {major}; *minor = 1; return 0; }}\n"
    );
    fs::write(&source, text).unwrap();
    let library = root.join(format!("lib/libhiprtc.so.{major}"));
    let built = Command::new("cc").args(["-shared", "-o"]).arg(library).arg(source).status();
    built.is_ok_and(|status| status.success())
}

/// The environment of a process with two installations, which the search finds in this order.
fn environment<'a>(first: &'a Path, second: &'a Path) -> [(&'static str, &'a OsStr); 3] {
    [
        ("ROCFORGE_HIP_LIBRARY", OsStr::new("")),
        ("ROCM_PATH", first.as_os_str()),
        ("HIP_PATH", second.as_os_str()),
    ]
}

#[test]
fn a_runtime_that_lists_no_card_is_passed_over_and_the_compiler_is_of_the_other() {
    let folder = tempfile::TempDir::new().unwrap();
    let (first, second) = (folder.path().join("new"), folder.path().join("old"));
    install(&first, 7, false);
    install(&second, 6, true);
    if !(install_compiler(&first, 7) && install_compiler(&second, 6)) {
        rf_testing::skip!("no cc");
        return;
    }
    let name = "a_runtime_that_lists_no_card_is_passed_over_and_the_compiler_is_of_the_other";
    if !in_child(name, &environment(&first, &second)) {
        return;
    }
    let root = std::env::var_os("HIP_PATH").unwrap();
    let runtime = Runtime::load().unwrap();
    assert_eq!(runtime.library_path(), Path::new(&root).join("lib/libamdhip64.so.6"));
    assert_eq!(runtime.device_count().unwrap(), 1);
    assert_eq!(Compiler::load().unwrap().version().unwrap(), (6, 1));
}

#[test]
fn where_no_runtime_lists_a_card_the_first_one_is_reported() {
    let folder = tempfile::TempDir::new().unwrap();
    let (first, second) = (folder.path().join("new"), folder.path().join("old"));
    install(&first, 7, false);
    install(&second, 6, false);
    let name = "where_no_runtime_lists_a_card_the_first_one_is_reported";
    if !in_child(name, &environment(&first, &second)) {
        return;
    }
    let root = std::env::var_os("ROCM_PATH").unwrap();
    let runtime = Runtime::load().unwrap();
    if runtime.device_count().unwrap() > 0 {
        rf_testing::skip!("this machine has a card");
        return;
    }
    assert_eq!(runtime.library_path(), Path::new(&root).join("lib/libamdhip64.so.7"));
    assert_eq!(runtime.device_count().unwrap(), 0);
}

const QUEUES: &str = "GPU_MAX_HW_QUEUES";

#[test]
fn hip_has_one_hardware_queue() {
    if !in_child("hip_has_one_hardware_queue", &[]) {
        return;
    }
    let expected = std::env::var(QUEUES).unwrap_or_else(|_| "1".to_owned());
    Runtime::load().unwrap();
    assert_eq!(std::env::var(QUEUES).unwrap(), expected);
}

#[test]
fn the_user_chooses_the_number_of_hardware_queues() {
    let name = "the_user_chooses_the_number_of_hardware_queues";
    if in_child(name, &[(QUEUES, OsStr::new("4"))]) {
        Runtime::load().unwrap();
        assert_eq!(std::env::var(QUEUES).unwrap(), "4");
    }
}
