//! Counts the instructions of matmul kernels on a gfx1100 emulator and compares them with
//! llama.cpp.
//!
//! The counts ignore caches, latency and occupancy. They compare kernels built by one compiler.
//! `benchmarks/isa/README.md` describes the emulator and the results.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use rf_kernels::params::{
    Activations, Address, Launch, MAX_PROJECTIONS, MatmulDevice, MatmulParams, MatvecGluParams,
    MatvecParams, Projection, Weight,
};
use rf_kernels_build::ObjectFile;
use rf_quant::DType;
use serde::{Deserialize, Serialize};

/// The environment variable with the directory of the emulator.
const VARIABLE: &str = "ROCFORGE_RDNA_EMU";
const TARGET: &str = "gfx1100";
const DRIVER: &str = "benchmarks/isa/count_kernels.py";
const ANCHORS: &str = "benchmarks/isa/llama-cpp.toml";

/// The upper half of an address that the driver replaces; the lower half is an offset.
const MARK: u64 = 0xb0ff_e000;

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
    what: &'static str,
    dtype: DType,
    kilo_weights: f64,
    launch: Launch,
    params: Vec<u8>,
    arena_bytes: u64,
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
    for (names, case) in [
        (&anchors.decode, decode as fn(DType) -> Case),
        (&anchors.gate_and_up, gate_and_up),
        (&anchors.eight_columns, eight_columns),
        (&anchors.prefill, prefill),
    ] {
        for name in names.keys() {
            let dtype = DType::ALL.into_iter().find(|dtype| dtype.to_string() == *name);
            cases.push(case(dtype.with_context(|| format!("{ANCHORS}: no format {name}"))?));
        }
    }
    Ok(cases)
}

fn decode(dtype: DType) -> Case {
    matvec("decode", dtype, 1)
}

fn eight_columns(dtype: DType) -> Case {
    matvec("8 columns", dtype, 8)
}

fn only(projection: Projection) -> [Projection; MAX_PROJECTIONS] {
    let mut projections = [Projection::default(); MAX_PROJECTIONS];
    projections[0] = projection;
    projections
}

fn matvec(what: &'static str, dtype: DType, tokens: u32) -> Case {
    let (rows, columns) = (256, 4096);
    let device = MatmulDevice::new(1, TARGET);
    let mut arena = Arena::default();
    let params = MatvecParams {
        projections: only(arena.projection(rows, columns, tokens)),
        x_q8: arena.activations(tokens, columns),
        num_projections: 1,
        columns,
        tokens,
        ..MatvecParams::default()
    }
    .with_waves(&[dtype], device);
    let launch = params.launch(&[dtype], device);
    Case::new(what, dtype, rows * columns, launch, &params, &arena)
}

fn gate_and_up(dtype: DType) -> Case {
    let (rows, columns) = (256, 4096);
    let device = MatmulDevice::new(1, TARGET);
    let mut arena = Arena::default();
    let params = MatvecGluParams {
        gate: arena.weight(rows, columns),
        up: arena.weight(rows, columns),
        x_q8: arena.activations(1, columns),
        out_q8: arena.activations(1, rows),
        rows,
        columns,
        tokens: 1,
        ..MatvecGluParams::default()
    }
    .with_waves(dtype, device);
    let launch = params.launch(dtype, device);
    Case::new("gate and up", dtype, 2 * rows * columns, launch, &params, &arena)
}

fn prefill(dtype: DType) -> Case {
    let (rows, columns, tokens) = (128, 2048, 128);
    let mut arena = Arena::default();
    let params = MatmulParams {
        projections: only(arena.projection(rows, columns, tokens)),
        x_q8: arena.activations(tokens, columns),
        num_projections: 1,
        columns,
        tokens,
        ..MatmulParams::default()
    };
    // With one compute unit the largest tile is selected, as for a model's matrices on a device.
    let launch = params.launch(dtype, MatmulDevice::new(1, TARGET));
    Case::new("prefill", dtype, rows * columns, launch, &params, &arena)
}

