//! A file that becomes shorter while it is mapped ends the process with a message.
#![cfg(unix)]

use std::fs::{self, OpenOptions};
use std::process::Command;

use rf_gguf::{Gguf, GgufWriter, report_bus_errors};
use rf_quant::DType;

/// The file that the child process opens and shortens.
const FILE: &str = "ROCFORGE_TEST_SHRINK";

#[test]
#[cfg_attr(miri, ignore = "starts programs or sockets, which Miri does not support")]
fn a_shorter_file_is_reported() {
    if let Some(path) = std::env::var_os(FILE) {
        report_bus_errors();
        let gguf = Gguf::open(&path).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let data = gguf.data(&gguf.tensors()[0]);
        println!("{}", data.iter().map(|&byte| u64::from(byte)).sum::<u64>());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut writer = GgufWriter::new();
    writer.add_tensor("t", &[1 << 20], DType::F32).unwrap();
    writer
        .write_file(&path, |tensor, out| Ok(out.write_all(&vec![1; tensor.size_bytes() as usize])?))
        .unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_shorter_file_is_reported", "--nocapture"])
        .env(FILE, &path)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: a file became shorter while it was read"), "{stderr}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 4096);
}
