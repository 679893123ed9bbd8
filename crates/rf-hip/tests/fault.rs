//! A kernel that reads an unmapped address, in a child process because it destroys the context.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "functions of tests")]
#![expect(unsafe_code, reason = "a launch is as safe as its kernel, and this one is not")]

mod axpy;

use std::env;
use std::process::Command;

use axpy::{Axpy, BLOCK};
use rf_hip::{DeviceBuffer, LaunchConfig, Module, Runtime, Stream};

/// Marks the child process.
const ALONE: &str = "RF_HIP_TEST_ALONE";

#[test]
fn a_fault_is_a_lost_device_and_a_live_process() {
    if env::var_os(ALONE).is_some() {
        fault();
        return;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_fault_is_a_lost_device_and_a_live_process", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    print!("{text}{error}");
    // ROCm's fault handler aborts the process before a call can return.
    if error.contains("Memory access fault by GPU") {
        rf_testing::skip!("the runtime ends the process on a fault");
        return;
    }
    assert!(output.status.success(), "{text}\n{error}");
}

fn fault() {
    let context = match Runtime::load().and_then(|runtime| runtime.device(0)?.context()) {
        Ok(context) => context,
        Err(error) => {
            rf_testing::skip!("{error}");
            return;
        }
    };
    let image = match axpy::image(context.info()) {
        Ok(image) => image,
        Err(reason) => {
            rf_testing::skip!("{reason}");
            return;
        }
    };
    let function = Module::load(&context, &image).unwrap().function("axpy_f32").unwrap();
    let stream = Stream::new(&context).unwrap();
    let y = DeviceBuffer::<f32>::zeroed(&context, 256).unwrap();
    let params = Axpy { x: 16, y: y.address(), len: 256, a: 1.0 };
    // SAFETY: none: address 16 is unmapped. The test is about the device's memory protection.
    let launched = unsafe { stream.launch(&function, LaunchConfig::linear(256, BLOCK), &params) };
    let error = launched.and_then(|()| stream.synchronize()).unwrap_err();
    assert!(error.is_device_lost(), "{error}");
    // Later calls fail with an error, and drops are silent.
    let later = y.to_vec(&stream).unwrap_err();
    assert!(later.is_device_lost(), "{later}");
    println!("after the fault: {error}");
}