/// Assigns offsets in the memory that the driver allocates.
#[derive(Default)]
struct Arena {
    bytes: u64,
}

impl Arena {
    fn place(&mut self, num_bytes: u32) -> Address {
        let offset = self.bytes;
        self.bytes += u64::from(num_bytes).next_multiple_of(4096);
        MARK << 32 | offset
    }

    /// A matrix. Each plane is large enough for every format, including the rows after the last
    /// one.
    fn weight(&mut self, rows: u32, columns: u32) -> Weight {
        const SPARE_ROWS: u32 = 8;
        let mut plane = || self.place((rows + SPARE_ROWS) * columns);
        Weight { low: plane(), high: plane(), scale: plane(), super_scale: plane() }
    }

    fn projection(&mut self, rows: u32, columns: u32, tokens: u32) -> Projection {
        let weight = self.weight(rows, columns);
        Projection { weight, out: self.place(4 * rows * tokens), rows, ..Projection::default() }
    }

    fn activations(&mut self, rows: u32, columns: u32) -> Activations {
        Activations { q: self.place(rows * columns), meta: self.place(rows * columns / 4) }
    }
}

impl Case {
    fn new(
        what: &'static str,
        dtype: DType,
        weights: u32,
        launch: Launch,
        params: &impl bytemuck::Pod,
        arena: &Arena,
    ) -> Self {
        let params = bytemuck::bytes_of(params).to_vec();
        let kilo_weights = f64::from(weights) / 1024.0;
        Self { what, dtype, kilo_weights, launch, params, arena_bytes: arena.bytes }
    }

    /// The launch, with the code object that contains the kernel.
    fn job<'a>(&'a self, objects: &'a [ObjectFile<'_>]) -> Result<Job<'a>> {
        let Launch { kernel, grid, block, .. } = self.launch;
        for object in objects.iter().filter(|object| object.target.name == TARGET) {
            let kernels = super::metadata::kernels(&fs::read(&object.path)?)?;
            if kernels.iter().any(|there| there.name == kernel) {
                let (object, params, arena_bytes) =
                    (&*object.path, &*self.params, self.arena_bytes);
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
        let name = self.dtype.to_string();
        let per_kilo = |classes: &[&str]| {
            let sum: u64 = classes.iter().filter_map(|class| counts.get(*class)).sum();
            sum as f64 / self.kilo_weights
        };
        let all = counts.values().sum::<u64>() as f64 / self.kilo_weights;
        let table = match self.what {
            "decode" => &anchors.decode,
            "gate and up" => &anchors.gate_and_up,
            "8 columns" => &anchors.eight_columns,
            _ => &anchors.prefill,
        };
        let anchor = table.get(&name).copied().unwrap_or(f64::NAN);
        write!(out, "{:<12} {name:<6} {all:>6.0} {anchor:>10.0} {:>6.2}", self.what, all / anchor)?;
        for (_, classes) in SHOWN {
            write!(out, " {:>7.1}", per_kilo(classes))?;
        }
        let mut findings = Vec::new();
        let mut compare = |what: &str, ours: f64, theirs: f64| {
            if ours > theirs {
                let what = format!("{} {name}: {ours:.2} {what}", self.what);
                findings.push(format!("{what}, {theirs:.2} in llama.cpp"));
            }
        };
        if self.what == "prefill" {
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
    fn addresses_are_offsets_within_the_arena() {
        for case in cases(&anchors()).unwrap() {
            let words = case.params.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let offsets: Vec<_> =
                words.filter(|word| word >> 32 == MARK).map(|word| word & 0xffff_ffff).collect();
            assert!(offsets.len() >= 7, "{}", case.launch.kernel);
            assert!(offsets.iter().all(|&offset| offset < case.arena_bytes));
        }
    }

    #[test]
    fn more_than_llama_cpp_is_a_finding() {
        let case = decode(DType::Q4_0);
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
