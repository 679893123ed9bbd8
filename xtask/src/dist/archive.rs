//! Archives whose bytes depend on nothing but their files: sorted, owned by root, with the time of
//! the commit.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};

use super::command::output_of;
use super::release::Release;

/// A folder as archives with the same files.
pub(super) struct Tarballs {
    /// `FOLDER.tar.xz`, which is about a quarter smaller.
    pub(super) xz: PathBuf,
    /// `FOLDER.tar.gz`, for small systems that have no xz.
    pub(super) gz: PathBuf,
}

/// Packs a folder.
pub(super) fn tar(release: &Release, folder: &Path) -> Result<Tarballs> {
    let (parent, name) = parts(folder)?;
    let tar = with_suffix(folder, ".tar");
    let mut command = Command::new("tar");
    command.args(["--create", "--format=ustar", "--sort=name", "--numeric-owner"]);
    command.args(["--owner=0", "--group=0", "--mode=u+rwX,go+rX,go-w"]);
    command.arg(format!("--mtime=@{}", release.epoch)).arg("--file").arg(&tar);
    output_of(command.arg("--directory").arg(parent).arg(name))?;
    // The filter packs code of x86 better, and every version of xz knows it. With more threads the
    // bytes would be others.
    let mut xz = Command::new("xz");
    xz.args(["--x86", "--lzma2=preset=9e", "--threads=1", "--keep", "--force"]);
    output_of(xz.arg(&tar))?;
    // Without the name and the time of the file.
    output_of(Command::new("gzip").args(["--no-name", "--best", "--force"]).arg(&tar))?;
    Ok(Tarballs { xz: with_suffix(folder, ".tar.xz"), gz: with_suffix(folder, ".tar.gz") })
}

/// Packs a folder as `FOLDER.zip`.
pub(super) fn zip(release: &Release, folder: &Path) -> Result<PathBuf> {
    let (parent, name) = parts(folder)?;
    settle(release, folder)?;
    zip_names(parent, &names(folder, Path::new(name))?, with_suffix(folder, ".zip"))
}

/// Packs what is in a folder as `FOLDER.whl`.
pub(super) fn wheel(release: &Release, folder: &Path) -> Result<PathBuf> {
    settle(release, folder)?;
    zip_names(folder, &files(folder)?, with_suffix(folder, ".whl"))
}

fn zip_names(folder: &Path, names: &[OsString], zip: PathBuf) -> Result<PathBuf> {
    // zip would add to it.
    fs::remove_file(&zip).ok();
    let mut command = Command::new("zip");
    // Times of zip are local.
    command.current_dir(folder).env("TZ", "UTC").args(["-X", "-q", "-9"]).arg(&zip).args(names);
    output_of(&mut command)?;
    Ok(zip)
}

/// Packs a folder with `DEBIAN/control` as `FOLDER.deb`.
pub(super) fn deb(release: &Release, folder: &Path) -> Result<PathBuf> {
    let deb = with_suffix(folder, ".deb");
    settle(release, folder)?;
    let mut command = Command::new("dpkg-deb");
    command.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    command.args(["--root-owner-group", "-Zxz", "--build"]).arg(folder).arg(&deb);
    output_of(&mut command)?;
    Ok(deb)
}

/// Writes `SHA256SUMS` of files in one folder.
pub(super) fn checksums(folder: &Path, files: &[PathBuf]) -> Result<PathBuf> {
    let mut lines = Vec::new();
    for file in files {
        let (_, name) = parts(file)?;
        lines.push(format!("{}  {}\n", sha256(file)?, Path::new(name).display()));
    }
    lines.sort_by(|one, other| one[64..].cmp(&other[64..]));
    let path = folder.join("SHA256SUMS");
    fs::write(&path, lines.concat())?;
    Ok(path)
}

/// The checksum of a file in hexadecimal.
pub(super) fn sha256(file: &Path) -> Result<String> {
    let text = output_of(Command::new("sha256sum").arg("--binary").arg(file))?;
    let sum = text.split_whitespace().next().unwrap_or_default();
    ensure!(sum.len() == 64, "the output of sha256sum: {text}");
    Ok(sum.to_owned())
}

/// Gives all files of a folder the time of the commit, and rights that do not depend on the umask.
pub(super) fn settle(release: &Release, folder: &Path) -> Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(release.epoch);
    for name in names(folder, Path::new(""))?.iter().rev() {
        let path = folder.join(name);
        if path.is_symlink() {
            let touch = format!("@{}", release.epoch);
            let mut command = Command::new("touch");
            output_of(command.args(["--no-dereference", "--date", &touch]).arg(&path))?;
            continue;
        }
        let metadata = fs::metadata(&path)?;
        let is_program = metadata.is_dir() || metadata.permissions().mode() & 0o100 != 0;
        let mode = if is_program { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        File::open(&path)?.set_modified(time)?;
    }
    Ok(())
}

/// The folder `folder`, which is called `name`, and all that is in it, sorted.
pub(super) fn names(folder: &Path, name: &Path) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    list(folder, name, &mut names)?;
    names.sort();
    Ok(names)
}

/// The files in a folder, by their sorted paths within it.
pub(super) fn files(folder: &Path) -> Result<Vec<OsString>> {
    let mut names = names(folder, Path::new(""))?;
    names.retain(|name| folder.join(name).is_file());
    Ok(names)
}

/// Adds the folder `folder`, which is called `name`, and all that is in it.
fn list(folder: &Path, name: &Path, names: &mut Vec<OsString>) -> Result<()> {
    names.push(name.as_os_str().to_owned());
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = name.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &name, names)?;
        } else {
            names.push(name.into_os_string());
        }
    }
    Ok(())
}

fn parts(path: &Path) -> Result<(&Path, &std::ffi::OsStr)> {
    path.parent().zip(path.file_name()).with_context(|| format!("no name: {}", path.display()))
}

/// A version has dots, so this is no extension.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
