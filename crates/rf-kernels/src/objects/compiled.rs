//! Compiles the embedded sources on the user's machine once, into a per-user cache.
//!
//! The files are `$XDG_CACHE_HOME/rocmforge/kernels/ARCH/UNIT-KEY.co`, or `UNIT.VARIANT-KEY.co`;
//! `XDG_CACHE_HOME` defaults to `~/.cache`. The key is a hash of the source, the options and the
//! compiler's version. The source
//! of a damaged file is compiled again. A cache that cannot be written only costs time.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs};

use rf_hip::Compiler;
use tempfile::NamedTempFile;
use twox_hash::XxHash3_128;

use super::embedded::{SOURCES, UnitSource};

/// The options of the build script except for language and libraries, which hiprtc sets itself.
const OPTIONS: [&str; 4] = ["-O3", "-std=c++20", "-ffp-contract=off", "-DRF_RUNTIME_COMPILER=1"];

/// First bytes of a cache file; each layout has its own number.
const MAGIC: &[u8; 8] = b"RFKERN2\n";

/// Files kept per variant of a unit and architecture, for a few versions of this program and of
/// ROCm.
const KEPT: usize = 3;

/// Other code of a translation unit, compiled from its source with more options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Variant {
    /// A part of the names of files.
    pub(crate) name: &'static str,
    /// The options of the compiler.
    pub(crate) options: &'static [&'static str],
}

/// A compiler: a function from text, name and options of a source to a code object.
type Compile<'a> = dyn Fn(&str, &str, &[&str]) -> Result<Vec<u8>, rf_hip::Error> + 'a;

/// The units for `arch`, from the cache or from libhiprtc.
pub(super) fn units(arch: &str) -> Result<Vec<Vec<u8>>, rf_hip::Error> {
    compile(arch, SOURCES, None)
}

/// One unit for `arch`, from the cache or from libhiprtc.
pub(super) fn unit(
    arch: &str,
    source: &UnitSource,
    variant: Option<Variant>,
) -> Result<Vec<u8>, rf_hip::Error> {
    Ok(compile(arch, std::slice::from_ref(source), variant)?.swap_remove(0))
}

fn compile(
    arch: &str,
    sources: &[UnitSource],
    variant: Option<Variant>,
) -> Result<Vec<Vec<u8>>, rf_hip::Error> {
    let compiler = Compiler::load()?;
    let (major, minor) = compiler.version()?;
    let compile = |text: &str, name: &str, options: &[&str]| {
        compiler.compile(rf_hip::Source { name, text, headers: &[] }, options)
    };
    let cache = Cache {
        folder: cache_folder().map(|folder| folder.join("kernels")),
        version: format!("hiprtc {major}.{minor}"),
    };
    cache.units(arch, sources, variant, &compile)
}

/// Returns true if libhiprtc is installed.
pub(super) fn available() -> bool {
    Compiler::load().is_ok()
}

/// The folder for files of this program that can be made again; `None` if the environment has no
/// home directory.
pub(super) fn cache_folder() -> Option<PathBuf> {
    // The XDG specification requires that relative paths are ignored.
    let absolute =
        |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = || match absolute("LOCALAPPDATA") {
        Some(folder) if cfg!(windows) => Some(folder),
        _ => Some(absolute("HOME")?.join(".cache")),
    };
    let base = absolute("XDG_CACHE_HOME").or_else(user)?;
    Some(base.join("rocmforge"))
}

struct Cache {
    folder: Option<PathBuf>,
    /// Version of the compiler.
    version: String,
}

