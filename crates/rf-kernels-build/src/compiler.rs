//! Finds a clang that builds kernels, and runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs};

use crate::targets::OLDEST_CLANG;
use crate::{Error, Selection, Target};

/// Candidates on the `PATH`, newest first.
const NAMES: [&str; 5] = ["clang-22", "clang-21", "clang-20", "clang-19", "clang"];

/// The installation directory of AMD's packages; `ROCM_PATH` overrides it.
const ROCM_PATH: &str = "/opt/rocm";

/// A minimal kernel: shows that code generation and linking for a target work.
const PROBE: &str = "extern \"C\" __attribute__((global)) void probe(int *x) { *x = 1; }\n";

/// A clang that is new enough to build kernels.
#[derive(Clone, Debug)]
pub struct Compiler {
    path: PathBuf,
    version: String,
}

/// The targets of a [`Selection`], divided by whether the compiler supports them.
#[derive(Clone, Debug)]
pub struct SupportedTargets {
    /// The targets that the compiler builds.
    pub targets: Vec<&'static Target>,
    /// The targets to leave out.
    pub unsupported: Vec<UnsupportedTarget>,
}

/// A target that the compiler cannot build for.
#[derive(Clone, Debug)]
pub struct UnsupportedTarget {
    /// The target.
    pub target: &'static Target,
    /// The compiler's first error message: an unknown target, or a missing linker.
    pub message: String,
}

impl Compiler {
    /// Searches `ROCFORGE_CLANG`, the `PATH`, `ROCM_PATH` and hipcc's compiler, in this order.
    ///
    /// # Errors
    ///
    /// [`Error::NamedCompiler`] if `ROCFORGE_CLANG` is set but unusable: it is never replaced by
    /// another compiler. [`Error::NoCompiler`] if no candidate is usable.
    pub fn find() -> Result<Self, Error> {
        if let Some(named) = env::var_os("ROCFORGE_CLANG").filter(|named| !named.is_empty()) {
            let path = which::which(&named).unwrap_or_else(|_| PathBuf::from(named));
            return Self::new(path)
                .map_err(|error| Error::NamedCompiler { source: Box::new(error) });
        }
        let rocm = env::var_os("ROCM_PATH").unwrap_or_else(|| ROCM_PATH.into());
        let candidates = NAMES
            .iter()
            .map(PathBuf::from)
            .chain([Path::new(&rocm).join("llvm/bin/clang")])
            .chain(hipcc_clang());

        let mut rejected = Vec::new();
        for path in candidates.filter_map(|candidate| which::which(candidate).ok()) {
            match Self::new(path) {
                Ok(compiler) => return Ok(compiler),
                Err(error) => rejected.push(error),
            }
        }
        Err(Error::NoCompiler { rejected })
    }

    /// The compiler at `path`.
    ///
    /// # Errors
    ///
    /// [`Error::Run`], [`Error::NotClang`], [`Error::OldClang`]
    pub fn new(path: PathBuf) -> Result<Self, Error> {
        let output = Command::new(&path).arg("--version").output();
        let output = match output {
            Ok(output) => output,
            Err(source) => return Err(Error::Run { path, source }),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().next().unwrap_or_default().trim().to_owned();
        match major_version(&version) {
            None => Err(Error::NotClang { path, version }),
            Some(major) if major < OLDEST_CLANG => Err(Error::OldClang { path, major }),
            Some(_) => Ok(Self { path, version }),
        }
    }

    /// The path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first line that it prints for `--version`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Builds a minimal kernel for each target of `selection`, to find out which are supported.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedTarget`] if `selection` names the target; otherwise the compiler cannot
    /// be started, or temporary files cannot be written.
    pub fn supported_targets(&self, selection: &Selection) -> Result<SupportedTargets, Error> {
        let mut supported = SupportedTargets { targets: Vec::new(), unsupported: Vec::new() };
        for target in selection.targets() {
            match self.probe(target)? {
                None => supported.targets.push(target),
                Some(message) if matches!(selection, Selection::Named(_)) => {
                    let (compiler, target) = (self.version.clone(), target.name);
                    return Err(Error::UnsupportedTarget { compiler, target, message });
                }
                Some(message) => supported.unsupported.push(UnsupportedTarget { target, message }),
            }
        }
        Ok(supported)
    }

    /// The compiler's first error message for a minimal kernel, or `None` on success.
    fn probe(&self, target: &Target) -> Result<Option<String>, Error> {
        let scratch =
            tempfile::tempdir().map_err(|source| Error::Write { path: env::temp_dir(), source })?;
        let path = scratch.path().join("probe.hip");
        fs::write(&path, PROBE).map_err(|source| Error::Write { path: path.clone(), source })?;
        let output = self.run(target, &path, None, &scratch.path().join("probe.out"))?;
        if output.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let message = text.lines().find(|line| line.contains("error")).unwrap_or(text.trim());
        Ok(Some(message.to_owned()))
    }

    /// Compiles `source` to `object`; quoted includes are relative to `include`. The output tells
    /// whether the source compiled.
    pub(crate) fn run(
        &self,
        target: &Target,
        source: &Path,
        include: Option<&Path>,
        object: &Path,
    ) -> Result<Output, Error> {
        let mut command = Command::new(&self.path);
        command.args(target.arguments());
        if let Some(include) = include {
            command.arg("-I").arg(include);
        }
        command.arg(source).arg("-o").arg(object).stdin(Stdio::null());
        command.output().map_err(|source| Error::Run { path: self.path.clone(), source })
    }
}

/// The major version in a line such as "Debian clang version 19.1.7 (3)" or "AMD clang version
/// 20.0.0git". Apple numbers its clang differently and builds for neither AMD nor NVIDIA.
fn major_version(line: &str) -> Option<u32> {
    let (vendor, rest) = line.split_once("clang version ")?;
    if vendor.contains("Apple") {
        return None;
    }
    rest.split('.').next()?.trim().parse().ok()
}

/// The clang that hipcc starts, as reported by hipconfig.
fn hipcc_clang() -> Option<PathBuf> {
    let output = Command::new("hipconfig").arg("--hipclangpath").output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    let folder = folder.trim();
    (!folder.is_empty()).then(|| Path::new(folder).join("clang"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_vendors_are_understood() {
        assert_eq!(major_version("Debian clang version 19.1.7 (3)"), Some(19));
        assert_eq!(major_version("AMD clang version 20.0.0git (ROCm 7.0)"), Some(20));
        assert_eq!(major_version("clang version 22"), Some(22));
        assert_eq!(major_version("Apple clang version 16.0.0 (clang-1600.0.26.3)"), None);
        assert_eq!(major_version("gcc (Debian 14.2.0) 14.2.0"), None);
        assert_eq!(major_version(""), None);
    }

    #[test]
    fn a_program_that_is_not_clang_is_rejected() {
        let error = Compiler::new("/nonexistent/clang".into()).unwrap_err();
        assert!(matches!(error, Error::Run { .. }), "{error}");
        let cargo = env::var_os("CARGO").expect("cargo sets it");
        let error = Compiler::new(cargo.into()).unwrap_err();
        assert!(matches!(error, Error::NotClang { .. }), "{error}");
    }
}
