//! Commands that measure the two engines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rf_profile::tools::Runner;
use serde::Deserialize;

use super::speeds::{BATCH_TOKENS, Speeds, Test};
use crate::{Error, Interrupt};

/// Layers to offload to a GPU, more than any model has.
const ALL_LAYERS: &str = "999";

/// The measurement script of llama-cpp-python, relative to the checkout.
const SCRIPT: &str = "benchmarks/peers/measure_llama_cpp.py";

/// The program that measures the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A Python interpreter with llama-cpp-python.
    Python(PathBuf),
    /// A llama-bench binary.
    LlamaBench(PathBuf),
    /// The rf-bench of another build.
    OtherBuild(PathBuf),
}

/// The programs of both sides and the options they share.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The rf-bench that measures this engine.
    pub own: PathBuf,
    /// The program that measures the peer.
    pub peer: Peer,
    /// The checkout, which has the script of [`Peer::Python`].
    pub root: PathBuf,
    /// The GPU computes if true, otherwise the CPU.
    pub gpu: bool,
    /// Instruction set of builds of this engine; `None` for the best one.
    pub isa: Option<String>,
}

/// The fields of llama-bench's JSON that the comparison uses.
#[derive(Deserialize)]
struct BenchEntry {
    build_commit: String,
    build_number: u64,
    n_prompt: usize,
    n_gen: usize,
    avg_ts: f64,
}

impl Programs {
    /// Measures this engine once.
    pub(super) fn measure_own(
        &self,
        model: &Path,
        test: Test,
        interrupt: &Interrupt,
    ) -> Result<Speeds, Error> {
        self.measure_build(&self.own, model, test, interrupt)
    }

    /// Measures a build of this engine in a fresh process.
    fn measure_build(
        &self,
        program: &Path,
        model: &Path,
        test: Test,
        interrupt: &Interrupt,
    ) -> Result<Speeds, Error> {
        let mut command = Command::new(program);
        command.args(["--peer-self", "--model"]).arg(model);
        command.args(["--threads", &test.threads.to_string()]);
        command.args(test_arguments(test));
        if let Some(isa) = &self.isa {
            command.args(["--isa", isa]);
        }
        if self.gpu {
            command.args(["--backend", "gpu"]);
        }
        Speeds::parse(&output_of(command, interrupt)?, &program.display().to_string())
    }

    /// Measures the peer once.
    pub(super) fn measure_peer(
        &self,
        model: &Path,
        test: Test,
        interrupt: &Interrupt,
    ) -> Result<Speeds, Error> {
        let layers = if self.gpu { ALL_LAYERS } else { "0" };
        match &self.peer {
            Peer::Python(python) => {
                let mut command = Command::new(python);
                command.arg(self.root.join(SCRIPT)).arg("--model").arg(model);
                command.args(["--threads", &test.threads.to_string()]);
                command.args(["--batch", &BATCH_TOKENS.to_string(), "--gpu-layers", layers]);
                command.args(test_arguments(test));
                Speeds::parse(&output_of(command, interrupt)?, "llama-cpp-python")
            }
            Peer::OtherBuild(program) => self.measure_build(program, model, test, interrupt),
            Peer::LlamaBench(program) => {
                let mut command = Command::new(program);
                command.arg("-m").arg(model).args(["-r", "1", "-o", "json", "-ngl", layers]);
                for (flag, value) in [
                    ("-t", test.threads),
                    ("-ub", BATCH_TOKENS),
                    ("-p", test.prompt_tokens),
                    ("-n", test.generated_tokens),
                    ("-d", test.depth_tokens),
                ] {
                    command.arg(flag).arg(value.to_string());
                }
                of_llama_bench(&output_of(command, interrupt)?, test)
            }
        }
    }
}

fn test_arguments(test: Test) -> [String; 6] {
    let (pp, tg, depth) = (test.prompt_tokens, test.generated_tokens, test.depth_tokens);
    let flags = [("--prompt", pp), ("--generate", tg), ("--depth", depth)];
    let arguments = flags.map(|(flag, value)| [flag.to_owned(), value.to_string()]);
    let [[a, b], [c, d], [e, f]] = arguments;
    [a, b, c, d, e, f]
}

/// Reads the speeds from llama-bench's output.
fn of_llama_bench(json: &str, test: Test) -> Result<Speeds, Error> {
    let unreadable =
        |reason: String| Error::PeerOutput { program: "llama-bench".to_owned(), reason };
    let entries: Vec<BenchEntry> =
        serde_json::from_str(json).map_err(|error| unreadable(error.to_string()))?;
    let first = entries.first().ok_or_else(|| unreadable("it has no results".to_owned()))?;
    let speed = |prompt: usize, generated: usize| {
        let entry =
            entries.iter().find(|entry| entry.n_prompt == prompt && entry.n_gen == generated);
        entry.map(|entry| entry.avg_ts)
    };
    Ok(Speeds {
        program: format!("llama-bench {} ({})", first.build_number, first.build_commit),
        features: "features not reported".to_owned(),
        prompt_tokens_per_s: speed(test.prompt_tokens, 0).filter(|_| test.prompt_tokens > 0),
        decode_tokens_per_s: speed(0, test.generated_tokens).filter(|_| test.generated_tokens > 0),
    })
}

/// Runs a command and returns its stdout. It has a process group of its own, so that Ctrl-C at the
/// terminal does not end it, and is killed if the interrupt is urgent.
fn output_of(command: Command, interrupt: &Interrupt) -> Result<String, Error> {
    let interrupt = interrupt.clone();
    let runner = Runner::new(Duration::MAX).stopped_when(move || interrupt.is_urgent());
    Ok(runner.run(command)?.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_bench_speeds_are_matched_by_token_counts() {
        let json = r#"[
            {"build_commit": "0c1e570", "build_number": 9174, "n_prompt": 512, "n_gen": 0, "avg_ts": 237.5, "stddev_ts": 1.0},
            {"build_commit": "0c1e570", "build_number": 9174, "n_prompt": 0, "n_gen": 64, "avg_ts": 56.25}
        ]"#;
        let test = Test {
            prompt_tokens: 512,
            generated_tokens: 64,
            depth_tokens: 0,
            threads: 2,
            repetitions: 1,
        };
        let speeds = of_llama_bench(json, test).unwrap();
        assert_eq!(speeds.program, "llama-bench 9174 (0c1e570)");
        assert_eq!(
            (speeds.prompt_tokens_per_s, speeds.decode_tokens_per_s),
            (Some(237.5), Some(56.25))
        );
        assert!(of_llama_bench("[]", test).is_err());
        assert!(of_llama_bench("error: no model", test).is_err());
    }
}
