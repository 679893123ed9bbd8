//! Build script of rf-kernels: compiles the kernels if clang is installed, and embeds the result.
//!
//! | variable | meaning |
//! |---|---|
//! | `ROCFORGE_KERNEL_TARGETS` | `release` (RDNA 2 to 4 and NVIDIA), `all`, `none`, or a list such as `gfx1100,sm_80`; unset or `machine`: the cards of this machine |
//! | `ROCFORGE_CLANG` | the clang to use, version 19 or newer; unset: see [`Compiler::find`] |
//!
//! The crate builds without a compiler: the sources are always embedded, and `objects` reports
//! missing code at run time. A kernel that does not compile fails the build with the compiler's
//! output.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, error, fs, thread};

use rf_kernels_build::{
    Cache, Compiler, Error, ObjectFile, Selection, Sources, Unit, compile_all, packed,
};

type Result<T> = std::result::Result<T, Box<dyn error::Error>>;

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Cargo prints the standard error of a build script that fails.
            writeln!(io::stderr(), "error: {}", with_sources(&*error)).ok();
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<()> {
    let out = PathBuf::from(required("OUT_DIR")?);
    let kernels = Path::new(&required("CARGO_MANIFEST_DIR")?).join("kernels");
    // In the repository `kernels` is a link, whose own modification time never changes.
    let kernels = kernels.canonicalize()?;
    directive("rerun-if-changed", &kernels.display().to_string())?;
    for variable in ["ROCFORGE_KERNEL_TARGETS", "ROCFORGE_CLANG", "ROCM_PATH"] {
        directive("rerun-if-env-changed", variable)?;
    }

    let selection: Selection = env::var("ROCFORGE_KERNEL_TARGETS")
        .unwrap_or_default()
        .parse()
        .map_err(|error| format!("ROCFORGE_KERNEL_TARGETS: {error}"))?;
    let sources = Sources::read(&kernels)?;
    let cache = Cache::open(&out)?;
    let (objects, note) = compile(&selection, &sources, &cache)?;
    embed(&out, sources.units(), &objects, &note)?;
    cache.prune();
    Ok(())
}

/// The objects, and a sentence about their targets or the reason for missing ones.
fn compile<'a>(
    selection: &Selection,
    sources: &'a Sources,
    cache: &Cache,
) -> Result<(Vec<ObjectFile<'a>>, String)> {
    if *selection == Selection::None {
        return Ok((Vec::new(), "built with ROCFORGE_KERNEL_TARGETS=none".to_owned()));
    }
    let compiler = match Compiler::find() {
        Ok(compiler) => compiler,
        Err(Error::NoCompiler { rejected }) => {
            let mut note = "built without clang 19 or newer".to_owned();
            for reason in rejected {
                write!(note, "; {}", with_sources(&reason))?;
            }
            return Ok((Vec::new(), note));
        }
        Err(error) => return Err(error.into()),
    };
    directive("rerun-if-changed", &compiler.path().display().to_string())?;

    let supported = compiler.supported_targets(selection)?;
    if supported.targets.is_empty() && *selection == Selection::Machine {
        let note = "built on a machine without a GPU: set ROCFORGE_KERNEL_TARGETS to release, or \
                    to the architecture of a card";
        return Ok((Vec::new(), note.to_owned()));
    }
    let objects = compile_all(&compiler, cache, sources, &supported.targets, threads())?;
    print_objects(&objects)?;
    let names: Vec<_> = supported.targets.iter().map(|target| target.name).collect();
    let mut note = format!("built by {} for {}", compiler.version(), names.join(" "));
    for unsupported in &supported.unsupported {
        write!(note, "; not {}: {}", unsupported.target.name, unsupported.message)?;
    }
    Ok((objects, note))
}

/// Prints compile times and warnings, for `cargo build -vv`.
fn print_objects(objects: &[ObjectFile<'_>]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for object in objects {
        let (unit, target) = (&object.unit.name, object.target.name);
        match object.compile_time {
            Some(time) => writeln!(out, "{unit} for {target}: {:.1} s", time.as_secs_f64())?,
            None => writeln!(out, "{unit} for {target}: unchanged")?,
        }
        out.write_all(object.warnings.as_bytes())?;
    }
    Ok(())
}

/// Writes `embedded.rs`, which `src/objects/embedded.rs` includes, and the packed objects into
/// `out`. An object of a family is stored as its difference from the first one of the family:
/// otherwise twelve targets would take more than twice the space.
fn embed(out: &Path, units: &[Unit], objects: &[ObjectFile<'_>], note: &str) -> Result<()> {
    let mut text = format!("pub(crate) const NOTE: &str = {note:?};\n");
    text.push_str("pub(crate) static SOURCES: &[UnitSource] = &[\n");
    for unit in units {
        writeln!(text, "UnitSource {{ unit: {:?}, text: {:?} }},", unit.name, unit.text)?;
    }
    text.push_str("];\npub(crate) static OBJECTS: &[Embedded] = &[\n");
    let mut firsts: HashMap<(&str, &str), &ObjectFile<'_>> = HashMap::new();
    for object in objects {
        let (unit, target) = (&object.unit.name, object.target.name);
        let name = format!("{unit}.{target}.packed");
        let first = match object.target.family() {
            Some(family) => *firsts.entry((family, unit)).or_insert(object),
            None => object,
        };
        let base = (first.target != object.target).then_some(first.target.name);
        if base.is_some() {
            let difference = packed(&fs::read(&first.path)?, &fs::read(&object.path)?);
            fs::write(out.join(&name), difference)?;
        } else {
            // Copied rather than included from the cache: another build may prune the cache, and
            // cargo would not run this script again.
            fs::copy(packed_alone(&object.path)?, out.join(&name))?;
        }
        writeln!(
            text,
            "Embedded {{ unit: {unit:?}, target: {target:?}, base: {base:?}, \
             packed: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\")) }},"
        )?;
    }
    text.push_str("];\n");
    fs::write(out.join("embedded.rs"), text)?;
    Ok(())
}

/// The path of the packed object, which lies in the cache next to the object. Another form of
/// packing needs another extension, because builds of other revisions share the cache.
fn packed_alone(object: &Path) -> Result<PathBuf> {
    let path = object.with_added_extension("packed");
    if !path.is_file() {
        let folder = path.parent().ok_or("the cache has no folder")?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&packed(&[], &fs::read(object)?))?;
        file.persist(&path)?;
    }
    Ok(path)
}

/// The number of jobs that cargo allows, at most the number of processors.
fn threads() -> usize {
    let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    let processors = thread::available_parallelism().map_or(1, usize::from);
    jobs.map_or(processors, |jobs: usize| jobs.min(processors))
}

fn required(variable: &str) -> Result<String> {
    env::var(variable).map_err(|error| format!("{variable}: {error}; cargo sets it").into())
}

/// Prints a directive for cargo.
fn directive(key: &str, value: &str) -> io::Result<()> {
    writeln!(io::stdout(), "cargo::{key}={value}")
}

/// The error followed by its sources.
fn with_sources(error: &dyn error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        write!(text, ": {error}").ok();
        source = error.source();
    }
    text
}
