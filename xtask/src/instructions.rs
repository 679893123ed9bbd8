//! `cargo xtask instructions`: counts the CPU backend's instructions under callgrind.
//!
//! A count is the same on every machine with the same compiler, so CI compares counts
//! instead of times. The workloads are in `crates/rf-engine/benches/instructions.rs`.

mod callgrind;
mod functions;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::callgrind::{Counts, Functions, dumps};
use crate::revision;
use crate::snapshot::{Change, Snapshot};

const SNAPSHOT: &str = "benchmarks/instructions/avx2.toml";

const HEADER: &str = "\
# The instructions of the CPU backend, by workload, counted by callgrind. `*` stands for the numbers
# of tokens. `cargo xtask instructions --update` writes this file; `cargo xtask instructions` fails if
# a number is more than 2 % larger, and prints the functions of both revisions.
";

/// The name of the ISA in the snapshot.
const ISA: &str = "avx2";

/// The function whose callees are counted.
const COUNTED: &str = "instructions::counted";

#[derive(Args)]
pub(crate) struct Options {
    /// Rewrite benchmarks/instructions/avx2.toml
    #[arg(long)]
    update: bool,
}

/// Counts instructions and compares them with the snapshot. Exit code: 0 no findings, 1 findings.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    if let Some(reason) = unsupported() {
        writeln!(out, "skipped: instruction counts: {reason}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let compiler = rustc_version()?;
    let path = root.join(SNAPSHOT);
    if !options.update {
        let committed = Snapshot::read(&path)?;
        if committed.compiler != compiler {
            let why = format!("{SNAPSHOT} is of {}, this is {compiler}", committed.compiler);
            writeln!(out, "skipped: instruction counts: {why}")?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let program = build(root)?;
    let counts = count(root, &program)?;
    let mut current = Snapshot::new(&compiler);
    for (workload, functions) in &counts {
        current.insert(ISA, workload, vec![functions.values().sum()]);
    }
    if options.update {
        if path.is_file() {
            current.keep_small_changes(&Snapshot::read(&path)?);
        }
        current.write(&path, HEADER)?;
        writeln!(out, "written: {SNAPSHOT}, {} workloads", counts.len())?;
        return Ok(ExitCode::SUCCESS);
    }
    let committed = Snapshot::read(&path)?;
    let comparison = committed.compare(&current);
    for change in &comparison.shrunk {
        writeln!(out, "less: {change}")?;
    }
    if !comparison.grown.is_empty() {
        // What grew is a finding even if the older program cannot be built.
        if let Err(error) = print_functions(root, &comparison.grown, &counts, &mut out) {
            writeln!(out, "no functions to compare with: {error:#}")?;
        }
    }
    for change in &comparison.grown {
        writeln!(out, "{change}")?;
    }
    for entry in &comparison.unmatched {
        writeln!(out, "{entry}")?;
    }
    let findings = comparison.grown.len() + comparison.unmatched.len();
    if findings > 0 || !comparison.shrunk.is_empty() {
        writeln!(out, "to accept the new counts: cargo xtask instructions --update")?;
    }
    writeln!(out, "instructions: {} workloads, {findings} findings", counts.len())?;
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the functions of the workloads that grew, in the commit that last wrote the snapshot,
/// which is built and counted, and in this checkout.
fn print_functions(
    root: &Path,
    grown: &[Change<'_>],
    counts: &Counts,
    out: &mut impl Write,
) -> Result<()> {
    let commit = revision::last_change(root, SNAPSHOT)?;
    let worktree = revision::checkout(root, &commit)?;
    let before = count(&worktree, &build(&worktree)?)?;
    functions::print(grown, (&commit, &before), counts, out)
}

/// The reason why this machine cannot count instructions, or `None`.
fn unsupported() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("fma") {
        return Some("this CPU does not support AVX2".to_owned());
    }
    if !cfg!(target_arch = "x86_64") {
        return Some("this is not an x86-64 CPU".to_owned());
    }
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    if flags.contains("-C") {
        return Some(format!("RUSTFLAGS changes the generated code: {flags}"));
    }
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    valgrind.is_err().then(|| "valgrind is not installed".to_owned())
}

fn rustc_version() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("could not run rustc")?;
    Ok(String::from_utf8(output.stdout).context("version of rustc")?.trim().to_owned())
}

/// Builds the program with the workloads. Returns its path.
fn build(root: &Path) -> Result<PathBuf> {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "--package", "rf-engine"])
        .args(["--bench", "instructions", "--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("could not run cargo")?;
    ensure!(output.status.success(), "the workloads do not build");
    for line in output.stdout.split(|&byte| byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<serde_json::Value>(line) else { continue };
        if let Some(path) = message["executable"].as_str() {
            return Ok(path.into());
        }
    }
    bail!("cargo built no program")
}

/// Counts the instructions of every workload by function, with a process per processor.
fn count(root: &Path, program: &Path) -> Result<Counts> {
    let parts = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let run = |part| scope.spawn(move || count_part(root, program, (part, parts)));
        let counts: Vec<_> = (0..parts).map(run).collect();
        let mut entries = BTreeMap::new();
        for count in counts {
            let Ok(part) = count.join() else { bail!("a thread that counts panicked") };
            entries.extend(part?);
        }
        Ok(entries)
    })
}

/// Counts the instructions of one part of the workloads.
fn count_part(root: &Path, program: &Path, (part, parts): (usize, usize)) -> Result<Counts> {
    let folder = program.parent().context("the program has no folder")?;
    let dump = folder.join(format!("callgrind.instructions.{part}.out"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--combine-dumps=yes"])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--zero-before={COUNTED}"))
        .arg(format!("--dump-after={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", dump.display()))
        .arg(program)
        .args([part, parts].map(|number| number.to_string()))
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("could not run valgrind")?;
    ensure!(output.status.success(), "the workloads failed under valgrind: {}", output.status);
    let names = String::from_utf8(output.stdout).context("names of workloads")?;
    let text = fs::read_to_string(&dump).with_context(|| dump.display().to_string())?;
    fs::remove_file(&dump).with_context(|| dump.display().to_string())?;

    let workloads: Vec<(&str, u64)> = names.lines().map(workload).collect::<Result<_>>()?;
    let dumps = dumps(&text);
    // Callgrind writes one more dump when the program ends.
    ensure!(
        dumps.len() == workloads.len() + 1,
        "{} dumps of {} workloads",
        dumps.len(),
        workloads.len()
    );
    let entries = workloads.into_iter().zip(dumps);
    let divided = |functions: Functions, divisor: u64| {
        functions.into_iter().map(|(name, count)| (name, count / divisor)).collect()
    };
    Ok(entries.map(|((name, divisor), of)| (name.to_owned(), divided(of, divisor))).collect())
}

/// Parses a line of the program: a name, a tab, and the divisor of the count.
fn workload(line: &str) -> Result<(&str, u64)> {
    let (name, divisor) = line.split_once('\t').context("a workload without a divisor")?;
    Ok((name, divisor.parse().with_context(|| format!("divisor of {name}"))?))
}
