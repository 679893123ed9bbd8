//! Names and folders of the libraries on Linux.

use std::path::{Path, PathBuf};

use libloading::Library;

/// The variables that name an installation of ROCm.
pub(super) const ROCM_VARIABLES: &[&str] = &["ROCM_PATH"];

/// The libraries of HIP.
pub(super) fn amd_candidates(roots: &[PathBuf]) -> Vec<PathBuf> {
    rocm_candidates("amdhip64", roots)
}

/// The libraries of HIP's compiler.
pub(super) fn compiler_candidates(roots: &[PathBuf]) -> Vec<PathBuf> {
    rocm_candidates("hiprtc", roots)
}

/// Installed by the driver; the last is the path in WSL.
pub(super) fn nvidia_candidates() -> Vec<PathBuf> {
    ["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"].map(PathBuf::from).into()
}

/// Loads a library by its path, or by its name on the loader's search path.
///
/// # Safety
///
/// That of [`Library::new`].
pub(super) unsafe fn load(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the caller's.
    unsafe { Library::new(path) }
}

/// The first runtime that loads is the one that the user installed.
pub(crate) const TRIES_NEXT_WITHOUT_DEVICES: bool = false;

/// HIP's soname contains its major version; only the development package installs the plain name.
fn rocm_candidates(stem: &str, roots: &[PathBuf]) -> Vec<PathBuf> {
    let names = [".so.7", ".so.6", ".so.5", ".so"].map(|suffix| format!("lib{stem}{suffix}"));
    let inside = |folder: &Path| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    let mut candidates: Vec<_> = roots.iter().flat_map(|root| inside(&root.join("lib"))).collect();
    candidates.extend(names.iter().map(PathBuf::from));
    candidates.extend(inside(Path::new("/opt/rocm/lib")));
    candidates
}
