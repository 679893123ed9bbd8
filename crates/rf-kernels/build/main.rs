//! Build script of rf-kernels: compiles the kernels where a clang is, and embeds what there is.
//!
//! | variable | meaning |
//! |---|---|
//! | `ROCFORGE_KERNEL_TARGETS` | `all`, `none` or a list such as `gfx1100,sm_80`; unset or `default`: with `--release` RDNA 2 to 4 and NVIDIA, else gfx1100 and NVIDIA |
//! | `ROCFORGE_CLANG` | the clang to use, version 19 or newer; unset: see [`Compiler::find`] |
//!
//! Without a compiler the build goes through: the sources are embedded always, and `objects` says at run time
//! what is missing. A kernel that does not compile fails the build with the compiler's text.

mod embed;
mod toolchain;

use std::{
    env,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};

use toolchain::{
    compile::{Cache, Object, compile_all},
    compiler::{Compiler, Search},
    sources::{Unit, include_folder, read_units},
    targets::{Selection, Target},
};

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Cargo shows a failed build script's standard error.
            writeln!(io::stderr(), "error: {why}").ok();
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(required("OUT_DIR")?);
    let kernels = Path::new(&required("CARGO_MANIFEST_DIR")?).join("kernels");
    let kernels = kernels.canonicalize().unwrap_or(kernels);
    rerun_if_changed(&kernels)?;
    for variable in ["ROCFORGE_KERNEL_TARGETS", "ROCFORGE_CLANG", "ROCM_PATH"] {
        directive("rerun-if-env-changed", variable)?;
    }

    let wanted = env::var("ROCFORGE_KERNEL_TARGETS").unwrap_or_default();
    let selection =
        Selection::parse(&wanted).map_err(|why| format!("ROCFORGE_KERNEL_TARGETS: {why}"))?;
    let units = read_units(&kernels)?;
    let cache = Cache::of(&out).map_err(|error| format!("cache of compiled kernels: {error}"))?;
    let (objects, note) = compile(&selection, &kernels, &units, &cache)?;
    embed::write(&out, &units, &objects, &note)
        .map_err(|error| format!("{}: {error}", out.display()))?;
    cache.prune();
    Ok(())
}

/// The objects, and a sentence about which there are and why not more.
fn compile<'a>(
    selection: &Selection,
    kernels: &Path,
    units: &'a [Unit],
    cache: &Cache,
) -> Result<(Vec<Object<'a>>, String), String> {
    if matches!(selection, Selection::Nothing) {
        return Ok((Vec::new(), "built with ROCFORGE_KERNEL_TARGETS=none".to_owned()));
    }
    let compiler = match Compiler::find()? {
        Search::Found(compiler) => compiler,
        Search::Missing(unfit) => {
            let why = [&["built without clang 19 or newer".to_owned()], &unfit[..]].concat();
            return Ok((Vec::new(), why.join("; ")));
        }
    };
    rerun_if_changed(&compiler.path)?;

    let mut targets = Vec::new();
    let mut unknown = Vec::new();
    for target in selection.targets(optimised()) {
        match compiler.probe(target, cache.folder()) {
            Ok(()) => targets.push(target),
            Err(why) if matches!(selection, Selection::Named(_)) => {
                return Err(format!(
                    "{} does not build for {}: {why}",
                    compiler.version, target.name
                ));
            }
            Err(why) => unknown.push(format!("; not {}: {why}", target.name)),
        }
    }
    let include = include_folder(kernels);
    let objects = compile_all(&compiler, cache, &include, units, &targets, threads())?;
    report(&objects)?;
    let names: Vec<_> = targets.iter().map(|target: &&Target| target.name).collect();
    let note = format!("built by {} for {}{}", compiler.version, names.join(" "), unknown.concat());
    Ok((objects, note))
}

/// What was done, for `cargo build -vv`.
fn report(objects: &[Object<'_>]) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let mut lines = || {
        for object in objects {
            let (unit, target) = (&object.unit.name, object.target.name);
            match object.took {
                Some(took) => writeln!(out, "{unit} for {target}: {:.1} s", took.as_secs_f64())?,
                None => writeln!(out, "{unit} for {target}: unchanged")?,
            }
            out.write_all(object.warnings.as_bytes())?;
        }
        Ok(())
    };
    lines().map_err(|error: io::Error| error.to_string())
}

/// Whether cargo's profile asks for more than a quick build, as that of `cargo build --release` does.
fn optimised() -> bool {
    env::var("PROFILE").is_ok_and(|profile| profile == "release")
}

/// As many as cargo gives, and no more than there are processors.
fn threads() -> usize {
    let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    let processors = thread::available_parallelism().map_or(1, usize::from);
    jobs.map_or(processors, |jobs: usize| jobs.min(processors))
}

fn required(variable: &str) -> Result<String, String> {
    env::var(variable).map_err(|error| format!("{variable}: {error}; cargo sets it"))
}

fn rerun_if_changed(path: &Path) -> Result<(), String> {
    directive("rerun-if-changed", &path.display().to_string())
}

/// Tells cargo something.
fn directive(key: &str, value: &str) -> Result<(), String> {
    writeln!(io::stdout(), "cargo::{key}={value}").map_err(|error| error.to_string())
}
