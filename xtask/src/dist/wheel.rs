//! The wheel for Python's package index. It contains the program as it is, and a module that starts
//! it for `uvx rocmforge` and `python -m rocmforge`.
//!
//! The format: <https://packaging.python.org/en/latest/specifications/binary-distribution-format/>.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::release::{Machine, NAME, PROGRAM, Release, SUMMARY, WINDOWS};
use super::staging::{copy, empty, write};
use super::{archive, binaries, licences};

/// The sources of the module.
const MODULE: &str = "packaging/python";

/// The files that say what else is in the folder of the description.
const TEXTS: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "NOTICE"];

/// The platform of a wheel.
#[derive(Clone, Copy)]
pub(super) enum Platform {
    Linux(Machine),
    Windows,
}

impl Platform {
    /// The systems on which the program starts. It needs this version of glibc or a newer one.
    fn tag(self, program: &[u8]) -> String {
        match self {
            Self::Linux(machine) => {
                let (major, minor) = binaries::glibc_of(program).max(binaries::MOST_GLIBC);
                format!("py3-none-manylinux_{major}_{minor}_{}", machine.name())
            }
            Self::Windows => "py3-none-win_amd64".to_owned(),
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::Linux(machine) => machine.target(),
            Self::Windows => WINDOWS,
        }
    }

    fn program(self) -> String {
        match self {
            Self::Linux(_) => PROGRAM.to_owned(),
            Self::Windows => format!("{PROGRAM}.exe"),
        }
    }
}

/// Makes the folder that becomes a wheel.
pub(super) fn stage(
    release: &Release,
    dist: &Path,
    platform: Platform,
    program: &Path,
) -> Result<PathBuf> {
    let version = version(release)?;
    let tag = platform.tag(&fs::read(program)?);
    let folder = empty(dist.join(format!("{NAME}-{version}-{tag}")))?;
    let about = folder.join(format!("{NAME}-{version}.dist-info"));
    let installed = folder.join(format!("{NAME}-{version}.data/scripts")).join(platform.program());
    copy(program, &installed)?;
    // pip installs a program as executable if it is executable in the wheel.
    fs::set_permissions(&installed, fs::Permissions::from_mode(0o755))?;
    for name in ["__init__.py", "__main__.py"] {
        copy(&release.root.join(MODULE).join(name), &folder.join(NAME).join(name))?;
    }
    let readme = fs::read_to_string(release.root.join("README.md"))?;
    for (name, text) in [
        ("METADATA", metadata(release, version, &readme)),
        (
            "WHEEL",
            format!("Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: false\nTag: {tag}\n"),
        ),
        ("entry_points.txt", format!("[console_scripts]\n{NAME} = {NAME}:main\n")),
    ] {
        write(&about.join(name), text.as_bytes())?;
    }
    let licences = licences::text(release, platform.target())?;
    write(&about.join("licenses").join(licences::FILE), licences.as_bytes())?;
    for name in TEXTS {
        copy(&release.root.join(name), &about.join("licenses").join(name))?;
    }
    let record = format!("{NAME}-{version}.dist-info/RECORD");
    write(&folder.join(&record), record_of(&folder, &record)?.as_bytes())?;
    Ok(folder)
}

/// The version in the form of Python, which has no `-`.
fn version(release: &Release) -> Result<&str> {
    let version = &*release.version;
    let is_plain = version.chars().all(|c| c.is_ascii_digit() || c == '.');
    ensure!(is_plain, "{version}: wheels are made of versions without a suffix");
    Ok(version)
}

fn metadata(release: &Release, version: &str, readme: &str) -> String {
    let repository = &release.repository;
    format!(
        "Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\n\
         Home-page: {repository}\nLicense: MIT OR Apache-2.0\nRequires-Python: >=3.10\n\
         Project-URL: Changelog, {repository}/blob/main/CHANGELOG.md\n\
         Description-Content-Type: text/markdown\n\n{readme}"
    )
}

/// A line for each file: its path, checksum and size. The list itself has neither.
fn record_of(folder: &Path, record: &str) -> Result<String> {
    let mut lines = Vec::new();
    for name in archive::files(folder)? {
        let path = folder.join(&name);
        let name = name.to_str().context("a name that is not UTF-8")?;
        let sum = archive::sha256(&path)?;
        let bytes: Vec<u8> = (0..sum.len())
            .step_by(2)
            .map(|start| u8::from_str_radix(&sum[start..start + 2], 16))
            .collect::<Result<_, _>>()?;
        let sum = URL_SAFE_NO_PAD.encode(bytes);
        lines.push(format!("{name},sha256={sum},{}\n", fs::metadata(&path)?.len()));
    }
    lines.push(format!("{record},,\n"));
    Ok(lines.concat())
}
