//! Runs the program and looks at what it printed.

#![expect(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod chat;
pub(crate) mod terminal;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rf_gguf::{Gguf, GgufWriter, StringArray, Value};
use rf_quant::DType;
use rf_testing::transcript;

/// The program with these arguments, in `folder`, without a terminal and with the caller's settings
/// left out.
pub(crate) fn rf_cli(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_rf-cli"), folder);
    command.args(arguments);
    command
}

/// A shell with a command line in which `rf-cli` is the program, with the same settings.
pub(crate) fn shell(folder: &Path, line: &str) -> Command {
    let mut command = command("sh", folder);
    let programs = Path::new(env!("CARGO_BIN_EXE_rf-cli")).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    command.args(["-c", line]).env("PATH", path);
    command
}

fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    command.env_remove("RUST_LOG").env_remove("NO_COLOR");
    // What the program prints must not depend on the GPU of whoever runs the tests.
    command.env("ROCFORGE_DEVICE", "cpu");
    // Nor on the models that they have downloaded.
    command.env("HF_HUB_CACHE", folder.join("no-hub"));
    command
}

/// The exit code and the output of a finished program.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The JSON on stdout of a run that went well.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// Runs the program to its end.
pub(crate) fn finish(folder: &Path, arguments: &[&str]) -> Finished {
    Finished::of(rf_cli(folder, arguments).output().unwrap())
}

/// Runs the program with each list of arguments in turn: the command lines and their output.
pub(crate) fn transcripts(folder: &Path, lines: &[&[&str]]) -> String {
    lines.iter().map(|arguments| transcript(&mut rf_cli(folder, arguments))).collect()
}

/// Runs the program to its end, with `input` on its standard input.
pub(crate) fn finish_with_input(folder: &Path, arguments: &[&str], input: &[u8]) -> Finished {
    let mut command = rf_cli(folder, arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Finished::of(child.wait_with_output().unwrap())
}

/// The demo model as a file.
pub(crate) fn demo_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../rocmforge/demo/stories-7m-Q8_0.gguf")
}

/// The demo model with other metadata, and tensors whose bytes `change` changed.
pub(crate) fn changed_demo(
    metadata: &[(&str, Value)],
    change: impl Fn(&str, &mut [u8]),
) -> Vec<u8> {
    let demo = Gguf::open(demo_model()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in demo.metadata().iter() {
        writer.add(key, value.clone()).unwrap();
    }
    for (key, value) in metadata {
        writer.set(key, value.clone()).unwrap();
    }
    for tensor in demo.tensors() {
        writer.add_tensor(tensor.name(), tensor.shape(), tensor.dtype().unwrap()).unwrap();
    }
    let mut file = Vec::new();
    writer
        .write_to(&mut file, |tensor, out| {
            let mut bytes = demo.data(demo.required_tensor(tensor.name())?).to_vec();
            change(tensor.name(), &mut bytes);
            Ok(out.write_all(&bytes)?)
        })
        .unwrap();
    file
}

/// Metadata and tensors of a tiny model; its data are zeros.
pub(crate) struct TinyModel {
    pub(crate) architecture: &'static str,
    pub(crate) tensors: Vec<(&'static str, Vec<u64>, DType)>,
}

impl TinyModel {
    /// The bytes of its file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut writer = GgufWriter::new();
        let key = |name: &str| format!("{}.{name}", self.architecture);
        writer.add("general.architecture", self.architecture).unwrap();
        for (name, value) in [
            ("context_length", 64_u32),
            ("embedding_length", 256),
            ("block_count", 1),
            ("feed_forward_length", 256),
            ("attention.head_count", 4),
        ] {
            writer.add(key(name), value).unwrap();
        }
        writer.add(key("attention.layer_norm_rms_epsilon"), 1e-5_f32).unwrap();
        writer.add("tokenizer.ggml.model", "llama").unwrap();
        let tokens: StringArray = ["<unk>", "<s>", "</s>", "a"].iter().collect();
        writer.add("tokenizer.ggml.tokens", tokens).unwrap();
        writer.add("tokenizer.ggml.scores", vec![0.0_f32; 4]).unwrap();
        writer.add("tokenizer.ggml.token_type", vec![2_i32, 3, 3, 1]).unwrap();
        for (name, shape, dtype) in &self.tensors {
            writer.add_tensor(*name, shape, *dtype).unwrap();
        }
        let mut file = Vec::new();
        writer
            .write_to(&mut file, |tensor, out| {
                Ok(out.write_all(&vec![0; tensor.size_bytes().try_into()?])?)
            })
            .unwrap();
        file
    }
}
