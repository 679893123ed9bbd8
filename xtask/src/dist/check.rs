//! Checks of a release without its programs, which take minutes to build: a script stands in for
//! them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    archive,
    command::output_of,
    licences, manifests,
    manual::Texts,
    release::{LINUX, Release, WINDOWS},
    sbom, staging,
};

/// Answers the arguments that a release calls, and names a symbol version of the C library.
const STAND_IN: &str = "\
#!/bin/sh
# GLIBC_2.28
case \"$1\" in
    -V) echo 'rf-cli stand-in' ;;
    --help) printf 'Runs models.\\n\\nCommands:\\n  run  Answer\\n' ;;
    *) echo \"text of $*\" ;;
esac
";

/// Runs all checks, and returns a line for each.
pub(super) fn all(release: &Release) -> Result<Vec<String>> {
    let base = release.root.join("target/dist-check");
    if base.exists() {
        fs::remove_dir_all(&base).with_context(|| base.display().to_string())?;
    }
    let one = dist(release, &base.join("one"), 1_000_000_000)?;
    let two = dist(release, &base.join("another folder"), 1_700_000_000)?;
    let mut checked = Vec::new();
    for (one, two) in one.iter().zip(&two) {
        let name = one.file_name().unwrap_or_default().to_string_lossy();
        ensure!(fs::read(one)? == fs::read(two)?, "{name} differs between two folders");
        checked.push(format!("{name} is the same in two folders"));
    }
    checked.push(installer(release, &base, &one)?);
    checked.push(package_manifests(release, &base)?);
    for target in [LINUX, WINDOWS] {
        let lines = licences::text(release, target)?.lines().count();
        checked.push(format!("{target}: {lines} lines of licences, none is missing"));
        checked.push(bill(release, target)?);
    }
    Ok(checked)
}

/// Makes the archives with the stand-in, from files of the time `epoch`.
fn dist(release: &Release, dist: &Path, epoch: u64) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(dist)?;
    let program = dist.join("stand-in");
    fs::write(&program, STAND_IN)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    let texts = Texts::of(&program)?;
    let tarball = staging::tarball(release, dist, &program, &texts)?;
    let debian = staging::debian(release, dist, &program, &texts)?;
    let zip = staging::zip(release, dist, &program)?;
    for folder in [&tarball, &debian, &zip] {
        let mut find = Command::new("find");
        find.arg(folder).args(["-exec", "touch", "-h", "-d", &format!("@{epoch}"), "{}", "+"]);
        output_of(&mut find)?;
    }
    Ok(vec![
        archive::tar(release, &tarball)?,
        archive::deb(release, &debian)?,
        archive::zip(release, &zip)?,
    ])
}

/// Installs the tarball, and a damaged one, which the script refuses.
fn installer(release: &Release, base: &Path, made: &[PathBuf]) -> Result<String> {
    let dist = base.join("one");
    let script = staging::installer(release, &dist)?;
    archive::checksums(&dist, made)?;
    let prefix = base.join("prefix");
    let install = || {
        let mut command = Command::new("sh");
        command.arg(&script).arg("--from").arg(&dist).arg("--prefix").arg(&prefix);
        output_of(&mut command)
    };
    install()?;
    let answer = output_of(Command::new(prefix.join("bin/rocmforge")).arg("-V"))?;
    ensure!(answer == "rf-cli stand-in\n", "the installed program says {answer}");
    let tarball = &made[0];
    let mut bytes = fs::read(tarball)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(tarball, bytes)?;
    let refused = install().err().context("the installer takes a damaged tarball")?;
    ensure!(refused.to_string().contains("checksum"), "the installer says {refused}");
    Ok("install.sh installs the tarball, and refuses a damaged one".to_owned())
}

fn package_manifests(release: &Release, base: &Path) -> Result<String> {
    let sha256 = "0123456789abcdef".repeat(4);
    let paths = manifests::write(release, base, &sha256)?;
    for path in &paths {
        let text = fs::read_to_string(path)?;
        let name = path.display();
        ensure!(text.contains(&release.version), "{name} does not name the version");
        if path.extension().is_some_and(|extension| extension == "json") {
            let manifest: Value = serde_json::from_str(&text).with_context(|| name.to_string())?;
            let file = &manifest["architecture"]["64bit"];
            ensure!(file["hash"] == *sha256, "{name}: {file}");
            continue;
        }
        // This subset of YAML is a list of keys and values.
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let is_entry = line.contains(": ") || line.ends_with(':') || line.starts_with("- ");
            ensure!(is_entry && !line.contains('\t'), "{name}: not a key and a value: {line}");
        }
    }
    Ok(format!("{} manifests for winget and scoop", paths.len()))
}

fn bill(release: &Release, target: &str) -> Result<String> {
    let bill: Value = serde_json::from_str(&sbom::text(release, target)?)?;
    let components = bill["components"].as_array().context("no components")?;
    for one in release.crates(target)? {
        let (name, version) = (&one.name, &one.version);
        ensure!(one.is_ours || one.sha256.is_some(), "{name} {version} has no checksum");
    }
    Ok(format!("{target}: a bill of materials of {} components", components.len()))
}
