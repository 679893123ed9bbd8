//! Code objects that the tests compile.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::device::Device;

/// A device of each family with the kernels of a source; none without a compiler.
pub(crate) fn compiled(source: &str) -> Vec<Device> {
    let exists = |clang: &&str| Command::new(clang).arg("--version").output().is_ok();
    let clangs = ["clang-19", "clang-20", "clang-21", "clang-22"];
    let Some(clang) = clangs.into_iter().find(exists) else {
        rf_testing::skip!("clang 19 or newer is not installed");
        return Vec::new();
    };
    let folder = tempfile::tempdir().unwrap();
    let compile = |arch: &str| {
        let object = folder.path().join(arch);
        let output = Command::new(clang)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"))
            .args(["-x", "hip", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-std=c++20"])
            .args(["--cuda-device-only", "-O3", "-gline-tables-only", source, "-o"])
            .arg(&object)
            .arg(format!("--offload-arch={arch}"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Device::new(&fs::read(object).unwrap())
    };
    ["gfx1030", "gfx1100", "gfx1201"].map(compile).into()
}
