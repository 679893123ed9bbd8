//! The program without the demo model: `cargo test -p rf-cli --no-default-features`.

#![cfg(not(feature = "demo-model"))]

use std::process::{Command, Stdio};

#[test]
fn a_model_has_to_be_given() {
    for arguments in [&["run", "Hello"][..], &["info"], &["bench", "-o", "jsonl"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rf-cli"));
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "error: this program was built without the demo model: give a model with \
             -m FILE, or build the program with the feature demo-model\n"
        );
    }
}
