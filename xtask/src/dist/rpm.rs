//! The package for Fedora, RHEL and openSUSE. `rpmbuild` finds the libraries that the program
//! needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::archive;
use super::command::output_of;
use super::release::{Machine, NAME, Release, SUMMARY};

/// Settings by which the bytes of a package depend on its files only. The files are ready: nothing
/// is stripped, compressed or checked any more.
const SETTINGS: [&str; 9] = [
    "_buildhost localhost",
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "source_date_epoch_from_changelog 0",
    // gzip, xz and zstd are all read by RHEL 8; xz is the smallest.
    "_binary_payload w6.xzdio",
    "_build_id_links none",
    "debug_package %{nil}",
    "__os_install_post %{nil}",
    "__brp_check_rpaths %{nil}",
];

/// Packs a folder in the layout of a system.
pub(super) fn pack(release: &Release, folder: &Path, machine: Machine) -> Result<PathBuf> {
    archive::settle(release, folder)?;
    let name = format!("{NAME}-{}-1.{}.rpm", release.version, machine.name());
    let dist = folder.parent().context("a folder without a parent")?;
    let spec = dist.join(format!("{name}.spec"));
    let work = dist.join(format!("{name}.build"));
    fs::write(&spec, text(release, folder)?)?;
    let mut command = Command::new("rpmbuild");
    command.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    command.args(["-bb", "--quiet", "--target", &format!("{}-linux", machine.name())]);
    let folders = [("_topdir", &*work), ("_rpmdir", dist), ("staged", folder)];
    let folders = folders.map(|(name, path)| format!("{name} {}", path.display()));
    let names = [format!("_rpmfilename {name}")];
    let settings = SETTINGS.iter().copied();
    for setting in settings.chain(folders.iter().chain(&names).map(String::as_str)) {
        command.args(["--define", setting]);
    }
    output_of(command.arg(&spec))?;
    fs::remove_dir_all(&work)?;
    fs::remove_file(&spec)?;
    Ok(dist.join(name))
}

/// The description of the package.
fn text(release: &Release, folder: &Path) -> Result<String> {
    let Release { version, repository, .. } = release;
    let mut files = Vec::new();
    let documents = format!("usr/share/doc/{NAME}");
    for name in archive::names(folder, Path::new(""))? {
        let path = folder.join(&name);
        let name = name.to_str().context("a name that is not UTF-8")?;
        let is_folder = path.is_dir() && !path.is_symlink();
        match (is_folder, name == documents) {
            (true, true) => files.push(format!("%dir /{name}\n")),
            // Folders of the system belong to other packages.
            (true, false) => {}
            (false, _) => files.push(format!("/{name}\n")),
        }
    }
    Ok(format!(
        "Name: {NAME}\nVersion: {version}\nRelease: 1\nSummary: {SUMMARY}\n\
         License: MIT OR Apache-2.0\nURL: {repository}\n\n%description\n\
         A program and a server for GGUF models, with the APIs of OpenAI, Anthropic and Ollama.\n\n\
         %install\nmkdir -p \"%{{buildroot}}\"\ncp -a \"%{{staged}}/.\" \"%{{buildroot}}/\"\n\n\
         %files\n%defattr(-, root, root)\n{}",
        files.concat()
    ))
}
