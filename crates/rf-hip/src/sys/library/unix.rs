//! Names and folders of the libraries on Linux.

use std::path::{Path, PathBuf};
use std::{env, fs};

use libloading::Library;

/// The variables that name an installation of ROCm.
pub(super) const ROCM_VARIABLES: &[&str] = &["ROCM_PATH", "HIP_PATH"];

/// The variables that name the active environment of Python.
const PYTHON_VARIABLES: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];

/// HIP's soname contains its major version; only the development package installs the plain name.
const SUFFIXES: [&str; 5] = [".so.8", ".so.7", ".so.6", ".so.5", ".so"];

/// The libraries of HIP, newest first.
pub(super) fn amd_candidates(roots: &[PathBuf]) -> Vec<PathBuf> {
    candidates("amdhip64", roots, &installed_folders())
}

/// The libraries of HIP's compiler. The one that belongs to `hip`, the library of HIP, is first:
/// both load parts of ROCm, which have to be of one version.
pub(super) fn compiler_candidates(roots: &[PathBuf], hip: Option<&Path>) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if let Some(folder) = hip.and_then(folder_of) {
        let names = SUFFIXES.iter().map(|suffix| folder.join(format!("libhiprtc{suffix}")));
        all.extend(names.filter(|path| path.exists()));
    }
    all.extend(candidates("hiprtc", roots, &installed_folders()));
    all
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

/// The libraries in the folders that the user names, then those of each version on the loader's
/// search path and in `folders`.
fn candidates(stem: &str, roots: &[PathBuf], folders: &[PathBuf]) -> Vec<PathBuf> {
    let names = SUFFIXES.map(|suffix| format!("lib{stem}{suffix}"));
    let libs = roots.iter().map(|root| root.join("lib"));
    let mut all: Vec<_> =
        libs.flat_map(|lib| names.each_ref().map(|name| lib.join(name))).collect();
    for name in &names {
        all.push(name.into());
        all.extend(folders.iter().map(|folder| folder.join(name)).filter(|path| path.exists()));
    }
    all
}

fn installed_folders() -> Vec<PathBuf> {
    let environments = PYTHON_VARIABLES.into_iter().filter_map(env::var_os).map(PathBuf::from);
    folders_below(Path::new("/"), &environments.collect::<Vec<_>>())
}

/// The folders of installed libraries: of packages, with one folder per version since ROCm 7.14,
/// and of wheels.
fn folders_below(root: &Path, environments: &[PathBuf]) -> Vec<PathBuf> {
    let opt = root.join("opt");
    let mut folders = vec![opt.join("rocm/lib")];
    let versions = newest_first(&opt.join("rocm"), "core-").into_iter();
    let older = newest_first(&opt, "rocm-").into_iter();
    folders.extend(versions.chain(older).map(|folder| folder.join("lib")));
    for lib in environments.iter().map(|environment| environment.join("lib")) {
        let pythons = newest_first(&lib, "python").into_iter();
        folders.extend(pythons.map(|python| python.join("site-packages/_rocm_sdk_core/lib")));
    }
    folders
}

/// The folders whose names are `prefix` and a version.
fn newest_first(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let version = |path: &Path| -> Option<Vec<u32>> {
        let version = path.file_name()?.to_str()?.strip_prefix(prefix)?;
        version.split('.').map(|number| number.parse().ok()).collect()
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        entries.filter_map(|path| version(&path).map(|version| (version, path))).collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, path)| path).collect()
}

/// The folder of a loaded library. Where it was found on the loader's search path, the memory map
/// of the process has it.
fn folder_of(library: &Path) -> Option<PathBuf> {
    let folder = library.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        return Some(folder.to_owned());
    }
    let name = library.to_str()?;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut paths = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let is_it = |path: &&Path| {
        path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(name))
    };
    Some(paths.find(is_it)?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(root: &Path, path: &str) -> PathBuf {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn every_layout_of_rocm_is_searched_newest_first() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let old = install(root, "opt/rocm-6.4.1/lib/libamdhip64.so.6");
        let seven = install(root, "opt/rocm/core-7.14/lib/libamdhip64.so.7");
        let ten = install(root, "opt/rocm/core-10.0/lib/libamdhip64.so.7");
        let next = install(root, "opt/rocm/core-10.1/lib/libamdhip64.so.8");
        install(root, "opt/rocm/core-latest/lib/libamdhip64.so.8");
        let site = "venv/lib/python3.12/site-packages/_rocm_sdk_core/lib";
        let wheel = install(root, &format!("{site}/libamdhip64.so.7"));
        let folders = folders_below(root, &[root.join("venv")]);
        let found = candidates("amdhip64", &["/named".into()], &folders);
        let place = |path: &Path| found.iter().position(|other| other == path).unwrap();
        let order = [
            Path::new("/named/lib/libamdhip64.so.8"),
            Path::new("/named/lib/libamdhip64.so"),
            Path::new("libamdhip64.so.8"),
            &next,
            Path::new("libamdhip64.so.7"),
            &ten,
            &seven,
            &wheel,
            Path::new("libamdhip64.so.6"),
            &old,
            Path::new("libamdhip64.so.5"),
            Path::new("libamdhip64.so"),
        ];
        assert!(order.map(place).is_sorted(), "{found:?}");
        assert_eq!(found.len(), 5 + 5 + 5, "{found:?}");
    }

    #[test]
    fn the_compiler_of_the_loaded_hip_is_first() {
        let root = tempfile::tempdir().unwrap();
        let compiler = install(root.path(), "lib/libhiprtc.so.7");
        let hip = root.path().join("lib/libamdhip64.so.7");
        assert_eq!(compiler_candidates(&["/named".into()], Some(&hip))[0], compiler);
        let found = compiler_candidates(&["/named".into()], None);
        assert_eq!(found[0], Path::new("/named/lib/libhiprtc.so.8"));
    }

    #[test]
    fn a_library_that_the_loader_found_has_a_folder() {
        let folder = folder_of(Path::new("libc.so"));
        assert!(folder.is_none_or(|folder| folder.is_absolute()));
        assert_eq!(folder_of(Path::new("libmissing.so.7")), None);
    }
}
