//! `cargo xtask emulate`: builds the stand-in for libamdhip64 and runs a program with it.

mod costs;

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use clap::Args;

/// The names by which programs open the library.
const NAMES: [&str; 4] =
    ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];

/// The options of `cargo xtask emulate`.
#[derive(Args)]
pub(crate) struct Options {
    /// Emulate these devices, such as `gfx1201` or `gfx1100,gfx1030`
    #[arg(long, value_name = "LIST", default_value = "gfx1100")]
    arch: String,
    /// Run these checks: all, none, or a list
    #[arg(long, value_name = "LIST", default_value = "all")]
    check: String,
    /// Run workgroups in a random order, seeded by NUMBER
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Run workgroups on NUMBER threads [default: one per processor]
    #[arg(long, value_name = "NUMBER")]
    threads: Option<usize>,
    /// Limit the memory of each device to MIB [default: that of a retail card]
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Let calls fail, as in `hipMalloc:3:hipErrorOutOfMemory` or `kernel:100:719` (repeatable)
    #[arg(long, value_name = "FUNCTION:CALLS:STATUS")]
    fail: Vec<String>,
    /// Append a line per call to FILE
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write the costs of kernels to FOLDER: costs.html, listing.txt, stacks.txt and costs.toml
    #[arg(long, value_name = "FOLDER")]
    counters: Option<PathBuf>,
    /// Print the instructions and costs of kernels whose names contain KERNEL [default: all]
    #[arg(long, value_name = "KERNEL", num_args = 0..=1, default_missing_value = "")]
    annotate: Option<String>,
    /// Print estimated times on CARD, such as `RX 7900 XTX` [default: all cards of the family]
    #[arg(long, value_name = "CARD", num_args = 0..=1, default_missing_value = "")]
    estimate: Option<String>,
    /// Run this program with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Builds the library and replaces this process by the program, so that signals reach it. If costs
/// are to be printed, it runs as a child.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let target = build(root)?;
    let folder = link(&target)?;
    let (program, arguments) = options.command.split_first().context("no command")?;
    let mut command = Command::new(find(program, &target));
    command.args(arguments);
    command.env("ROCFORGE_HIP_LIBRARY", folder.join(NAMES[0]));
    command.env("ROCFORGE_GPU_PLATFORM", "amd");
    // Programs that link the library find it by its name.
    let others = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = [folder].into_iter().chain(env::split_paths(&others));
    command.env("LD_LIBRARY_PATH", env::join_paths(folders)?);
    command.envs(variables(options));
    let name = program.to_string_lossy();
    let start = || format!("could not start '{name}'");
    let prints = options.annotate.is_some() || options.estimate.is_some();
    let counters =
        options.counters.clone().or_else(|| prints.then(|| target.join("emulate/costs")));
    let Some(counters) = counters else { return Err(command.exec()).with_context(start) };
    // The program may end without writing them.
    fs::remove_file(counters.join(costs::FILE)).ok();
    command.env("ROCFORGE_EMU_COUNTERS", &counters);
    if !prints {
        return Err(command.exec()).with_context(start);
    }
    let status = command.status().with_context(start)?;
    costs::print(&counters, options.annotate.as_deref(), options.estimate.as_deref())?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The settings of the library.
fn variables(options: &Options) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![
        ("ROCFORGE_EMU_ARCH", OsString::from(&options.arch)),
        ("ROCFORGE_EMU_CHECK", OsString::from(&options.check)),
    ];
    let mut add = |name, value: Option<OsString>| {
        variables.extend(value.map(|value| (name, value)));
    };
    add("ROCFORGE_EMU_SEED", options.seed.map(|seed| seed.to_string().into()));
    add("ROCFORGE_EMU_THREADS", options.threads.map(|threads| threads.to_string().into()));
    add("ROCFORGE_EMU_MEMORY_MIB", options.memory.map(|mib| mib.to_string().into()));
    add("ROCFORGE_EMU_LOG", options.log.as_ref().map(OsString::from));
    add("ROCFORGE_EMU_FAIL", (!options.fail.is_empty()).then(|| options.fail.join(",").into()));
    variables
}

/// Builds the library in release and returns the folder of the build.
fn build(root: &Path) -> Result<PathBuf> {
    let manifest = root.join("Cargo.toml");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--quiet", "--package", "rf-emu-hip"]);
    let status = command.arg("--manifest-path").arg(&manifest).status();
    let status = status.context("could not start cargo to build rf-emu-hip")?;
    ensure!(status.success(), "rf-emu-hip does not build");
    let metadata = cargo_metadata::MetadataCommand::new().manifest_path(manifest).no_deps().exec();
    Ok(metadata.context("cargo metadata")?.target_directory.into_std_path_buf().join("release"))
}

/// Links the library under its names into a separate folder: in the folder of the build, cargo
/// would let every program find it.
fn link(target: &Path) -> Result<PathBuf> {
    let library = target.join("librf_emu_hip.so");
    let folder = target.join("emulate");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for name in NAMES {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok_and(|to| to == library) {
            continue;
        }
        fs::remove_file(&link).ok();
        symlink(&library, &link).with_context(|| link.display().to_string())?;
    }
    Ok(folder)
}

/// The program of the build if it has one of this name, otherwise the name, which the system
/// searches.
fn find(program: &OsString, target: &Path) -> PathBuf {
    let built = target.join(program);
    if Path::new(program).components().count() == 1 && built.is_file() {
        built
    } else {
        program.into()
    }
}
