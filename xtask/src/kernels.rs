//! `cargo xtask kernels`: builds the GPU kernels for every target and looks at what came out.

mod catalogue;
mod counts;
mod metadata;
mod occupancy;
mod params;
mod report;
mod snapshot;
#[path = "../../crates/rf-kernels/build/toolchain/mod.rs"]
mod toolchain;

use std::{
    collections::BTreeMap,
    env,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use self::{
    catalogue::Catalogue,
    report::Report,
    toolchain::{
        compile::{Cache, Object, compile_all},
        compiler::{Compiler, Search},
        sources::{include_folder, read_units},
        targets::Selection,
    },
};

/// What to do beside building.
#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Options {
    /// What to build for: all, default, or a list such as `gfx1100,sm_80`
    #[arg(long, value_name = "LIST", default_value = "all")]
    targets: String,
    /// Print registers, LDS and waves per SIMD of every kernel
    #[arg(long)]
    report: bool,
    /// Exit with 1 on warnings, on a kernel that misses a demand of `kernels.toml`, and on one that
    /// is worse than `kernels/resources.toml` has it, or not in there
    #[arg(long, requires = "report")]
    check: bool,
    /// Write `kernels/resources.toml`
    #[arg(long, requires = "report")]
    bless: bool,
    /// Count the instructions of products on the gfx1100 emulator that `ROCFORGE_RDNA_EMU` names, beside
    /// those of llama.cpp; benchmarks/isa/README.md says more
    #[arg(long, requires = "report")]
    counts: bool,
}

/// Builds, prints, checks. Exit code: 0 fine, 1 findings.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    let selection = Selection::parse(&options.targets).map_err(|why| anyhow!(why))?;
    let compiler = match Compiler::find().map_err(|why| anyhow!(why))? {
        Search::Found(compiler) => compiler,
        Search::Missing(unfit) => bail!(
            "no clang 19 or newer: install clang-19 and lld-19, or set ROCFORGE_CLANG{}",
            [&[String::new()], &unfit[..]].concat().join("\n")
        ),
    };
    writeln!(out, "{}", compiler.version)?;

    let kernels = root.join("kernels");
    let units = read_units(&kernels).map_err(|why| anyhow!(why))?;
    // Where the build script of rf-kernels has its cache: this program lies in the same target directory.
    let program = env::current_exe().context("path of this program")?;
    let cache = Cache::of(program.parent().context("path of this program")?)?;

    let mut targets = Vec::new();
    for target in selection.targets(true) {
        match compiler.probe(target, cache.folder()) {
            Ok(()) => targets.push(target),
            Err(why) if matches!(selection, Selection::Named(_)) => bail!("{}: {why}", target.name),
            Err(why) => writeln!(out, "skipped: {}: {why}", target.name)?,
        }
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let started = Instant::now();
    let include = include_folder(&kernels);
    let objects = compile_all(&compiler, &cache, &include, &units, &targets, threads)
        .map_err(|why| anyhow!(why))?;
    cache.prune();
    print_objects(&mut out, &objects, started.elapsed())?;

    let mut findings = warnings(&objects);
    if options.report {
        let catalogue = Catalogue::read(root)?;
        let report = Report::of(&objects, &catalogue)?;
        report.print(&mut out)?;
        findings.extend(report.findings());
        let resources = root.join("kernels/resources.toml");
        let current = report.snapshot(&compiler.version);
        if options.bless {
            current.write(&resources)?;
            writeln!(out, "\nwritten: kernels/resources.toml")?;
        } else {
            let committed = snapshot::Snapshot::read(&resources)?;
            if committed.compiler == current.compiler {
                findings.extend(committed.differences(&current));
            } else {
                writeln!(
                    out,
                    "\nkernels/resources.toml is of {}: not compared",
                    committed.compiler
                )?;
            }
        }
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

/// One row per target, one per unit.
fn print_objects(out: &mut impl Write, objects: &[Object<'_>], elapsed: Duration) -> Result<()> {
    let mut by_target: BTreeMap<&str, Sum> = BTreeMap::new();
    let mut by_unit: BTreeMap<&str, Sum> = BTreeMap::new();
    for object in objects {
        let bytes = object.path.metadata()?.len();
        for sum in [
            by_target.entry(object.target.name).or_default(),
            by_unit.entry(&object.unit.name).or_default(),
        ] {
            sum.objects += 1;
            sum.bytes += bytes;
            sum.compiled += usize::from(object.took.is_some());
            sum.took += object.took.unwrap_or_default();
        }
    }
    for (title, sums) in [("target", by_target), ("unit", by_unit)] {
        writeln!(
            out,
            "\n{title:<20} {:>7} {:>8} {:>9} {:>7}",
            "objects", "compiled", "seconds", "KiB"
        )?;
        for (name, sum) in sums {
            writeln!(
                out,
                "{name:<20} {:>7} {:>8} {:>9.1} {:>7}",
                sum.objects,
                sum.compiled,
                sum.took.as_secs_f64(),
                sum.bytes / 1024
            )?;
        }
    }
    writeln!(out, "\n{:.1} s on the clock", elapsed.as_secs_f64())?;
    Ok(())
}

#[derive(Default)]
struct Sum {
    objects: usize,
    compiled: usize,
    took: Duration,
    bytes: u64,
}

/// The compiler's warnings, each text once: most come for every target.
fn warnings(objects: &[Object<'_>]) -> Vec<String> {
    let mut warnings: Vec<_> = objects
        .iter()
        .filter(|object| !object.warnings.is_empty())
        .map(|object| format!("kernels/{}.hip: {}", object.unit.name, object.warnings.trim_end()))
        .collect();
    warnings.sort();
    warnings.dedup();
    warnings
}
