//! Finds the shared library of the runtime.

use std::{
    env,
    error::Error as _,
    ffi::OsString,
    path::{Path, PathBuf},
};

use libloading::Library;

use crate::{Attempt, Error, Platform};

/// The search settings from the environment.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// `ROCFORGE_HIP_LIBRARY` or `ROCFORGE_CUDA_LIBRARY`: the only candidate.
    pub(crate) only: Option<PathBuf>,
    /// `ROCM_PATH`
    rocm_path: Option<PathBuf>,
}

impl Search {
    pub(crate) fn from_environment(platform: Platform) -> Self {
        let path = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(to_path);
        match platform {
            Platform::Amd => {
                Self { only: path("ROCFORGE_HIP_LIBRARY"), rocm_path: path("ROCM_PATH") }
            }
            Platform::Nvidia => Self { only: path("ROCFORGE_CUDA_LIBRARY"), rocm_path: None },
        }
    }

    /// The candidates, in order.
    fn candidates(&self, platform: Platform) -> Vec<PathBuf> {
        if let Some(only) = &self.only {
            return vec![only.clone()];
        }
        match platform {
            Platform::Amd => amd_candidates("amdhip64", self.rocm_path.as_deref()),
            Platform::Nvidia => NVIDIA_NAMES.iter().map(PathBuf::from).collect(),
        }
    }
}

/// Opens the first library that loads.
pub(crate) fn open(platform: Platform, search: &Search) -> Result<(Library, PathBuf), Error> {
    open_first(platform, search.candidates(platform), |_| Ok(()))
}

/// Returns true if a library of the platform loads. None of its functions is called; it stays
/// loaded.
pub(crate) fn is_installed(platform: Platform) -> bool {
    match open(platform, &Search::from_environment(platform)) {
        Ok((library, _)) => {
            // Unloading a GPU driver can crash the process.
            std::mem::forget::<Library>(library);
            true
        }
        Err(_) => false,
    }
}

/// Opens libhiprtc, or libamdhip64, which contains the compiler up to HIP 5; `has_compiler` detects
/// it.
pub(crate) fn open_compiler(
    has_compiler: impl Fn(&Library) -> bool,
) -> Result<(Library, PathBuf), Error> {
    let search = Search::from_environment(Platform::Amd);
    let mut candidates = amd_candidates("hiprtc", search.rocm_path.as_deref());
    candidates.extend(search.candidates(Platform::Amd));
    open_first(Platform::Amd, candidates, |library| {
        if has_compiler(library) { Ok(()) } else { Err("it contains no compiler") }
    })
}

fn open_first(
    platform: Platform,
    candidates: Vec<PathBuf>,
    accept: impl Fn(&Library) -> Result<(), &'static str>,
) -> Result<(Library, PathBuf), Error> {
    let mut tried = Vec::new();
    for path in candidates {
        // SAFETY: loading runs the library's initialisers. The candidates are the vendors' runtimes
        // and the path in the user's environment.
        let outcome = match unsafe { Library::new(&path) } {
            Ok(library) => accept(&library).map(|()| library).map_err(str::to_owned),
            Err(error) => Err(reason(&error)),
        };
        match outcome {
            Ok(library) => return Ok((library, path)),
            Err(reason) => tried.push(Attempt::new(platform, path, reason)),
        }
    }
    Err(Error::LibraryNotFound { tried })
}

/// The loader's message, which is the source of libloading's error.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// HIP's soname contains its major version; only the development package installs the plain name.
#[cfg(not(windows))]
fn amd_candidates(stem: &str, rocm_path: Option<&Path>) -> Vec<PathBuf> {
    let names = [".so.7", ".so.6", ".so.5", ".so"].map(|suffix| format!("lib{stem}{suffix}"));
    let inside = |folder: &Path| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    let mut candidates = rocm_path.map(|root| inside(&root.join("lib"))).unwrap_or_default();
    candidates.extend(names.iter().map(PathBuf::from));
    candidates.extend(inside(Path::new("/opt/rocm/lib")));
    candidates
}

/// The driver package installs the library on the search path; HIP's SDK has its own directory.
#[cfg(windows)]
fn amd_candidates(stem: &str, rocm_path: Option<&Path>) -> Vec<PathBuf> {
    let names = ["_7.dll", "_6.dll", ".dll"].map(|suffix| format!("{stem}{suffix}"));
    let sdk = rocm_path.map(|root| names.each_ref().map(|name| root.join("bin").join(name)));
    sdk.into_iter().flatten().chain(names.iter().map(PathBuf::from)).collect()
}

/// Installed by the driver; the last is the path in WSL.
#[cfg(not(windows))]
const NVIDIA_NAMES: &[&str] = &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"];
#[cfg(windows)]
const NVIDIA_NAMES: &[&str] = &["nvcuda.dll"];

fn to_path(value: OsString) -> PathBuf {
    PathBuf::from(value)
}

#[cfg(all(test, not(windows)))]
mod tests {
    use super::*;

    fn names(search: &Search, platform: Platform) -> Vec<String> {
        search.candidates(platform).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn rocm_path_precedes_the_plain_names_and_those_the_default_directory() {
        let search = Search { only: None, rocm_path: Some("/rocm-7".into()) };
        let names = names(&search, Platform::Amd);
        let position = |name: &str| names.iter().position(|other| other == name).unwrap();
        assert_eq!(position("/rocm-7/lib/libamdhip64.so.7"), 0);
        assert!(position("/rocm-7/lib/libamdhip64.so") < position("libamdhip64.so.7"));
        assert!(position("libamdhip64.so.7") < position("libamdhip64.so.6"));
        assert!(position("libamdhip64.so") < position("/opt/rocm/lib/libamdhip64.so.7"));
    }

    #[test]
    fn an_override_is_the_only_candidate() {
        let search = Search { only: Some("/x/hip.so".into()), rocm_path: Some("/rocm".into()) };
        assert_eq!(names(&search, Platform::Amd), ["/x/hip.so"]);
    }

    #[test]
    fn a_missing_library_is_an_error_that_lists_every_attempt() {
        let search = Search { only: Some("/nowhere/libamdhip64.so".into()), rocm_path: None };
        let error = open(Platform::Amd, &search).unwrap_err();
        let Error::LibraryNotFound { tried } = &error else { panic!("{error}") };
        assert_eq!(tried.len(), 1);
        assert!(error.to_string().contains("/nowhere/libamdhip64.so"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_a_library_is_an_error() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let search = Search { only: Some(manifest.into()), rocm_path: None };
        assert!(matches!(open(Platform::Amd, &search), Err(Error::LibraryNotFound { .. })));
    }
}
