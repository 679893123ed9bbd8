//! Names and folders of the libraries on Windows.
//!
//! The graphics driver installs the runtimes in the system's folder. They fit the driver, so they
//! precede those of an SDK, and a library in the current folder or on `PATH` is never loaded.

use std::path::{Path, PathBuf};
use std::{env, fs};

use libloading::Library;
use libloading::os::windows::{
    LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR, Library as WindowsLibrary,
};

/// The variables that name an installation of the HIP SDK.
pub(super) const ROCM_VARIABLES: &[&str] = &["HIP_PATH", "ROCM_PATH"];

/// The libraries of HIP, newest first.
pub(super) fn amd_candidates(roots: &[PathBuf]) -> Vec<PathBuf> {
    let folders = [system_folder()].into_iter().chain(roots.iter().map(|root| root.join("bin")));
    let names = ["amdhip64_7.dll", "amdhip64_6.dll"];
    folders.flat_map(|folder| names.map(|name| folder.join(name))).collect()
}

/// The libraries of HIP's compiler, which only the SDK has: `hiprtc0701.dll` and the like, newest
/// first. That of the driver, which has the library of HIP, has none.
pub(super) fn compiler_candidates(roots: &[PathBuf], _hip: Option<&Path>) -> Vec<PathBuf> {
    let is_compiler = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let version = name.strip_prefix("hiprtc").and_then(|name| name.strip_suffix(".dll"));
        version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let entries = roots.iter().flat_map(|root| fs::read_dir(root.join("bin"))).flatten().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).filter(is_compiler).collect();
    found.sort_by(|one, other| other.file_name().cmp(&one.file_name()));
    found
}

/// Installed by the driver.
pub(super) fn nvidia_candidates() -> Vec<PathBuf> {
    vec![system_folder().join("nvcuda.dll")]
}

/// Loads a library. Those that it needs are searched in its own folder and in the system's.
///
/// # Safety
///
/// That of [`Library::new`].
pub(super) unsafe fn load(path: &Path) -> Result<Library, libloading::Error> {
    if !path.is_absolute() {
        // SAFETY: the caller's.
        return unsafe { Library::new(path) };
    }
    let flags = LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
    // SAFETY: the caller's.
    unsafe { WindowsLibrary::load_with_flags(path, flags) }.map(Library::from)
}

fn system_folder() -> PathBuf {
    let windows =
        env::var_os("SystemRoot").map_or_else(|| PathBuf::from(r"C:\Windows"), PathBuf::from);
    windows.join("System32")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_the_driver_precede_those_of_an_sdk() {
        let candidates = amd_candidates(&[r"C:\ROCm\7.1".into()]);
        let (driver, sdk) = candidates.split_at(2);
        assert!(driver.iter().all(|path| path.starts_with(system_folder())), "{driver:?}");
        assert!(driver[0].ends_with("amdhip64_7.dll"), "{driver:?}");
        assert_eq!(sdk[0], Path::new(r"C:\ROCm\7.1\bin\amdhip64_7.dll"));
    }
}
