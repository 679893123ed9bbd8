//! The manifests of winget and scoop, which install the zip.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::json;

use super::release::{PROGRAM, Release};

/// The identifier of the package in winget.
const WINGET: &str = "ROCmForge.ROCmForge";
/// The version of winget's schemas.
const SCHEMA: &str = "1.6.0";

const DESCRIPTION: &str = "Runs GGUF language models on AMD GPUs and on any CPU";

/// Writes the manifests of the zip with this checksum.
pub(super) fn write(release: &Release, dist: &Path, sha256: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for (name, text) in winget(release, sha256) {
        paths.push((dist.join(name), text));
    }
    paths.push((dist.join("rocmforge.scoop.json"), scoop(release, sha256)?));
    for (path, text) in &paths {
        fs::write(path, text)?;
    }
    Ok(paths.into_iter().map(|(path, _)| path).collect())
}

fn folder(version: &str) -> String {
    format!("rocmforge-{version}-x86_64-windows")
}

fn url(release: &Release, version: &str) -> String {
    format!("{}/releases/download/v{version}/{}.zip", release.repository, folder(version))
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
         License: MIT OR Apache-2.0\nShortDescription: {DESCRIPTION}\n"
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
        "description": DESCRIPTION,
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
