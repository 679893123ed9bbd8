//! `cargo xtask dist`: makes the files of a release in `target/dist`. The guide is
//! docs/releases.md.

mod archive;
mod binaries;
mod check;
mod command;
mod licences;
mod manifests;
mod manual;
mod release;
mod sbom;
mod staging;

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Result;
use clap::{Args, ValueEnum};

use self::release::{LINUX, Release, WINDOWS};

/// The options of `cargo xtask dist`.
#[derive(Args)]
pub(crate) struct Options {
    /// Make these only: a list of linux, deb and windows [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<Artifact>,
    /// Link with the C library of this machine. The program starts on machines with its version or
    /// a newer one, instead of glibc 2.28
    #[arg(long)]
    native: bool,
    /// Check archives, licences, manifests and the installer with a stand-in for the program, and
    /// build nothing
    #[arg(long, conflicts_with_all = ["only", "native"])]
    check: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Artifact {
    /// The tarball for Linux.
    Linux,
    /// The package for Debian and Ubuntu.
    Deb,
    /// The zip for Windows.
    Windows,
}

/// Makes the files, or checks how they are made.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let release = Release::read(root)?;
    let mut out = io::stdout().lock();
    if options.check {
        for checked in check::all(&release)? {
            writeln!(out, "ok: {checked}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let is_made = |artifact| options.only.is_empty() || options.only.contains(&artifact);
    let dist = root.join("target/dist");
    let mut made = Vec::new();
    if is_made(Artifact::Linux) || is_made(Artifact::Deb) {
        let program = binaries::linux(&release, options.native)?;
        let texts = manual::Texts::of(&program)?;
        if is_made(Artifact::Linux) {
            let folder = staging::tarball(&release, &dist, &program, &texts)?;
            made.push(archive::tar(&release, &folder)?);
        }
        if is_made(Artifact::Deb) {
            let folder = staging::debian(&release, &dist, &program, &texts)?;
            made.push(archive::deb(&release, &folder)?);
        }
    }
    if is_made(Artifact::Windows) {
        let program = binaries::windows(&release)?;
        let folder = staging::zip(&release, &dist, &program)?;
        let zip = archive::zip(&release, &folder)?;
        made.extend(manifests::write(&release, &dist, &archive::sha256(&zip)?)?);
        made.push(zip);
    }
    for target in [LINUX, WINDOWS] {
        let path = dist.join(format!("rocmforge-{}-{target}.cdx.json", release.version));
        fs::write(&path, sbom::text(&release, target)?)?;
        made.push(path);
    }
    made.push(staging::installer(&release, &dist)?);
    made.push(archive::checksums(&dist, &made)?);
    for path in &made {
        let size = fs::metadata(path)?.len();
        writeln!(out, "{size:>12}  {}", path.display())?;
    }
    Ok(ExitCode::SUCCESS)
}