impl Cache {
    fn units(
        &self,
        arch: &str,
        sources: &[UnitSource],
        variant: Option<Variant>,
        compile: &Compile<'_>,
    ) -> Result<Vec<Vec<u8>>, rf_hip::Error> {
        let target = format!("--offload-arch={arch}");
        let more = variant.map_or(&[][..], |variant| variant.options);
        let options: Vec<_> =
            [&*target].into_iter().chain(OPTIONS).chain(more.iter().copied()).collect();
        let folder = self.folder.as_ref().map(|folder| folder.join(arch));
        // A variant is a single unit: it takes seconds.
        let mut announced = variant.is_some();
        let unit = |source: &UnitSource| {
            let key = self.key(source, &options);
            let stem = match variant {
                Some(variant) => format!("{}.{}", source.unit, variant.name),
                None => source.unit.to_owned(),
            };
            let file = folder.as_ref().map(|folder| folder.join(format!("{stem}-{key:032x}.co")));
            if let Some(code) = file.as_deref().and_then(|file| read(file, key)) {
                return Ok(code);
            }
            if !announced {
                tracing::warn!(arch, "compiling kernels for this device, once: this takes minutes");
                announced = true;
            }
            let code = compile(source.text, &format!("{}.hip", source.unit), &options)?;
            if let Some(file) = &file {
                match write(file, key, &code) {
                    Ok(()) => remove_old(file, &stem),
                    Err(error) => {
                        tracing::warn!(file = %file.display(), %error, "compiled kernels are not kept");
                    }
                }
            }
            Ok(code)
        };
        sources.iter().map(unit).collect()
    }

    fn key(&self, source: &UnitSource, options: &[&str]) -> u128 {
        let inputs = [source.text, &self.version, &options.join(" ")].join("\0");
        XxHash3_128::oneshot(inputs.as_bytes())
    }
}

/// The code object in `file`; `None` if it is missing, has another key, or is damaged.
fn read(file: &Path, key: u128) -> Option<Vec<u8>> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(file = %file.display(), %error, "cached kernels cannot be read");
            }
            return None;
        }
    };
    let code = (|| {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (sum, code) = rest.split_first_chunk::<16>()?;
        (u128::from_le_bytes(*sum) == checksum(key, code)).then(|| code.to_vec())
    })();
    if code.is_none() {
        tracing::warn!(file = %file.display(), "cached kernels are damaged: compiling them again");
    }
    code
}

/// Replaces the file in one step: a reader never sees a partial file.
fn write(file: &Path, key: u128, code: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)?;
    let mut partial = NamedTempFile::new_in(folder)?;
    for bytes in [MAGIC, &checksum(key, code).to_le_bytes()[..], code] {
        partial.write_all(bytes)?;
    }
    partial.persist(file)?;
    Ok(())
}

/// A checksum of contents and key. A renamed file does not match it.
fn checksum(key: u128, code: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(key as u64, code)
}

