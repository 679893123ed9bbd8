//! `cargo xtask kernels`: builds the GPU kernels for every target and checks the machine code.

mod catalogue;
mod counts;
mod flow;
mod instructions;
mod loops;
mod occupancy;
mod params;
mod report;
mod resources;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result};
use clap::Args;
use rf_kernels_build::{Cache, Compiler, ObjectFile, Selection, Sources, compile_all, packed};

use self::catalogue::Catalogue;
use self::instructions::Counted;
use self::loops::Build;
use self::report::KernelReport;
use crate::snapshot::Snapshot;

/// The most bytes of an AMD target's code, packed alone. PTX is text and larger.
const MOST_PACKED_BYTES: usize = 2_000_000;

/// The options of `cargo xtask kernels`.
#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Options {
    /// Build for these targets: all, release, machine, or a list such as `gfx1100,sm_80`
    #[arg(long, value_name = "LIST", default_value = "all")]
    targets: Selection,
    /// Print registers, LDS and waves per SIMD of every kernel
    #[arg(long)]
    report: bool,
    /// Exit with 1 if there is a warning, if a target exceeds 2 MB, or if a kernel violates
    /// `kernels.toml`, needs more resources than in `kernels/resources.toml`, or has over 2 % more
    /// instructions than in `kernels/instructions.toml`
    #[arg(long, requires = "report")]
    check: bool,
    /// Write `kernels/resources.toml` and `kernels/instructions.toml`. Targets that are not built
    /// keep their entries
    #[arg(long, requires = "report")]
    bless: bool,
    /// Count the instructions of matmul kernels on the gfx1100 emulator in `ROCFORGE_RDNA_EMU`, and
    /// compare them with those of llama.cpp's kernels; see benchmarks/isa/README.md
    #[arg(long, requires = "report")]
    counts: bool,
}

