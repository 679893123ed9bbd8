//! The version, the date and the dependencies of a release.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use clap::ValueEnum;
use serde::Deserialize;

use super::command::output_of;
use crate::revision::git;

/// The target of the program for Windows.
pub(super) const WINDOWS: &str = "x86_64-pc-windows-gnu";

/// A kind of processor that programs for Linux are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Machine {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

impl Machine {
    pub(super) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The name of `uname -m`, which rpm, wheels and Arch Linux use, too.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The name in Debian.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The target of rustc.
    pub(super) fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
        }
    }
}

/// The crate of the program.
pub(super) const PROGRAM: &str = "rf-cli";

/// The name of the packages, and the second name of the program.
pub(super) const NAME: &str = "rocmforge";

/// The summary of the program in packages.
pub(super) const SUMMARY: &str = "Runs GGUF language models on AMD GPUs and on any CPU";

/// The facts that all files of a release have in common.
pub(super) struct Release {
    pub(super) root: PathBuf,
    /// The version of the program.
    pub(super) version: String,
    /// The URL of the repository.
    pub(super) repository: String,
    /// The time of the commit, in seconds since 1970.
    pub(super) epoch: u64,
    /// The time of the commit in the form of RFC 3339.
    pub(super) time: String,
    /// The checksums of crates in Cargo.lock, by name and version.
    checksums: BTreeMap<(String, String), String>,
}

impl Release {
    /// The name of the archive of a program for Linux, without its suffix.
    pub(super) fn linux_name(&self, machine: Machine) -> String {
        format!("{NAME}-{}-{}-linux", self.version, machine.name())
    }

    /// Reads them from the checkout `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let metadata = metadata(root, Machine::X86_64.target())?;
        let program = program(&metadata)?;
        let epoch = git(root, &["log", "-1", "--format=%ct"])?;
        let format = "--date=format-local:%Y-%m-%dT%H:%M:%SZ";
        Ok(Self {
            root: root.to_owned(),
            version: program.version.to_string(),
            repository: program.repository.clone().context("no repository in Cargo.toml")?,
            epoch: epoch.parse().context("the time of the commit")?,
            // The offset of `format-local` is that of the machine.
            time: utc(root, format)?,
            checksums: checksums(&fs::read_to_string(root.join("Cargo.lock"))?)?,
        })
    }

    /// The crates that the program is made of on a target, with those of this workspace, by name.
    pub(super) fn crates(&self, target: &str) -> Result<Vec<Crate>> {
        let metadata = metadata(&self.root, target)?;
        let resolve = metadata.resolve.as_ref().context("cargo metadata has no dependencies")?;
        let edges = |id: &PackageId| -> Vec<PackageId> {
            let node = resolve.nodes.iter().find(|node| node.id == *id);
            let all = node.into_iter().flat_map(|node| &node.deps);
            let normal = all.filter(|dependency| {
                dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
            });
            normal.map(|dependency| dependency.pkg.clone()).collect()
        };
        let mut found = BTreeSet::new();
        let mut open = vec![program(&metadata)?.id.clone()];
        while let Some(id) = open.pop() {
            if found.insert(id.clone()) {
                open.extend(edges(&id));
            }
        }
        let describe = |id: &PackageId| {
            let package = &metadata[id];
            let key = (package.name.to_string(), package.version.to_string());
            let names = edges(id).into_iter().map(|id| purl(&metadata[&id]));
            Crate {
                purl: purl(package),
                dependencies: names.collect(),
                sha256: self.checksums.get(&key).cloned(),
                name: key.0,
                version: key.1,
                licence: package.license.clone().unwrap_or_default(),
                folder: package.manifest_path.parent().map_or_else(PathBuf::new, Into::into),
                is_ours: package.source.is_none(),
            }
        };
        let mut crates: Vec<_> = found.iter().map(describe).collect();
        crates.sort_by(|one, other| one.purl.cmp(&other.purl));
        Ok(crates)
    }
}

/// A crate of the program.
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    /// The URL of the package in the form that bills of materials use.
    pub(super) purl: String,
    /// The URLs of the crates that it depends on.
    pub(super) dependencies: Vec<String>,
    /// The checksum of the published crate.
    pub(super) sha256: Option<String>,
    /// The expression of its licences.
    pub(super) licence: String,
    pub(super) folder: PathBuf,
    /// True for a crate of this workspace.
    pub(super) is_ours: bool,
}

fn metadata(root: &Path, target: &str) -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.manifest_path(root.join("Cargo.toml"));
    command.other_options(["--locked", "--filter-platform", target].map(str::to_owned));
    command.exec().context("cargo metadata")
}

fn program(metadata: &Metadata) -> Result<&Package> {
    let mut packages = metadata.packages.iter();
    packages.find(|package| package.name.as_str() == PROGRAM).context("no crate of the program")
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn utc(root: &Path, format: &str) -> Result<String> {
    let mut command = std::process::Command::new("git");
    command.current_dir(root).env("TZ", "UTC");
    let text = output_of(command.args(["log", "-1", "--format=%cd", format]))?;
    Ok(text.trim().to_owned())
}

fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    #[derive(Deserialize)]
    struct Locked {
        name: String,
        version: String,
        checksum: Option<String>,
    }
    let lock: Lock = toml::from_str(lock).context("Cargo.lock")?;
    let entry = |locked: Locked| Some(((locked.name, locked.version), locked.checksum?));
    Ok(lock.package.into_iter().filter_map(entry).collect())
}
