//! The kernel of the examples and tests, compiled for a device.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

use rf_hip::{Compiler, DeviceInfo, Platform, Source};

/// The workgroup size that `axpy.hip` assumes.
pub(crate) const BLOCK: u32 = 256;

/// The parameter of `axpy_f32`: `y = a * x + y`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axpy {
    /// Address of `[len]` floats.
    pub(crate) x: u64,
    /// Address of `[len]` floats.
    pub(crate) y: u64,
    pub(crate) len: u32,
    pub(crate) a: f32,
}

/// The kernel in a format that the device loads, or the reason why it is unavailable.
pub(crate) fn image(device: &DeviceInfo) -> Result<Vec<u8>, String> {
    match device.platform {
        Platform::Nvidia => Ok(include_bytes!("axpy.ptx").to_vec()),
        Platform::Amd => with_hiprtc(&device.arch).or_else(|_| with_clang(&device.arch)),
    }
}

fn with_hiprtc(arch: &str) -> Result<Vec<u8>, rf_hip::Error> {
    let source = Source { name: "axpy.hip", text: include_str!("axpy.hip"), headers: &[] };
    Compiler::load()?.compile(source, &[&format!("--offload-arch={arch}"), "-O3"])
}

/// Tests run concurrently, in one process and in several: each call uses its own file.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Compiles with clang alone: the source includes no header.
fn with_clang(arch: &str) -> Result<Vec<u8>, String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/axpy/axpy.hip");
    let (process, call) = (std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
    let object = env::temp_dir().join(format!("rf-hip-axpy-{process}-{call}.co"));
    for compiler in ["clang-19", "clang", "/opt/rocm/llvm/bin/clang"] {
        let built = Command::new(compiler)
            .args(["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output"])
            .args(["-nogpulib", "-nogpuinc", "-O3", &format!("--offload-arch={arch}")])
            .args([source, "-o"])
            .arg(&object)
            .output();
        if built.is_ok_and(|built| built.status.success()) {
            let image = fs::read(&object);
            let _removed = fs::remove_file(&object);
            return image.map_err(|error| format!("{}: {error}", object.display()));
        }
    }
    Err(format!("neither libhiprtc nor a clang that compiles for {arch}"))
}
