//! `cargo xtask dist`: makes the files of a release in `target/dist`. The guide is
//! docs/releases.md.

mod archive;
mod binaries;
mod check;
mod command;
mod licences;
mod manifests;
mod manual;
mod page;
mod release;
mod rpm;
mod sbom;
mod signature;
mod staging;
mod wheel;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use self::manual::Texts;
use self::release::{Machine, Release, WINDOWS};
use self::staging::Linux;
use self::wheel::Platform;

/// The options of `cargo xtask dist`.
#[derive(Args)]
pub(crate) struct Options {
    /// Make these only: a list of linux, deb, rpm, wheel and windows [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<Artifact>,
    /// The processors of the files for Linux: a list of `x86_64` and `aarch64` [default: both]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    machine: Vec<Machine>,
    /// Sign the checksums with this secret key of minisign
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// Link with the C library of this machine. The program starts on machines with its version or
    /// a newer one, instead of glibc 2.28
    #[arg(long)]
    native: bool,
    /// Check archives, licences, manifests and the installer with a stand-in for the program, and
    /// build nothing
    #[arg(long, conflicts_with_all = ["only", "machine", "sign", "native"])]
    check: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Artifact {
    /// The tarballs for Linux.
    Linux,
    /// The package for Debian and Ubuntu.
    Deb,
    /// The package for Fedora, RHEL and openSUSE.
    Rpm,
    /// The wheels for Python, for every system that is made.
    Wheel,
    /// The zip for Windows.
    Windows,
}

impl Artifact {
    const OF_LINUX: [Self; 4] = [Self::Linux, Self::Deb, Self::Rpm, Self::Wheel];
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
    fs::create_dir_all(&dist)?;
    let mut made = Vec::new();
    if Artifact::OF_LINUX.into_iter().any(is_made) {
        let machines =
            if options.machine.is_empty() { &Machine::ALL[..] } else { &options.machine[..] };
        made.extend(linux(&release, &dist, machines, options.native, is_made)?);
    }
    if is_made(Artifact::Windows) {
        let program = binaries::windows(&release)?;
        let folder = staging::zip(&release, &dist, &program)?;
        let zip = archive::zip(&release, &folder)?;
        made.extend(manifests::windows(&release, &dist, &archive::sha256(&zip)?)?);
        made.push(zip);
        if is_made(Artifact::Wheel) {
            let folder = wheel::stage(&release, &dist, Platform::Windows, &program)?;
            made.push(archive::wheel(&release, &folder)?);
        }
    }
    for target in Machine::ALL.map(Machine::target).into_iter().chain([WINDOWS]) {
        let path = dist.join(format!("rocmforge-{}-{target}.cdx.json", release.version));
        fs::write(&path, sbom::text(&release, target)?)?;
        made.push(path);
    }
    made.push(staging::installer(&release, &dist)?);
    let checksums = archive::checksums(&dist, &made)?;
    if let Some(key) = &options.sign {
        made.push(signature::sign(&release, &checksums, key)?);
    }
    made.push(checksums);
    for path in &made {
        let size = fs::metadata(path)?.len();
        writeln!(out, "{size:>12}  {}", path.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the files for Linux.
fn linux(
    release: &Release,
    dist: &Path,
    machines: &[Machine],
    native: bool,
    is_made: impl Fn(Artifact) -> bool,
) -> Result<Vec<PathBuf>> {
    let programs: Vec<_> = machines
        .iter()
        .map(|&machine| Ok((machine, binaries::linux(release, machine, native)?)))
        .collect::<Result<_>>()?;
    // This machine runs the program for its own processor only.
    let own = programs.iter().find(|(machine, _)| machine.name() == env::consts::ARCH);
    let texts = match own {
        Some((_, program)) => Texts::of(program)?,
        None => {
            bail!("--machine has to contain {}, whose program prints the manual", env::consts::ARCH)
        }
    };
    let mut made = Vec::new();
    let mut sums = Vec::new();
    for (machine, program) in &programs {
        let linux = Linux { machine: *machine, program, texts: &texts };
        if is_made(Artifact::Linux) {
            let tarballs = archive::tar(release, &staging::tarball(release, dist, &linux)?)?;
            sums.push((*machine, archive::sha256(&tarballs.xz)?));
            made.extend([tarballs.xz, tarballs.gz]);
        }
        if is_made(Artifact::Deb) {
            made.push(archive::deb(release, &staging::debian(release, dist, &linux)?)?);
        }
        if is_made(Artifact::Rpm) {
            let folder = staging::red_hat(release, dist, &linux)?;
            made.push(rpm::pack(release, &folder, *machine)?);
        }
        if is_made(Artifact::Wheel) {
            let folder = wheel::stage(release, dist, Platform::Linux(*machine), program)?;
            made.push(archive::wheel(release, &folder)?);
        }
    }
    if !sums.is_empty() {
        made.extend(manifests::linux(release, dist, &sums)?);
    }
    Ok(made)
}
