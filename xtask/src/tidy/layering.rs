//! The direction of dependencies between crates, and the owners of external libraries.

use serde::Deserialize;

use super::finding::Finding;
use super::tree::Tree;
use super::workspace::{Dependency, Package};

/// A crate and its dependencies.
struct Layer {
    name: &'static str,
    built_on: &'static [&'static str],
}

const fn layer(name: &'static str, built_on: &'static [&'static str]) -> Layer {
    Layer { name, built_on }
}

/// The table of ARCHITECTURE.md, lowest first, with all dependencies of each crate: a crate may
/// depend on the crates of its row only, and does depend on all of them. The programs and their
/// libraries, at the end, call the engine through `rocmforge`, so that what a program can do, every
/// other program can do as well.
///
/// Tests (dev-dependencies) may use any crate above their row, so that they can run a model on a
/// backend that its crate does not name, and [`TEST_SUPPORT`].
const LAYERS: &[Layer] = &[
    layer("rf-quant", &[]),
    layer("rf-gguf", &["rf-quant"]),
    layer("rf-convert", &["rf-gguf", "rf-quant"]),
    layer("rf-template", &[]),
    layer("rf-tokenizer", &["rf-gguf"]),
    layer("rf-chat", &["rf-tokenizer", "rf-template"]),
    layer("rf-hub", &[]),
    layer("rf-kv", &[]),
    layer("rf-graph", &["rf-quant", "rf-kv"]),
    layer("rf-oracle", &["rf-graph", "rf-quant", "rf-kv"]),
    layer("rf-cpu", &["rf-graph", "rf-quant", "rf-kv"]),
    layer("rf-hip", &[]),
    layer("rf-emu", &[]),
    layer("rf-emu-hip", &["rf-emu"]),
    layer("rf-kernels-build", &[]),
    layer(
        "rf-kernels",
        &["rf-graph", "rf-oracle", "rf-hip", "rf-kernels-build", "rf-quant", "rf-kv"],
    ),
    layer("rf-model", &["rf-graph", "rf-gguf", "rf-quant", "rf-kv"]),
    layer("rf-vision", &["rf-graph", "rf-gguf", "rf-quant"]),
    layer("rf-engine", &["rf-model", "rf-chat", "rf-tokenizer", "rf-graph", "rf-gguf", "rf-kv"]),
    layer("rf-grammar", &["rf-engine", "rf-chat", "rf-tokenizer"]),
    layer("rf-device", &["rf-engine", "rf-cpu", "rf-kernels", "rf-oracle", "rf-graph", "rf-hip"]),
    layer(TEST_SUPPORT, &["rf-device", "rf-engine", "rf-cpu", "rf-graph", "rf-kv"]),
    layer(
        "rocmforge",
        &[
            "rf-device",
            "rf-engine",
            "rf-chat",
            "rf-grammar",
            "rf-hub",
            "rf-vision",
            // Types and errors of its interface.
            "rf-cpu",
            "rf-gguf",
            "rf-graph",
            "rf-model",
            "rf-quant",
            "rf-tokenizer",
        ],
    ),
    layer("rf-profile", &["rf-hip"]),
    layer(
        "rf-bench",
        &[
            "rocmforge",
            "rf-profile",
            // What it measures alone: ops, pages, formats.
            "rf-oracle",
            "rf-kv",
            "rf-quant",
        ],
    ),
    layer("rf-server", &["rocmforge"]),
    layer(
        "rf-cli",
        &[
            "rf-server",
            "rocmforge",
            "rf-profile",
            // Files: info, quantize, tokenize.
            "rf-convert",
            "rf-gguf",
            "rf-model",
            "rf-quant",
            "rf-tokenizer",
            "rf-vision",
            // Diagnosis of GPUs: doctor, selftest, tune.
            "rf-kernels",
        ],
    ),
    layer("xtask", &["rf-emu", "rf-kernels", "rf-kernels-build", "rf-quant"]),
];

/// The crate that tests of every crate may use, and nothing else: it is not published.
const TEST_SUPPORT: &str = "rf-testing";

/// External libraries that only the listed crates may use. Tests may use them anywhere.
const OWNED: [(&str, &[&str]); 9] = [
    ("anyhow", &["rf-bench", "rf-cli", "xtask"]), // binaries; libraries have typed errors
    ("axum", &["rf-server"]),
    ("clap", &["rf-bench", "rf-cli", "xtask"]),
    ("image", &["rf-vision"]),
    ("libloading", &["rf-hip"]),
    ("llguidance", &["rf-grammar"]),
    ("memmap2", &["rf-gguf", "rf-cpu"]), // files; page-aligned buffers
    ("nanomp3", &["rf-vision"]),
    ("ureq", &["rf-bench", "rf-hub"]),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let text = tree.text(&package.manifest).unwrap_or_default();
        findings.extend(check_package(package, text));
        findings.extend(unused_edges(package));
    }
    findings
}

