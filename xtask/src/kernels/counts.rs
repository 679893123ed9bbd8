//! Counts the instructions of matmul kernels on a gfx1100 emulator and compares them with
//! llama.cpp.
//!
//! The counts ignore caches, latency and occupancy. They compare kernels built by one compiler.
//! `benchmarks/isa/README.md` describes the emulator and the results.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use rf_emu::kernel_metadata;
use rf_kernels::counted::{CountedLaunch, CountedMatmul};
use rf_kernels_build::ObjectFile;
use rf_quant::DType;
use serde::{Deserialize, Serialize};

/// The environment variable with the directory of the emulator.
const VARIABLE: &str = "ROCFORGE_RDNA_EMU";
const TARGET: &str = "gfx1100";
const DRIVER: &str = "benchmarks/isa/count_kernels.py";
const ANCHORS: &str = "benchmarks/isa/llama-cpp.toml";

/// The columns of the table, with the instruction classes of `count.py` that each one sums.
const SHOWN: [(&str, &[&str]); 6] = [
    ("VALU", &["VALU"]),
    ("loads", &["VMEM load"]),
    ("stores", &["VMEM store"]),
    ("LDS", &["LDS"]),
    ("scalar", &["SALU", "SMEM", "branch/barrier"]),
    ("waits", &["waitcnt", "delay/clause"]),
];

/// Instruction counts by class.
type Counts = BTreeMap<String, u64>;

/// llama.cpp's instruction counts by format.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Anchors {
    decode: BTreeMap<String, f64>,
    gate_and_up: BTreeMap<String, f64>,
    eight_columns: BTreeMap<String, f64>,
    prefill_valu_per_wmma: BTreeMap<String, f64>,
    prefill: BTreeMap<String, f64>,
}

/// One kernel on the shape of its anchor.
struct Case {
    matmul: CountedMatmul,
    dtype: DType,
    launch: CountedLaunch,
}

/// A launch, as the driver reads it.
#[derive(Serialize)]
struct Job<'a> {
    object: &'a Path,
    kernel: &'a str,
    grid: [u32; 3],
    block: [u32; 3],
    params: &'a [u8],
    arena_bytes: u64,
}

/// Counts, prints a table, and returns the cases that need more instructions than llama.cpp.
///
/// # Errors
///
/// The emulator is missing or fails.
pub(super) fn run(
    root: &Path,
    objects: &[ObjectFile<'_>],
    out: &mut impl Write,
) -> Result<Vec<String>> {
    let emulator = env::var_os(VARIABLE).map(PathBuf::from).with_context(|| {
        format!(
            "--counts needs {VARIABLE}, the folder of the emulator: see benchmarks/isa/README.md"
        )
    })?;
    let path = root.join(ANCHORS);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let anchors: Anchors = toml::from_str(&text).with_context(|| path.display().to_string())?;

    let cases = cases(&anchors)?;
    let jobs: Vec<Job<'_>> = cases.iter().map(|case| case.job(objects)).collect::<Result<_>>()?;
    let counts = count(&root.join(DRIVER), &emulator, &jobs)?;
    ensure!(counts.len() == cases.len(), "{} counts of {} launches", counts.len(), cases.len());

    print_head(out)?;
    let mut findings = Vec::new();
    for (case, counts) in cases.iter().zip(&counts) {
        findings.extend(case.print(&anchors, counts, out)?);
    }
    Ok(findings)
}

/// Every kind of matmul in every format that has an anchor.
fn cases(anchors: &Anchors) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for matmul in [
        CountedMatmul::Decode,
        CountedMatmul::GateAndUp,
        CountedMatmul::EightColumns,
        CountedMatmul::Prefill,
    ] {
        for name in anchors.of(matmul).keys() {
            let dtype = DType::ALL.into_iter().find(|dtype| dtype.to_string() == *name);
            let dtype = dtype.with_context(|| format!("{ANCHORS}: no format {name}"))?;
            cases.push(Case::new(matmul, dtype));
        }
    }
    Ok(cases)
}

impl Anchors {
    fn of(&self, matmul: CountedMatmul) -> &BTreeMap<String, f64> {
        match matmul {
            CountedMatmul::Decode => &self.decode,
            CountedMatmul::GateAndUp => &self.gate_and_up,
            CountedMatmul::EightColumns => &self.eight_columns,
            CountedMatmul::Prefill => &self.prefill,
        }
    }
}

impl Case {
    fn new(matmul: CountedMatmul, dtype: DType) -> Self {
        Self { matmul, dtype, launch: matmul.launch(dtype, TARGET) }
    }

