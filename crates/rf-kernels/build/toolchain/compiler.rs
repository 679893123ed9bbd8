//! Finds a clang that can build kernels, and asks it what it knows.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{self, Command, Output, Stdio},
};

use super::targets::Target;

/// The oldest clang that builds every kernel.
const OLDEST: u32 = 19;

/// Newest first; `ROCFORGE_CLANG` goes before them, ROCm's own compilers after.
const NAMES: [&str; 5] = ["clang-22", "clang-21", "clang-20", "clang-19", "clang"];

/// Where AMD's packages put everything, unless `ROCM_PATH` says otherwise.
const ROCM_PATH: &str = "/opt/rocm";

/// The smallest kernel: shows that code generation and linking for a target work.
const PROBE: &str = "extern \"C\" __attribute__((global)) void probe(int *x) { *x = 1; }\n";

/// A clang of [`OLDEST`] or newer.
pub(crate) struct Compiler {
    pub(crate) path: PathBuf,
    /// The first line of `--version`.
    pub(crate) version: String,
}

/// What came of looking for one.
pub(crate) enum Search {
    Found(Compiler),
    /// With the reason for each candidate that exists but will not do.
    Missing(Vec<String>),
}

impl Compiler {
    /// Looks at `ROCFORGE_CLANG`, the `PATH`, `ROCM_PATH` and hipcc's compiler, in this order.
    ///
    /// # Errors
    ///
    /// `ROCFORGE_CLANG` names something that will not do: whoever sets it does not want another one.
    pub(crate) fn find() -> Result<Search, String> {
        if let Some(named) = env::var_os("ROCFORGE_CLANG").filter(|named| !named.is_empty()) {
            let named = Path::new(&named);
            let path = locate(named).unwrap_or_else(|| named.to_owned());
            let compiler = Self::check(&path).map_err(|why| format!("ROCFORGE_CLANG: {why}"))?;
            return Ok(Search::Found(compiler));
        }
        let rocm = env::var_os("ROCM_PATH").unwrap_or_else(|| ROCM_PATH.into());
        let candidates = NAMES
            .iter()
            .map(PathBuf::from)
            .chain([Path::new(&rocm).join("llvm/bin/clang")])
            .chain(hipcc_clang());

        let mut unfit = Vec::new();
        for path in candidates.filter_map(|candidate| locate(&candidate)) {
            match Self::check(&path) {
                Ok(compiler) => return Ok(Search::Found(compiler)),
                Err(why) => unfit.push(why),
            }
        }
        Ok(Search::Missing(unfit))
    }

    fn check(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let output = Command::new(path).arg("--version").output();
        let output = output.map_err(|error| format!("{shown}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().next().unwrap_or_default().trim();
        match major_version(version) {
            None => Err(format!("{shown}: not a clang: {version:?}")),
            Some(major) if major < OLDEST => {
                Err(format!("{shown}: clang {major}, but {OLDEST} or newer is needed"))
            }
            Some(_) => Ok(Self { path: path.to_owned(), version: version.to_owned() }),
        }
    }

    /// Builds a one-line kernel for `target` in `scratch`.
    ///
    /// # Errors
    ///
    /// The compiler's first complaint: an unknown target, or a linker that is missing.
    pub(crate) fn probe(&self, target: &Target, scratch: &Path) -> Result<(), String> {
        let source = scratch.join(format!("probe-{}.{}.hip", target.name, process::id()));
        let object = source.with_extension(target.extension());
        fs::write(&source, PROBE).map_err(|error| format!("{}: {error}", source.display()))?;
        let outcome = self.run(target, &source, None, &object);
        for file in [&source, &object] {
            // The next build's probe overwrites what cannot be removed now.
            fs::remove_file(file).ok();
        }
        let output = outcome.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let complaint = text.lines().find(|line| line.contains("error")).unwrap_or(text.trim());
        Err(complaint.to_owned())
    }

    /// Compiles `source` to `object`; the include folder is where quoted names are looked for.
    ///
    /// # Errors
    ///
    /// The compiler could not be started. Whether it liked the source is in the output.
    pub(crate) fn run(
        &self,
        target: &Target,
        source: &Path,
        include: Option<&Path>,
        object: &Path,
    ) -> io::Result<Output> {
        let mut command = Command::new(&self.path);
        command.args(target.arguments());
        if let Some(include) = include {
            command.arg("-I").arg(include);
        }
        command.arg(source).arg("-o").arg(object).stdin(Stdio::null()).output()
    }
}

/// The major version in a line such as "Debian clang version 19.1.7 (3)" or "AMD clang version 20.0.0git".
/// Apple counts differently and builds for neither AMD nor NVIDIA.
fn major_version(line: &str) -> Option<u32> {
    let (vendor, rest) = line.split_once("clang version ")?;
    if vendor.contains("Apple") {
        return None;
    }
    rest.split('.').next()?.trim().parse().ok()
}

/// A bare name on the `PATH`, or the path itself when it has folders.
fn locate(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return name.is_file().then(|| name.to_owned());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

/// The compiler behind hipcc, as hipconfig tells it.
fn hipcc_clang() -> Option<PathBuf> {
    let output = Command::new("hipconfig").arg("--hipclangpath").output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    let folder = folder.trim();
    (!folder.is_empty()).then(|| Path::new(folder).join("clang"))
}
