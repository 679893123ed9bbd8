//! The manifests of package managers: winget and scoop install the zip, Homebrew and Arch Linux the
//! tarballs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use super::release::{Machine, NAME, PROGRAM, Release, SUMMARY};

/// The identifier of the package in winget.
const WINGET: &str = "ROCmForge.ROCmForge";
/// The version of winget's schemas.
const SCHEMA: &str = "1.6.0";

/// Writes the manifests of the zip with this checksum.
pub(super) fn windows(release: &Release, dist: &Path, sha256: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::from(winget(release, sha256));
    files.push((format!("{NAME}.scoop.json"), scoop(release, sha256)?));
    write(dist, &files)
}

/// Writes the manifests of the tarballs with these checksums.
pub(super) fn linux(
    release: &Release,
    dist: &Path,
    sha256: &[(Machine, String)],
) -> Result<Vec<PathBuf>> {
    write(
        dist,
        &[
            (format!("{NAME}.rb"), homebrew(release, sha256)),
            ("PKGBUILD".to_owned(), arch_linux(release, sha256)),
        ],
    )
}

fn write(dist: &Path, files: &[(String, String)]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for (name, text) in files {
        let path = dist.join(name);
        fs::write(&path, text)?;
        paths.push(path);
    }
    Ok(paths)
}

fn folder(version: &str) -> String {
    format!("rocmforge-{version}-x86_64-windows")
}

fn url(release: &Release, version: &str) -> String {
    format!("{}/releases/download/v{version}/{}.zip", release.repository, folder(version))
}

fn tarball_url(release: &Release, machine: Machine) -> String {
    let Release { repository, version, .. } = release;
    format!("{repository}/releases/download/v{version}/{}.tar.xz", release.linux_name(machine))
}

/// The three files of a package: version, installer and description.
fn winget(release: &Release, sha256: &str) -> [(String, String); 3] {
    let Release { version, repository, .. } = release;
    let folder = folder(version);
    let file = |kind: &str, body: &str| {
        format!(
            "# yaml-language-server: $schema=https://aka.ms/winget-manifest.{kind}.{SCHEMA}.schema.json\n\
             PackageIdentifier: {WINGET}\nPackageVersion: {version}\n{body}ManifestType: {kind}\n\
             ManifestVersion: {SCHEMA}\n"
        )
    };
    let installer = format!(
        "InstallerType: zip\nNestedInstallerType: portable\nNestedInstallerFiles:\n\
         - RelativeFilePath: {folder}\\{PROGRAM}.exe\n  PortableCommandAlias: rocmforge\n\
         Commands:\n- rocmforge\nInstallers:\n- Architecture: x64\n  InstallerUrl: {}\n  \
         InstallerSha256: {}\n",
        url(release, version),
        sha256.to_uppercase()
    );
    let locale = format!(
        "PackageLocale: en-US\nPublisher: ROCmForge\nPackageName: ROCmForge\nPackageUrl: {repository}\n\
         License: MIT OR Apache-2.0\nShortDescription: {SUMMARY}\n"
    );
    [
        (format!("{WINGET}.yaml"), file("version", "DefaultLocale: en-US\n")),
        (format!("{WINGET}.installer.yaml"), file("installer", &installer)),
        (format!("{WINGET}.locale.en-US.yaml"), file("defaultLocale", &locale)),
    ]
}

fn scoop(release: &Release, sha256: &str) -> Result<String> {
    let version = &release.version;
    let program = format!("{PROGRAM}.exe");
    let manifest = json!({
        "version": version,
        "description": SUMMARY,
        "homepage": release.repository,
        "license": "MIT|Apache-2.0",
        "architecture": { "64bit": { "url": url(release, version), "hash": sha256 } },
        "extract_dir": folder(version),
        "bin": [program, [program, "rocmforge"]],
        "checkver": "github",
        "autoupdate": {
            "architecture": { "64bit": { "url": url(release, "$version") } },
            "extract_dir": folder("$version"),
        },
    });
    Ok(serde_json::to_string_pretty(&manifest)? + "\n")
}

/// The formula of Homebrew, for Linux only.
fn homebrew(release: &Release, sha256: &[(Machine, String)]) -> String {
    let Release { version, repository, .. } = release;
    let mut sources = Vec::new();
    for (machine, sha256) in sha256 {
        let processor = match machine {
            Machine::X86_64 => "intel",
            Machine::Aarch64 => "arm",
        };
        let url = tarball_url(release, *machine);
        sources.push(format!(
            "  on_{processor} do\n    url \"{url}\"\n    sha256 \"{sha256}\"\n  end\n\n"
        ));
    }
    let sources = sources.concat();
    format!(
        "class Rocmforge < Formula\n  desc \"{SUMMARY}\"\n  homepage \"{repository}\"\n  \
         version \"{version}\"\n  license any_of: [\"MIT\", \"Apache-2.0\"]\n\n{sources}  \
         depends_on :linux\n\n  def install\n    prefix.install Dir[\"*\"]\n  end\n\n  test do\n    \
         assert_match version.to_s, shell_output(\"#{{bin}}/{PROGRAM} -V\")\n  end\nend\n"
    )
}

/// The recipe of the package `rocmforge-bin` in the Arch User Repository.
fn arch_linux(release: &Release, sha256: &[(Machine, String)]) -> String {
    let Release { version, repository, .. } = release;
    let machines: Vec<_> =
        sha256.iter().map(|(machine, _)| format!("'{}'", machine.name())).collect();
    let mut sources = Vec::new();
    for (machine, sha256) in sha256 {
        let (name, url) = (machine.name(), tarball_url(release, *machine));
        sources.push(format!("source_{name}=('{url}')\nsha256sums_{name}=('{sha256}')\n"));
    }
    let sources = sources.concat();
    format!(
        "pkgname={NAME}-bin\npkgver={version}\npkgrel=1\npkgdesc='{SUMMARY}'\narch=({})\n\
         url='{repository}'\nlicense=('MIT OR Apache-2.0')\ndepends=('glibc' 'gcc-libs')\n\
         optdepends=('hip-runtime-amd: AMD GPUs')\nprovides=('{NAME}')\nconflicts=('{NAME}')\n\
         options=('!strip')\n{sources}\npackage() {{\n    install -d \"$pkgdir/usr\"\n    \
         cp -a \"$srcdir/{NAME}-$pkgver-$CARCH-linux/.\" \"$pkgdir/usr\"\n    \
         install -d \"$pkgdir/usr/lib/systemd/system\"\n    \
         sed 's|/usr/local/bin/|/usr/bin/|' \"$pkgdir/usr/share/doc/{NAME}/{NAME}.service\" \
         >\"$pkgdir/usr/lib/systemd/system/{NAME}.service\"\n}}\n",
        machines.join(" ")
    )
}