/// Removes the oldest files of a variant in the folder of `file` and keeps [`KEPT`] of them.
fn remove_old(file: &Path, stem: &str) {
    let Some(folder) = file.parent() else { return };
    let key_of = |path: &Path| -> Option<String> {
        let key = path.file_stem()?.to_str()?.strip_prefix(stem)?.strip_prefix('-')?;
        (path.extension()? == "co").then(|| key.to_owned())
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| key_of(&entry.path()).is_some())
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    let surplus = files.len().saturating_sub(KEPT);
    for (_, old) in &files[..surplus] {
        // A file that cannot be removed does no harm.
        fs::remove_file(old).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SOURCES: &[UnitSource] =
        &[UnitSource { unit: "rows", text: "rows" }, UnitSource { unit: "rope", text: "rope" }];

    /// Runs the cache with a compiler that counts its calls and writes the source text to the
    /// object.
    fn units(cache: &Cache, arch: &str) -> (Vec<Vec<u8>>, u32) {
        variants(cache, arch, None)
    }

    fn variants(cache: &Cache, arch: &str, variant: Option<Variant>) -> (Vec<Vec<u8>>, u32) {
        let calls = Cell::new(0);
        let compile = |text: &str, _: &str, options: &[&str]| {
            calls.set(calls.get() + 1);
            let more = options[1 + OPTIONS.len()..].concat();
            Ok(format!("\x7fELF {text} {}{more}", options[0]).into_bytes())
        };
        (cache.units(arch, SOURCES, variant, &compile).unwrap(), calls.get())
    }

    fn cache(folder: &Path) -> Cache {
        Cache { folder: Some(folder.to_owned()), version: "hiprtc 6.2".to_owned() }
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder.join("gfx1036")).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    #[test]
    fn the_second_run_compiles_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (first, calls) = units(&cache(folder.path()), "gfx1036");
        assert_eq!(calls, 2);
        assert_eq!(first[0], b"\x7fELF rows --offload-arch=gfx1036");
        let (second, calls) = units(&cache(folder.path()), "gfx1036");
        assert_eq!(calls, 0);
        assert_eq!(second, first);
    }

    #[test]
    fn architectures_and_compilers_have_separate_files() {
        let folder = tempfile::tempdir().unwrap();
        units(&cache(folder.path()), "gfx1036");
        assert_eq!(units(&cache(folder.path()), "gfx1035").1, 2);
        let newer = Cache { version: "hiprtc 7.0".to_owned(), ..cache(folder.path()) };
        assert_eq!(units(&newer, "gfx1036").1, 2);
        assert_eq!(units(&cache(folder.path()), "gfx1036").1, 0);
    }

    #[test]
    fn variants_have_separate_files_and_do_not_replace_those_of_the_unit() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path());
        let (whole, _) = units(&cache, "gfx1036");
        for options in [&["-DA=1"][..], &["-DA=2"], &["-DA=3"], &["-DA=4"]] {
            let variant = Some(Variant { name: "a", options });
            let (code, calls) = variants(&cache, "gfx1036", variant);
            assert_eq!(calls, 2);
            let text = format!("\x7fELF rows --offload-arch=gfx1036{}", options[0]);
            assert_eq!(code[0], text.as_bytes());
            assert_eq!(variants(&cache, "gfx1036", variant), (code, 0));
        }
        assert_eq!(units(&cache, "gfx1036"), (whole, 0));
        assert_eq!(files(folder.path()).len(), 2 + 2 * KEPT);
    }

    #[test]
    fn damaged_files_are_detected_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, _) = units(&cache(folder.path()), "gfx1036");
        let damaged = files(folder.path()).remove(0);
        let good = fs::read(&damaged).unwrap();
        let mut cases: Vec<Vec<u8>> =
            (0..good.len()).map(|length| good[..length].to_vec()).collect();
        cases.extend((0..good.len()).map(|at| {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            bytes
        }));
        cases.push([&*good, b"x"].concat());
        // A complete file of the other unit.
        cases.push(fs::read(&files(folder.path())[1]).unwrap());
        for bytes in cases {
            fs::write(&damaged, &bytes).unwrap();
            let (units, calls) = units(&cache(folder.path()), "gfx1036");
            assert_eq!(calls, 1, "{bytes:?}");
            assert_eq!(units, whole);
            assert_eq!(fs::read(&damaged).unwrap(), good);
        }
    }

    #[test]
    fn a_cache_that_cannot_be_written_costs_only_time() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("gfx1036"), "a file where the folder should be").unwrap();
        assert_eq!(units(&cache(folder.path()), "gfx1036").1, 2);
        assert_eq!(units(&cache(folder.path()), "gfx1036").1, 2);
        let nowhere = Cache { folder: None, ..cache(folder.path()) };
        assert_eq!(units(&nowhere, "gfx1036").1, 2);
    }

    #[test]
    fn files_of_old_versions_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for version in 0..10 {
            let cache = Cache { version: version.to_string(), ..cache(folder.path()) };
            units(&cache, "gfx1036");
        }
        assert_eq!(files(folder.path()).len(), 2 * KEPT);
        let last = Cache { version: "9".to_owned(), ..cache(folder.path()) };
        assert_eq!(units(&last, "gfx1036").1, 0);
    }

    #[test]
    fn a_compiler_failure_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let refuse = |_: &str, name: &str, _: &[&str]| {
            Err(rf_hip::Error::ZeroByte { name: name.to_owned() })
        };
        assert!(cache(folder.path()).units("gfx1036", SOURCES, None, &refuse).is_err());
    }
}
