//! Releasing tensor data returns its memory to the system.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;

use rf_gguf::{Gguf, GgufWriter};
use rf_quant::DType;

const TENSOR_BYTES: usize = 16 << 20;

// The only test of its process, because other tests would change the measurement.
#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn released_data_leaves_memory_and_reads_the_same_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let mut writer = GgufWriter::new();
    for name in ["a", "b"] {
        writer.add_tensor(name, &[TENSOR_BYTES as u64 / 4], DType::F32).unwrap();
    }
    writer.write_file(&path, |tensor, out| Ok(out.write_all(&contents(tensor.name()))?)).unwrap();

    let model = Gguf::open(&path).unwrap();
    let [a, b] = ["a", "b"].map(|name| model.required_tensor(name).unwrap().data());
    a.prefetch();
    assert_eq!(*a, *contents("a"));
    assert_eq!(*b, *contents("b"));
    let before = mapped_bytes();
    a.release();
    let after = mapped_bytes();
    // The whole first tensor except the pages at its ends.
    let released = before.saturating_sub(after);
    assert!(released.abs_diff(TENSOR_BYTES) < 256 << 10, "{before} bytes, then {after}");
    assert_eq!(*a, *contents("a"));
    assert_eq!(*b, *contents("b"));
}

fn contents(name: &str) -> Vec<u8> {
    let seed = name.as_bytes()[0];
    (0..TENSOR_BYTES).map(|index| seed.wrapping_add((index >> 12) as u8)).collect()
}

/// Resident bytes of mapped files, from `/proc`.
fn mapped_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() << 10
}