/// The crates of a package's row that it does not depend on: a reader of the table would look for a
/// reason.
fn unused_edges(package: &Package) -> Vec<Finding> {
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == package.name) else {
        return Vec::new();
    };
    let is_used = |below: &str| {
        let mut product = package.dependencies.iter().filter(|dependency| !dependency.for_tests);
        product.any(|dependency| dependency.package == below)
    };
    let unused = layer.built_on.iter().filter(|below| !is_used(below));
    let finding = |below| {
        let name = &package.name;
        let message =
            format!("{name} does not depend on {below}: remove it from the row of {name}");
        Finding::new(&package.manifest, 1, message)
    };
    unused.map(finding).collect()
}

/// The names of `packages` in the order of the table.
pub(super) fn names_of(packages: &[Package]) -> Vec<String> {
    let exists = |layer: &&Layer| packages.iter().any(|package| package.name == layer.name);
    LAYERS.iter().filter(exists).map(|layer| layer.name.to_owned()).collect()
}

fn check_package(package: &Package, manifest: &str) -> Vec<Finding> {
    let path = &package.manifest;
    let Some(row) = LAYERS.iter().position(|layer| layer.name == package.name) else {
        let message = format!("crate {} has no row in the table of layers", package.name);
        return vec![Finding::new(path, 1, message)];
    };
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        if let Some(message) = violation(row, dependency) {
            findings.push(Finding::new(path, line_of(manifest, &dependency.package), message));
        }
    }
    if !inherits_lints(manifest) {
        let message = "no [lints] workspace = true: the workspace's lints are off";
        findings.push(Finding::new(path, 1, message));
    }
    findings
}

fn violation(row: usize, dependency: &Dependency) -> Option<String> {
    let Dependency { ref package, for_tests } = *dependency;
    let name = LAYERS[row].name;
    if let Some(target) = LAYERS.iter().position(|layer| layer.name == package) {
        let allowed = match (package.as_str(), for_tests) {
            (TEST_SUPPORT, _) => for_tests && name != TEST_SUPPORT,
            // Or on the crate itself, to turn its features on.
            (_, true) => target <= row,
            (_, false) => LAYERS[row].built_on.contains(&package.as_str()),
        };
        let what = if for_tests { "tests of" } else { "" };
        return (!allowed).then(|| {
            format!("{what} {name} must not depend on {package}: see the table of layers")
                .trim_start()
                .to_owned()
        });
    }
    let (_, owners) = OWNED.iter().find(|(library, _)| *library == package)?;
    (!for_tests && !owners.contains(&name))
        .then(|| format!("{name} must not depend on {package}: only {} may", owners.join(" and ")))
}

/// Returns true if the manifest inherits the workspace's lints, which cargo does not report.
fn inherits_lints(manifest: &str) -> bool {
    #[derive(Default, Deserialize)]
    struct Lints {
        #[serde(default)]
        workspace: bool,
    }
    #[derive(Deserialize)]
    struct Manifest {
        #[serde(default)]
        lints: Lints,
    }
    toml::from_str::<Manifest>(manifest).is_ok_and(|manifest| manifest.lints.workspace)
}

