//! The crates of the checkout, from `cargo metadata`.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

/// A crate of the workspace.
pub(super) struct Package {
    pub(super) name: String,
    /// The manifest's path from the root of the checkout.
    pub(super) manifest: String,
    pub(super) dependencies: Vec<Dependency>,
}

pub(super) struct Dependency {
    /// The name of the package, which a manifest may rename.
    pub(super) package: String,
    /// True if it is a dev-dependency.
    pub(super) for_tests: bool,
}

/// Lists the packages of the workspace at `root`. Cargo reads no lock file and no registry.
pub(super) fn packages(root: &Path) -> Result<Vec<Package>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .context("cargo metadata")?;
    let root = &metadata.workspace_root;
    let packages = metadata.packages.iter().map(|package| {
        let manifest = package.manifest_path.strip_prefix(root).unwrap_or(&package.manifest_path);
        let dependencies = package.dependencies.iter().map(|dependency| Dependency {
            package: dependency.name.clone(),
            for_tests: dependency.kind == DependencyKind::Development,
        });
        Package {
            name: package.name.to_string(),
            manifest: manifest.to_string(),
            dependencies: dependencies.collect(),
        }
    });
    let mut packages: Vec<Package> = packages.collect();
    packages.sort_by(|a, b| a.manifest.cmp(&b.manifest));
    Ok(packages)
}
