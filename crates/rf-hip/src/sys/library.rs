//! Finds the shared library of the runtime.

#[cfg(not(windows))]
mod unix;
#[cfg(windows)]
mod windows;

use std::env;
use std::error::Error as _;
use std::path::PathBuf;
use std::sync::{Mutex, Once, PoisonError};

use libloading::Library;

#[cfg(not(windows))]
use self::unix as os;
#[cfg(windows)]
use self::windows as os;
use crate::{Attempt, Error, Platform};

/// The library of HIP that was opened last.
static OPENED_HIP: Mutex<Option<PathBuf>> = Mutex::new(None);

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
///
/// A library that loads may be too old or too new for the card or its driver, and then lists no
/// card: HIP 7 on Windows does so for RDNA 2 where HIP 6 of the same machine lists it.
pub(crate) fn open(
    platform: Platform,
    search: &Search,
    accept: impl Fn(&Library) -> bool,
) -> Result<(Library, PathBuf), Error> {
    if platform == Platform::Amd {
        use_one_hardware_queue();
    }
    let candidates = search.candidates(platform);
    let takes = |library: &Library| if accept(library) { Ok(()) } else { Err("it was not taken") };
    let accepted = if candidates.len() > 1 {
        open_first(platform, candidates.clone(), takes).ok()
    } else {
        None
    };
    let opened = match accepted {
        Some(accepted) => accepted,
        None => open_first(platform, candidates, |_| Ok(()))?,
    };
    if platform == Platform::Amd {
        *OPENED_HIP.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened.1.clone());
    }
    Ok(opened)
}

/// Makes HIP use one hardware queue, unless the user has chosen a number. With a second one, many
/// cards stay at full clocks until the process ends, even if no work is queued.
fn use_one_hardware_queue() {
    const QUEUES: &str = "GPU_MAX_HW_QUEUES";
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if env::var_os(QUEUES).is_none() {
            // SAFETY: the standard library locks its own accesses to the environment. C code of
            // another thread may read it meanwhile: a first addition makes a new array of
            // variables, and leaves the one that such code reads as it is.
            unsafe { env::set_var(QUEUES, "1") };
        }
    });
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
    let hip = OPENED_HIP.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut candidates = os::compiler_candidates(&search.rocm_folders, hip.as_deref());
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