/// The number of the first line that names `package`, from 1.
fn line_of(manifest: &str, package: &str) -> usize {
    manifest.lines().position(|line| line.contains(package)).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependency = |&(package, for_tests): &(&str, bool)| Dependency {
            package: package.to_owned(),
            for_tests,
        };
        Package {
            name: name.to_owned(),
            manifest: "crates/x/Cargo.toml".to_owned(),
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }

    fn messages(name: &str, dependencies: &[(&str, bool)], manifest: &str) -> Vec<String> {
        let findings = check_package(&package(name, dependencies), manifest);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn crates_reach_the_crates_of_their_row_only() {
        let server_on = |below| messages("rf-server", &[(below, false)], LINTS).len();
        assert_eq!(server_on("rocmforge"), 0);
        assert_eq!(server_on("rf-engine"), 1);
        assert_eq!(messages("rf-cli", &[("rf-graph", false)], LINTS).len(), 1);
        // Below a crate of its row.
        let found = messages("rf-grammar", &[("rf-engine", false), ("rf-gguf", false)], LINTS);
        assert!(found[0].contains("rf-grammar must not depend on rf-gguf"), "{found:?}");
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn edges_that_nobody_uses_are_found() {
        let unused = |dependencies| unused_edges(&package("rf-convert", dependencies)).len();
        assert_eq!(unused(&[("rf-gguf", false), ("rf-quant", false)]), 0);
        assert_eq!(unused(&[("rf-gguf", false)]), 1);
        assert_eq!(unused(&[("rf-gguf", false), ("rf-quant", true)]), 1);
    }

    #[test]
    fn the_table_points_downward_and_names_its_own_rows() {
        for (row, layer) in LAYERS.iter().enumerate() {
            for below in layer.built_on {
                let position = LAYERS.iter().position(|layer| layer.name == *below);
                let is_below = position.is_some_and(|position| position < row);
                assert!(is_below, "{} on {below}", layer.name);
            }
        }
    }

    #[test]
    fn dependencies_of_the_table_are_fine() {
        let dependencies = [
            ("rf-gguf", false),
            ("rf-quant", false),
            ("thiserror", false),
            ("rf-cpu", true),
            ("anyhow", true),
        ];
        assert_eq!(messages("rf-model", &dependencies, LINTS), [""; 0]);
    }

    #[test]
    fn a_dependency_upward_is_found_with_its_line() {
        let manifest = format!("{LINTS}[dependencies]\nhalf = \"2\"\nrf-cpu.workspace = true\n");
        let expected =
            "crates/x/Cargo.toml:5: rf-model must not depend on rf-cpu: see the table of layers";
        assert_eq!(messages("rf-model", &[("rf-cpu", false)], &manifest), [expected]);
    }

    #[test]
    fn tests_may_reach_sideways_but_not_up() {
        let tests_on = |package| messages("rf-engine", &[(package, true)], LINTS).len();
        assert_eq!(tests_on("rf-cpu"), 0);
        assert_eq!(tests_on("rf-server"), 1);
        // To turn features of the crate on.
        assert_eq!(tests_on("rf-engine"), 0);
    }

    #[test]
    fn test_support_is_for_the_tests_of_every_crate_only() {
        assert_eq!(messages("rf-quant", &[("rf-testing", true)], LINTS), [""; 0]);
        assert_eq!(messages("rf-quant", &[("rf-testing", false)], LINTS).len(), 1);
        assert_eq!(messages("rf-server", &[("rf-testing", false)], LINTS).len(), 1);
        assert_eq!(messages("rf-testing", &[("rf-engine", false)], LINTS), [""; 0]);
    }

    #[test]
    fn libraries_stay_with_their_owner() {
        let found = messages("rf-engine", &[("anyhow", false)], LINTS);
        assert!(found[0].contains("rf-engine must not depend on anyhow: only "), "{found:?}");
        assert_eq!(messages("rf-gguf", &[("memmap2", false)], LINTS), [""; 0]);
    }

    #[test]
    fn unknown_crates_and_missing_lints_are_found() {
        assert!(messages("rf-new", &[], LINTS)[0].contains("crate rf-new has no row"));
        assert!(messages("rf-kv", &[], "")[0].contains("no [lints] workspace = true"));
    }
}