/// Builds, prints and checks the kernels. Exit code: 0 without findings, 1 with findings.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    let compiler = Compiler::find()?;
    writeln!(out, "{}", compiler.version())?;

    let sources = Sources::read(&root.join("kernels"))?;
    // This program is in the target directory that has the cache of rf-kernels' build script.
    let program = env::current_exe().context("path of this program")?;
    let cache = Cache::open(program.parent().context("path of this program")?)?;

    let supported = compiler.supported_targets(&options.targets)?;
    for skipped in &supported.unsupported {
        writeln!(out, "skipped: {}: {}", skipped.target.name, skipped.message)?;
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let started = Instant::now();
    let objects = compile_all(&compiler, &cache, &sources, &supported.targets, threads)?;
    cache.prune();
    let too_large = print_objects(&mut out, &objects, started.elapsed())?;

    let mut findings = warnings(&objects);
    findings.extend(too_large);
    if options.report {
        let catalogue = Catalogue::read(root)?;
        let sizes = params::sizes(root)?;
        let report = KernelReport::of(&objects, &catalogue, &sizes)?;
        report.print(&mut out)?;
        findings.extend(report.findings());
        let current = report.snapshot(compiler.version());
        findings.extend(check_resources(root, options, current, &mut out)?);
        let counted = instructions::count(&objects)?;
        let build = Build { root, compiler: &compiler, cache: &cache, threads };
        findings.extend(check_instructions(&build, options, &catalogue, &counted, &mut out)?);
    }
    if options.counts {
        findings.extend(counts::run(root, &objects, &mut out)?);
    }
    writeln!(out)?;
    for finding in &findings {
        writeln!(out, "{finding}")?;
    }
    writeln!(out, "kernels: {} objects, {} findings", objects.len(), findings.len())?;
    let failed = options.check && !findings.is_empty();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Compares the resources with the snapshot, or writes it. Returns the findings.
fn check_resources(
    root: &Path,
    options: &Options,
    current: Snapshot,
    out: &mut impl Write,
) -> Result<Vec<String>> {
    match committed(root, options, current, (resources::FILE, resources::HEADER), out)? {
        Some((committed, current)) => Ok(resources::differences(&committed, &current)),
        None => Ok(Vec::new()),
    }
}

/// Compares the instruction counts of hot kernels with the snapshot, or writes it. Prints the loops
/// of kernels that grew. Returns the findings.
fn check_instructions(
    build: &Build<'_>,
    options: &Options,
    catalogue: &Catalogue,
    counted: &[Counted],
    out: &mut impl Write,
) -> Result<Vec<String>> {
    let mut current = Snapshot::new(build.compiler.version());
    for kernel in counted.iter().filter(|kernel| catalogue.is_hot(&kernel.unit, &kernel.name)) {
        current.insert(kernel.target, &kernel.name, kernel.totals());
    }
    let file = (instructions::FILE, instructions::HEADER);
    let Some((committed, current)) = committed(build.root, options, current, file, out)? else {
        return Ok(Vec::new());
    };
    let comparison = committed.compare(&current);
    for change in &comparison.shrunk {
        writeln!(out, "less: {change}")?;
    }
    if !comparison.grown.is_empty() {
        // What grew is a finding even if the older code cannot be built.
        if let Err(error) = loops::print(build, &comparison.grown, counted, out) {
            writeln!(out, "no loops to compare with: {error:#}")?;
        }
    }
    let mut findings: Vec<String> = comparison.grown.iter().map(ToString::to_string).collect();
    findings.extend(comparison.unmatched);
    if !findings.is_empty() {
        findings.push(format!(
            "{} differs: to accept the new counts, run `cargo xtask kernels --report --bless`",
            instructions::FILE
        ));
    }
    Ok(findings)
}

/// The committed snapshot, and `current` to compare it with. `None`: `--bless` wrote `current`, or
/// another compiler made the committed one.
fn committed(
    root: &Path,
    options: &Options,
    mut current: Snapshot,
    (file, header): (&str, &str),
    out: &mut impl Write,
) -> Result<Option<(Snapshot, Snapshot)>> {
    let path = root.join(file);
    if options.bless {
        if path.is_file() {
            current.keep_other_targets(Snapshot::read(&path)?);
        }
        current.write(&path, header)?;
        writeln!(out, "written: {file}")?;
        return Ok(None);
    }
    let committed = Snapshot::read(&path)?;
    if committed.compiler != current.compiler {
        writeln!(out, "not compared: {file} was made by {}", committed.compiler)?;
        return Ok(None);
    }
    Ok(Some((committed, current)))
}

/// Prints one row per target and one per unit. Returns a finding for each target that is too large.
fn print_objects(
    out: &mut impl Write,
    objects: &[ObjectFile<'_>],
    elapsed: Duration,
) -> Result<Vec<String>> {
    let mut by_target: BTreeMap<&str, Sum> = BTreeMap::new();
    let mut by_unit: BTreeMap<&str, Sum> = BTreeMap::new();
    for object in objects {
        let code = fs::read(&object.path)?;
        let packed_bytes = packed(&[], &code).len();
        for sum in [
            by_target.entry(object.target.name).or_default(),
            by_unit.entry(&object.unit.name).or_default(),
        ] {
            sum.objects += 1;
            sum.bytes += code.len();
            sum.packed_bytes += packed_bytes;
            sum.compiled += usize::from(object.compile_time.is_some());
            sum.compile_time += object.compile_time.unwrap_or_default();
        }
    }
    for (title, sums) in [("target", &by_target), ("unit", &by_unit)] {
        writeln!(
            out,
            "\n{title:<22} {:>7} {:>8} {:>9} {:>7} {:>10}",
            "objects", "compiled", "seconds", "KiB", "packed KiB"
        )?;
        for (name, sum) in sums {
            writeln!(
                out,
                "{name:<22} {:>7} {:>8} {:>9.1} {:>7} {:>10}",
                sum.objects,
                sum.compiled,
                sum.compile_time.as_secs_f64(),
                sum.bytes / 1024,
                sum.packed_bytes / 1024
            )?;
        }
    }
    writeln!(out, "\nelapsed: {:.1} s", elapsed.as_secs_f64())?;
    let too_large = by_target
        .iter()
        .filter(|(name, sum)| name.starts_with("gfx") && sum.packed_bytes > MOST_PACKED_BYTES);
    Ok(too_large
        .map(|(name, sum)| {
            let bytes = sum.packed_bytes;
            format!("{name}: {bytes} bytes of packed code, at most {MOST_PACKED_BYTES} allowed")
        })
        .collect())
}

#[derive(Default)]
struct Sum {
    objects: usize,
    compiled: usize,
    compile_time: Duration,
    bytes: usize,
    packed_bytes: usize,
}

/// The compiler's warnings without duplicates: most warnings occur for every target.
fn warnings(objects: &[ObjectFile<'_>]) -> Vec<String> {
    let mut warnings: Vec<_> = objects
        .iter()
        .filter(|object| !object.warnings.is_empty())
        .map(|object| format!("kernels/{}.hip: {}", object.unit.name, object.warnings.trim_end()))
        .collect();
    warnings.sort();
    warnings.dedup();
    warnings
}
