//! Finds the shared library of the runtime.

#[cfg(not(windows))]
mod unix;
#[cfg(windows)]
mod windows;

use std::{env, error::Error as _, path::PathBuf};

use libloading::Library;

#[cfg(not(windows))]
use self::unix as os;
#[cfg(windows)]
use self::windows as os;
use crate::{Attempt, Error, Platform};

pub(crate) use os::TRIES_NEXT_WITHOUT_DEVICES;

/// The search settings from the environment.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// `ROCFORGE_HIP_LIBRARY` or `ROCFORGE_CUDA_LIBRARY`: the only candidate.
    pub(crate) only: Option<PathBuf>,
    /// The folders of ROCm's libraries that the user names.
    rocm_folders: Vec<PathBuf>,
}

impl Search {
    pub(crate) fn from_environment(platform: Platform) -> Self {
        let path =
            |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        match platform {
            Platform::Amd => Self {
                only: path("ROCFORGE_HIP_LIBRARY"),
                rocm_folders: os::ROCM_VARIABLES.iter().copied().filter_map(path).collect(),
            },
            Platform::Nvidia => {
                Self { only: path("ROCFORGE_CUDA_LIBRARY"), rocm_folders: Vec::new() }
            }
        }
    }

    /// The candidates, in order.
    fn candidates(&self, platform: Platform) -> Vec<PathBuf> {
        if let Some(only) = &self.only {
            return vec![only.clone()];
        }
        match platform {
            Platform::Amd => os::amd_candidates(&self.rocm_folders),
            Platform::Nvidia => os::nvidia_candidates(),
        }
    }
}

/// Opens the first library that loads and that `accept` takes. Where it takes none, the first that
/// loads.
pub(crate) fn open(
    platform: Platform,
    search: &Search,
    accept: impl Fn(&Library) -> bool,
) -> Result<(Library, PathBuf), Error> {
    let candidates = search.candidates(platform);
    if candidates.len() > 1 {
        let accepted = open_first(platform, candidates.clone(), |library| {
            if accept(library) { Ok(()) } else { Err("it was not taken") }
        });
        if accepted.is_ok() {
            return accepted;
        }
    }
    open_first(platform, candidates, |_| Ok(()))
}

/// Returns true if a library of the platform loads. None of its functions is called; it stays
/// loaded.
pub(crate) fn is_installed(platform: Platform) -> bool {
    match open(platform, &Search::from_environment(platform), |_| true) {
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
    let mut candidates = os::compiler_candidates(&search.rocm_folders);
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
        let outcome = match unsafe { os::load(&path) } {
            Ok(library) => match accept(&library) {
                Ok(()) => Ok(library),
                Err(reason) => {
                    // Unloading a GPU driver can crash the process.
                    std::mem::forget::<Library>(library);
                    Err(reason.to_owned())
                }
            },
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

#[cfg(all(test, not(windows)))]
mod tests {
    use super::*;

    fn names(search: &Search, platform: Platform) -> Vec<String> {
        search.candidates(platform).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn rocm_path_precedes_the_plain_names_and_those_the_default_directory() {
        let search = Search { only: None, rocm_folders: vec!["/rocm-7".into()] };
        let names = names(&search, Platform::Amd);
        let position = |name: &str| names.iter().position(|other| other == name).unwrap();
        assert_eq!(position("/rocm-7/lib/libamdhip64.so.7"), 0);
        assert!(position("/rocm-7/lib/libamdhip64.so") < position("libamdhip64.so.7"));
        assert!(position("libamdhip64.so.7") < position("libamdhip64.so.6"));
        assert!(position("libamdhip64.so") < position("/opt/rocm/lib/libamdhip64.so.7"));
    }

    #[test]
    fn an_override_is_the_only_candidate() {
        let search = Search { only: Some("/x/hip.so".into()), rocm_folders: vec!["/rocm".into()] };
        assert_eq!(names(&search, Platform::Amd), ["/x/hip.so"]);
    }

    #[test]
    fn a_missing_library_is_an_error_that_lists_every_attempt() {
        let search =
            Search { only: Some("/nowhere/libamdhip64.so".into()), rocm_folders: Vec::new() };
        let error = open(Platform::Amd, &search, |_| true).unwrap_err();
        let Error::LibraryNotFound { tried } = &error else { panic!("{error}") };
        assert_eq!(tried.len(), 1);
        assert!(error.to_string().contains("/nowhere/libamdhip64.so"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_a_library_is_an_error() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let search = Search { only: Some(manifest.into()), rocm_folders: Vec::new() };
        assert!(matches!(
            open(Platform::Amd, &search, |_| true),
            Err(Error::LibraryNotFound { .. })
        ));
    }
}
