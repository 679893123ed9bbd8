//! Builds the programs of a release.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use super::command::output_of;
use super::release::{Machine, PROGRAM, Release, WINDOWS};

/// The version of the C library that the program for Linux needs at most: that of Debian 10 and
/// RHEL 8.
pub(super) const MOST_GLIBC: (u32, u32) = (2, 28);

/// The linker that knows the symbols of old C libraries, from `PyPI`. It brings ziglang.
const ZIGBUILD: [&str; 2] = ["cargo-zigbuild==0.24.1", "ziglang==0.15.2"];

/// Builds the program for Linux, for [`MOST_GLIBC`] unless it is `native`.
pub(super) fn linux(release: &Release, machine: Machine, native: bool) -> Result<PathBuf> {
    let target = machine.target();
    let mut command = cargo(release);
    if native {
        command.args(["build", "--target", target]);
    } else {
        let tools = zigbuild(&release.root)?;
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = [tools].into_iter().chain(env::split_paths(&path));
        command.env("PATH", env::join_paths(folders)?);
        let (major, minor) = MOST_GLIBC;
        command.args(["zigbuild", "--target", &format!("{target}.{major}.{minor}")]);
    }
    build(command)?;
    let program = release.root.join("target").join(target).join("release").join(PROGRAM);
    let needed = glibc_of(&fs::read(&program)?);
    let (major, minor) = needed;
    ensure!(
        native || needed <= MOST_GLIBC,
        "{} needs glibc {major}.{minor}, at most {MOST_GLIBC:?} is allowed",
        program.display()
    );
    Ok(program)
}

/// Builds the program for Windows, with the linker and the C compiler of mingw-w64.
pub(super) fn windows(release: &Release) -> Result<PathBuf> {
    let mut command = cargo(release);
    command.args(["build", "--target", WINDOWS]);
    build(command)?;
    Ok(release.root.join("target").join(WINDOWS).join("release").join(format!("{PROGRAM}.exe")))
}

/// Cargo, with settings by which the folder and the time of a build leave no trace in the program.
fn cargo(release: &Release) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(&release.root);
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cargo")))
        .unwrap_or_default();
    let mut flags: Vec<String> = env::var("RUSTFLAGS").ok().into_iter().collect();
    for (folder, name) in [(&*release.root, "/rocmforge"), (&*home, "/cargo")] {
        flags.push(format!("--remap-path-prefix={}={name}", folder.display()));
    }
    command.env("RUSTFLAGS", flags.join(" "));
    command.env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    command
}

fn build(mut command: Command) -> Result<()> {
    command.args(["--release", "--locked", "--package", PROGRAM]);
    let status = command.status().context("could not start cargo")?;
    ensure!(status.success(), "cargo failed ({status}): {command:?}");
    Ok(())
}

/// Installs cargo-zigbuild below `target`, and returns the folder of its programs.
fn zigbuild(root: &Path) -> Result<PathBuf> {
    let venv = root.join("target/dist-tools");
    let programs = venv.join("bin");
    if !programs.join("cargo-zigbuild").is_file() {
        output_of(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        let mut pip = Command::new(programs.join("pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(ZIGBUILD);
        if let Err(error) = output_of(&mut pip) {
            bail!("{error}\nwithout {}, use --native", ZIGBUILD[0]);
        }
    }
    Ok(programs)
}

/// The newest version of the C library among the names of symbol versions in a program.
pub(super) fn glibc_of(program: &[u8]) -> (u32, u32) {
    const PREFIX: &[u8] = b"GLIBC_";
    let version = |start: usize| {
        let text: String = program[start + PREFIX.len()..]
            .iter()
            .take(8)
            .map_while(|&byte| (byte.is_ascii_digit() || byte == b'.').then_some(byte as char))
            .collect();
        let (major, rest) = text.split_once('.')?;
        let minor = rest.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let starts = program.windows(PREFIX.len()).enumerate();
    let starts = starts.filter(|(_, window)| *window == PREFIX).map(|(start, _)| start);
    starts.filter_map(version).max().unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_version_decides() {
        let names = b"\0GLIBC_2.2.5\0GLIBC_2.28\0GLIBC_2.9\0GLIBC_PRIVATE\0GCC_3.0\0";
        assert_eq!(glibc_of(names), (2, 28));
        assert_eq!(glibc_of(b"static"), (0, 0));
    }
}
