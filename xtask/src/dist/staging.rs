//! The folders that become archives and packages.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::binaries::glibc_of;
use super::licences;
use super::manual::Texts;
use super::release::{Machine, NAME, PROGRAM, Release, WINDOWS};

/// The unit of systemd, and the folder that it names.
const SERVICE: &str = "packaging/rocmforge.service";
const SERVICE_PROGRAMS: &str = "/usr/local/bin/";

/// The inputs of the folders for Linux.
pub(super) struct Linux<'a> {
    pub(super) machine: Machine,
    pub(super) program: &'a Path,
    pub(super) texts: &'a Texts,
}

/// The folder of the tarball, which has the layout of a prefix such as `/usr/local`.
pub(super) fn tarball(release: &Release, dist: &Path, linux: &Linux<'_>) -> Result<PathBuf> {
    let folder = empty(dist.join(release.linux_name(linux.machine)))?;
    prefix(release, &folder, linux)?;
    copy(&release.root.join(SERVICE), &folder.join(format!("share/doc/{NAME}/{NAME}.service")))?;
    Ok(folder)
}

/// The folder of the package for Debian.
pub(super) fn debian(release: &Release, dist: &Path, linux: &Linux<'_>) -> Result<PathBuf> {
    let machine = linux.machine.debian();
    let folder = empty(dist.join(format!("{NAME}_{}_{machine}", release.version)))?;
    system(release, &folder, linux, "lib/systemd/system")?;
    let zsh = folder.join("usr/share/zsh/vendor-completions");
    fs::rename(folder.join("usr/share/zsh/site-functions"), zsh)?;
    let copyright = format!(
        "ROCmForge is under the terms of the MIT licence or of the Apache licence 2.0, as you \
         choose.\nBoth texts, and those of the libraries that it contains, are in this folder.\n\n\
         Source: {}\n",
        release.repository
    );
    write(&folder.join(format!("usr/share/doc/{NAME}/copyright")), copyright.as_bytes())?;
    let control = control(release, machine, &fs::read(linux.program)?);
    write(&folder.join("DEBIAN/control"), control.as_bytes())?;
    Ok(folder)
}

/// The folder of the package for Fedora, RHEL and openSUSE.
pub(super) fn red_hat(release: &Release, dist: &Path, linux: &Linux<'_>) -> Result<PathBuf> {
    let folder = empty(dist.join(format!("{NAME}-rpm-{}", linux.machine.name())))?;
    system(release, &folder, linux, "usr/lib/systemd/system")?;
    Ok(folder)
}

/// The folder of the zip for Windows.
pub(super) fn zip(release: &Release, dist: &Path, program: &Path) -> Result<PathBuf> {
    let folder = empty(dist.join(format!("{NAME}-{}-x86_64-windows", release.version)))?;
    copy(program, &folder.join(format!("{PROGRAM}.exe")))?;
    // Archives of this kind have no links.
    let second = format!("@\"%~dp0{PROGRAM}.exe\" %*\r\n");
    write(&folder.join(format!("{NAME}.cmd")), second.as_bytes())?;
    documents(release, &folder, WINDOWS)?;
    Ok(folder)
}

/// Writes the script that installs the tarball.
pub(super) fn installer(release: &Release, dist: &Path) -> Result<PathBuf> {
    let script = fs::read_to_string(release.root.join("packaging/install.sh"))?;
    let script =
        script.replace("@VERSION@", &release.version).replace("@REPOSITORY@", &release.repository);
    let path = dist.join("install.sh");
    write(&path, script.as_bytes())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// The files of a package of the system: a prefix in `/usr`, with the manual page compressed, and
/// the unit of systemd in the folder `units`.
fn system(release: &Release, folder: &Path, linux: &Linux<'_>, units: &str) -> Result<()> {
    prefix(release, &folder.join("usr"), linux)?;
    let pages = folder.join("usr/share/man/man1");
    let page = pages.join(format!("{PROGRAM}.1"));
    let packed = compressed(&fs::read(&page)?)?;
    fs::remove_file(&page)?;
    write(&pages.join(format!("{PROGRAM}.1.gz")), &packed)?;
    symlink(format!("{PROGRAM}.1.gz"), pages.join(format!("{NAME}.1.gz")))?;
    let service = fs::read_to_string(release.root.join(SERVICE))?;
    ensure!(service.contains(SERVICE_PROGRAMS), "{SERVICE} does not name {SERVICE_PROGRAMS}");
    let service = service.replace(SERVICE_PROGRAMS, "/usr/bin/");
    write(&folder.join(units).join(format!("{NAME}.service")), service.as_bytes())
}

/// The files below a prefix such as `/usr`.
fn prefix(release: &Release, prefix: &Path, linux: &Linux<'_>) -> Result<()> {
    let texts = linux.texts;
    let installed = prefix.join("bin").join(PROGRAM);
    copy(linux.program, &installed)?;
    fs::set_permissions(&installed, fs::Permissions::from_mode(0o755))?;
    symlink(PROGRAM, prefix.join("bin").join(NAME))?;
    let share = prefix.join("share");
    for (path, text) in [
        (format!("man/man1/{PROGRAM}.1"), &texts.page),
        (format!("bash-completion/completions/{PROGRAM}"), &texts.bash),
        (format!("zsh/site-functions/_{PROGRAM}"), &texts.zsh),
        (format!("fish/vendor_completions.d/{PROGRAM}.fish"), &texts.fish),
    ] {
        write(&share.join(path), text.as_bytes())?;
    }
    documents(release, &share.join("doc").join(NAME), linux.machine.target())
}

fn documents(release: &Release, folder: &Path, target: &str) -> Result<()> {
    for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "NOTICE"] {
        copy(&release.root.join(name), &folder.join(name))?;
    }
    let licences = licences::text(release, target)?;
    write(&folder.join(licences::FILE), licences.as_bytes())
}

/// The description of the package. The program itself tells what it needs.
fn control(release: &Release, machine: &str, program: &[u8]) -> String {
    let (major, minor) = glibc_of(program);
    let mut needs = vec![format!("libc6 (>= {major}.{minor})")];
    let name = b"libgcc_s.so.1";
    if program.windows(name.len()).any(|window| window == name) {
        needs.push("libgcc-s1 | libgcc1".to_owned());
    }
    format!(
        "Package: {NAME}\nVersion: {}\nArchitecture: {machine}\nMaintainer: The ROCmForge developers \
         <{}>\nDepends: {}\nSuggests: hip-runtime-amd\nSection: science\nPriority: optional\n\
         Homepage: {}\nDescription: runs language models on AMD GPUs and on any CPU\n \
         A program and a server for GGUF models, with the APIs of OpenAI, Anthropic and Ollama.\n",
        release.version,
        release.repository,
        needs.join(", "),
        release.repository,
    )
}

/// Compresses bytes with gzip, without a time.
fn compressed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut command = Command::new("gzip");
    command.args(["--no-name", "--best"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("could not start gzip")?;
    let mut stdin = child.stdin.take().context("gzip has no input")?;
    let bytes = bytes.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "gzip failed ({})", output.status);
    writer.join().map_err(|_| anyhow::anyhow!("gzip: the input was not written"))??;
    Ok(output.stdout)
}

pub(super) fn empty(folder: PathBuf) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    write(to, &fs::read(from).with_context(|| from.display().to_string())?)
}

pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(path, bytes).with_context(|| path.display().to_string())
}
