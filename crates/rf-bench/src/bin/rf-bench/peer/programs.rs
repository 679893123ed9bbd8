//! Commands that measure the two engines.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{BATCH_TOKENS, Speeds, Test, install};
use crate::options::{BackendName, Options, PeerName};

/// Layers to offload with `--backend gpu`, more than any model has.
const ALL_LAYERS: &str = "999";

/// The program that measures the peer.
enum Peer {
    /// A Python interpreter with llama-cpp-python, and the measurement script.
    Python { python: PathBuf, script: PathBuf },
    /// A llama-bench binary.
    Bench(PathBuf),
    /// Another build of this program.
    Own(PathBuf),
}

/// The programs of both sides and the options they share.
pub(super) struct Programs {
    peer: Peer,
    own: PathBuf,
    backend: BackendName,
    isa: Option<String>,
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
    /// Locates the programs of both sides.
    pub(super) fn find(root: &Path, options: &Options) -> Result<Self> {
        let given = &options.peer;
        let is_own = given.peer == Some(PeerName::Rocmforge);
        let peer = if let Some(program) = &given.peer_bench {
            let program = existing(program, "--peer-bench")?;
            if is_own { Peer::Own(program) } else { Peer::Bench(program) }
        } else if is_own {
            bail!(
                "--peer rocmforge needs the rf-bench of the other build; give it as --peer-bench PROGRAM"
            );
        } else {
            let python = match &given.peer_python {
                Some(python) => existing(python, "--peer-python")?,
                None => install::python(root, given.peer_install)?,
            };
            Peer::Python { python, script: root.join("benchmarks/peers/measure_llama_cpp.py") }
        };
        let own = env::current_exe().context("path of this program")?;
        Ok(Self { peer, own, backend: options.backend, isa: options.isa.clone() })
    }

    /// Measures this engine once.
    pub(super) fn measure_own(&self, model: &Path, test: Test) -> Result<Speeds> {
        self.measure_build(&self.own, model, test)
    }

    /// Measures a build of this engine in a fresh process.
    fn measure_build(&self, program: &Path, model: &Path, test: Test) -> Result<Speeds> {
        let mut command = Command::new(program);
        command.args(["--peer-self", "--model"]).arg(model);
        command.args(["--threads", &test.threads.to_string()]);
        command.args(test_arguments(test));
        if let Some(isa) = &self.isa {
            command.args(["--isa", isa]);
        }
        if self.backend == BackendName::Gpu {
            command.args(["--backend", "gpu"]);
        }
        Speeds::parse(&output_of(&mut command)?, &program.display().to_string())
    }

    /// Measures the peer once.
    pub(super) fn measure_peer(&self, model: &Path, test: Test) -> Result<Speeds> {
        let layers = if self.backend == BackendName::Gpu { ALL_LAYERS } else { "0" };
        match &self.peer {
            Peer::Python { python, script } => {
                let mut command = Command::new(python);
                command.arg(script).arg("--model").arg(model);
                command.args(["--threads", &test.threads.to_string()]);
                command.args(["--batch", &BATCH_TOKENS.to_string(), "--gpu-layers", layers]);
                command.args(test_arguments(test));
                Speeds::parse(&output_of(&mut command)?, "llama-cpp-python")
            }
            Peer::Own(program) => self.measure_build(program, model, test),
            Peer::Bench(program) => {
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
                of_llama_bench(&output_of(&mut command)?, test)
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
fn of_llama_bench(json: &str, test: Test) -> Result<Speeds> {
    let entries: Vec<BenchEntry> =
        serde_json::from_str(json).context("cannot parse the JSON of llama-bench")?;
    let Some(first) = entries.first() else { bail!("the JSON of llama-bench has no results") };
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

/// Runs a command and returns its stdout. A non-zero exit status is an error with the last lines of
/// stderr.
fn output_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not start '{program}'"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = errors.trim().lines().collect();
        let tail = errors[errors.len().saturating_sub(5)..].join("\n");
        bail!("'{program}' failed with {}: {tail}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks a program given on the command line. A path with a folder must exist; a plain name is
/// left to the search in PATH.
fn existing(program: &Path, option: &str) -> Result<PathBuf> {
    let has_folder = program.parent().is_some_and(|folder| !folder.as_os_str().is_empty());
    if has_folder {
        fs::metadata(program).with_context(|| format!("{option} '{}'", program.display()))?;
    }
    Ok(program.to_owned())
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