    fn what(&self) -> &'static str {
        match self.matmul {
            CountedMatmul::Decode => "decode",
            CountedMatmul::GateAndUp => "gate and up",
            CountedMatmul::EightColumns => "8 columns",
            CountedMatmul::Prefill => "prefill",
        }
    }

    /// The launch, with the code object that contains the kernel.
    fn job<'a>(&'a self, objects: &'a [ObjectFile<'_>]) -> Result<Job<'a>> {
        let CountedLaunch { kernel, grid, block, arena_bytes, .. } = self.launch;
        for object in objects.iter().filter(|object| object.target.name == TARGET) {
            let kernels = kernel_metadata(&fs::read(&object.path)?)?;
            if kernels.iter().any(|there| there.name == kernel) {
                let (object, params) = (&*object.path, &*self.launch.params);
                return Ok(Job { object, kernel, grid, block, params, arena_bytes });
            }
        }
        anyhow::bail!("{kernel} is in no object for {TARGET}")
    }

    /// Prints a row and returns a finding if the count exceeds the anchor.
    fn print(
        &self,
        anchors: &Anchors,
        counts: &Counts,
        out: &mut impl Write,
    ) -> Result<Vec<String>> {
        let (what, name) = (self.what(), self.dtype.to_string());
        let kilo_weights = f64::from(self.launch.num_weights) / 1024.0;
        let per_kilo = |classes: &[&str]| {
            let sum: u64 = classes.iter().filter_map(|class| counts.get(*class)).sum();
            sum as f64 / kilo_weights
        };
        let all = counts.values().sum::<u64>() as f64 / kilo_weights;
        let anchor = anchors.of(self.matmul).get(&name).copied().unwrap_or(f64::NAN);
        write!(out, "{what:<12} {name:<6} {all:>6.0} {anchor:>10.0} {:>6.2}", all / anchor)?;
        for (_, classes) in SHOWN {
            write!(out, " {:>7.1}", per_kilo(classes))?;
        }
        let mut findings = Vec::new();
        let mut compare = |unit: &str, ours: f64, theirs: f64| {
            if ours > theirs {
                let ours = format!("{what} {name}: {ours:.2} {unit}");
                findings.push(format!("{ours}, {theirs:.2} in llama.cpp"));
            }
        };
        if self.matmul == CountedMatmul::Prefill {
            let ours = per_kilo(&["VALU"]) / per_kilo(&["WMMA"]);
            let theirs = anchors.prefill_valu_per_wmma.get(&name).copied().unwrap_or(f64::NAN);
            write!(out, "   VALU per WMMA {ours:.2}, llama.cpp {theirs:.2}, {:.2}", ours / theirs)?;
            compare("VALU per WMMA", ours, theirs);
        } else {
            compare("instructions per 1024 weights", all, anchor);
        }
        writeln!(out)?;
        Ok(findings)
    }
}

fn print_head(out: &mut impl Write) -> Result<()> {
    writeln!(out, "\nexecuted on {TARGET}, per 1024 weights and all tokens")?;
    write!(
        out,
        "{:<12} {:<6} {:>6} {:>10} {:>6}",
        "matmul", "format", "all", "llama.cpp", "ratio"
    )?;
    for (heading, _) in SHOWN {
        write!(out, " {heading:>7}")?;
    }
    Ok(writeln!(out)?)
}

/// Runs the driver.
fn count(driver: &Path, emulator: &Path, jobs: &[Job<'_>]) -> Result<Vec<Counts>> {
    let mut child = Command::new("python3")
        .arg(driver)
        .arg(emulator)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("python3")?;
    let mut input = child.stdin.take().context("python3 without standard input")?;
    // The driver reads its complete input before it writes output, so this cannot block.
    input.write_all(&serde_json::to_vec(jobs)?)?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{DRIVER} failed");
    serde_json::from_slice(&output.stdout).with_context(|| format!("output of {DRIVER}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchors() -> Anchors {
        let text = include_str!("../../../benchmarks/isa/llama-cpp.toml");
        toml::from_str(text).unwrap()
    }

    #[test]
    fn every_anchor_has_a_launch() {
        let anchors = anchors();
        let cases = cases(&anchors).unwrap();
        assert_eq!(cases.len(), 17 + 5 + 5 + 7);
        let kernels: Vec<_> = cases.iter().map(|case| case.launch.kernel).collect();
        assert!(kernels.contains(&"matvec_q4_k_q8_f32_n1"), "{kernels:?}");
        assert!(kernels.contains(&"matvec_glu_q6_k_q8_n1"), "{kernels:?}");
        assert!(kernels.contains(&"matmul_wide_q2_k_q8_f32"), "{kernels:?}");
        assert_eq!(anchors.prefill.len(), anchors.prefill_valu_per_wmma.len());
    }

    #[test]
    fn more_than_llama_cpp_is_a_finding() {
        let case = Case::new(CountedMatmul::Decode, DType::Q4_0);
        let of = |instructions: u64| {
            let counts = Counts::from([("VALU".to_owned(), instructions * 1024)]);
            case.print(&anchors(), &counts, &mut Vec::new()).unwrap()
        };
        assert_eq!(of(286), [""; 0]);
        assert_eq!(
            of(288),
            ["decode Q4_0: 288.00 instructions per 1024 weights, 287.00 in llama.cpp"]
        );
    }
}
