//! The direction of dependencies between crates, and which crate owns which outside library.

use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use super::{Finding, Tree};

/// A crate and what it is built on.
struct Layer {
    name: &'static str,
    built_on: &'static [&'static str],
}

const fn layer(name: &'static str, built_on: &'static [&'static str]) -> Layer {
    Layer { name, built_on }
}

/// The table of ARCHITECTURE.md, lowest first. A crate may depend on what it is built on, and on
/// what that is built on. Its tests (dev-dependencies) may use any crate above its row, so that a
/// model is tested on a backend it does not name.
const LAYERS: &[Layer] = &[
    layer("rf-quant", &[]),
    layer("rf-gguf", &["rf-quant"]),
    layer("rf-convert", &["rf-gguf", "rf-quant"]),
    layer("rf-tokenizer", &[]),
    layer("rf-kv", &[]),
    layer("rf-graph", &["rf-quant", "rf-kv"]),
    layer("rf-cpu", &["rf-graph"]),
    layer("rf-hip", &[]),
    layer("rf-kernels-build", &[]),
    layer("rf-kernels", &["rf-graph", "rf-hip", "rf-kernels-build"]),
    layer("rf-model", &["rf-graph", "rf-gguf", "rf-kv"]),
    layer("rf-engine", &["rf-model", "rf-tokenizer"]),
    layer("rf-device", &["rf-engine", "rf-cpu", "rf-kernels"]),
    layer("rf-profile", &["rf-hip"]),
    layer("rf-bench", &["rf-device", "rf-profile"]),
    layer("rf-server", &["rf-device"]),
    layer("rf-cli", &["rf-server", "rf-device", "rf-convert", "rf-profile"]),
    layer("xtask", &["rf-bench", "rf-kernels-build"]),
];

/// Outside libraries that are the knowledge of one layer; tests may use them anywhere.
const OWNED: [(&str, &[&str]); 6] = [
    ("anyhow", &["rf-bench", "rf-cli", "xtask"]), // binaries; libraries have typed errors
    ("axum", &["rf-server"]),
    ("clap", &["rf-bench", "rf-cli", "xtask"]),
    ("libloading", &["rf-hip"]),
    ("memmap2", &["rf-gguf", "rf-cpu"]), // files; page-aligned buffers
    ("minijinja", &["rf-tokenizer"]),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&["/Cargo.toml"]) {
        let depth = path.split('/').count();
        if (path.starts_with("crates/") && depth == 3) || path == "xtask/Cargo.toml" {
            findings.extend(check_manifest(path, text));
        }
    }
    findings
}

fn check_manifest(path: &str, text: &str) -> Vec<Finding> {
    let manifest = match DeTable::parse(text) {
        Ok(manifest) => DeValue::Table(manifest.into_inner()),
        Err(error) => {
            let start = error.span().map_or(0, |span| span.start);
            return vec![Finding::new(path, line_of(text, start), error.message())];
        }
    };
    let name = lookup(&manifest, "package", "name").and_then(DeValue::as_str);
    let Some(row) = name.and_then(|name| LAYERS.iter().position(|layer| layer.name == name)) else {
        let message =
            format!("crate {} has no row in the table of layers", name.unwrap_or("without a name"));
        return vec![Finding::new(path, 1, message)];
    };

    let mut findings = Vec::new();
    for dependency in dependencies(&manifest) {
        if let Some(message) = violation(row, &dependency) {
            findings.push(Finding::new(path, line_of(text, dependency.offset), message));
        }
    }
    if lookup(&manifest, "lints", "workspace").and_then(DeValue::as_bool) != Some(true) {
        findings.push(Finding::new(
            path,
            1,
            "no [lints] workspace = true: the workspace's lints are off",
        ));
    }
    findings
}

fn violation(row: usize, dependency: &Dependency<'_>) -> Option<String> {
    let Dependency { package, for_tests, .. } = *dependency;
    let name = LAYERS[row].name;
    if let Some(target) = LAYERS.iter().position(|layer| layer.name == package) {
        let allowed = if for_tests { target < row } else { reaches(row, package) };
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

/// Whether the crate of `row` is built on `package`, at any depth.
fn reaches(row: usize, package: &str) -> bool {
    LAYERS[row].built_on.iter().any(|&below| {
        below == package
            || LAYERS
                .iter()
                .position(|layer| layer.name == below)
                .is_some_and(|row| reaches(row, package))
    })
}

struct Dependency<'a> {
    package: &'a str,
    /// Where in the manifest, in bytes.
    offset: usize,
    for_tests: bool,
}

/// The dependencies of every kind, those of single targets too.
fn dependencies<'a>(manifest: &'a DeValue<'a>) -> Vec<Dependency<'a>> {
    let targets = manifest.get("target").map(Spanned::get_ref);
    let scopes = targets.into_iter().flat_map(entries).map(|(_, scope)| scope.get_ref());

    let mut found = Vec::new();
    for (kind, table) in scopes.chain([manifest]).flat_map(entries) {
        let for_tests = match kind.get_ref().as_ref() {
            "dependencies" | "build-dependencies" => false,
            "dev-dependencies" => true,
            _ => continue,
        };
        for (key, value) in entries(table.get_ref()) {
            let renamed = value.get_ref().get("package").and_then(|name| name.get_ref().as_str());
            let package = renamed.unwrap_or(key.get_ref());
            found.push(Dependency { package, offset: key.span().start, for_tests });
        }
    }
    found
}

type Entry<'a> = (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>);

/// The entries of a table; none of any other value.
fn entries<'a>(value: &'a DeValue<'a>) -> impl Iterator<Item = Entry<'a>> {
    value.as_table().into_iter().flatten()
}

fn lookup<'a>(manifest: &'a DeValue<'a>, table: &str, key: &str) -> Option<&'a DeValue<'a>> {
    Some(manifest.get(table)?.get_ref().get(key)?.get_ref())
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(manifest: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/x/Cargo.toml", manifest)]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    fn manifest(name: &str, sections: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{sections}")
    }

    #[test]
    fn the_table_points_downward_and_names_its_own_rows() {
        for (row, layer) in LAYERS.iter().enumerate() {
            for below in layer.built_on {
                let position = LAYERS.iter().position(|layer| layer.name == *below);
                assert!(
                    position.is_some_and(|position| position < row),
                    "{} on {below}",
                    layer.name
                );
            }
        }
    }

    #[test]
    fn dependencies_of_the_table_are_fine() {
        let sections = "[dependencies]\nrf-gguf.workspace = true\nrf-quant = { path = \"q\" }\n\
                        thiserror = \"2\"\n[dev-dependencies]\nrf-cpu.workspace = true\nanyhow = \"1\"\n";
        assert_eq!(messages(&manifest("rf-model", sections)), [""; 0]);
    }

    #[test]
    fn a_dependency_upward_is_found_with_its_line() {
        let found = messages(&manifest(
            "rf-model",
            "[dependencies]\nhalf = \"2\"\nrf-cpu.workspace = true\n",
        ));
        let expected =
            "crates/x/Cargo.toml:7: rf-model must not depend on rf-cpu: see the table of layers";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn every_kind_of_dependency_is_looked_at() {
        for section in [
            "[dependencies.rf-cli]\npath = \"x\"",
            "[dependencies]\nengine = { package = \"rf-engine\", path = \"x\" }",
            "[build-dependencies]\nrf-graph = { path = \"x\" }",
            "[target.'cfg(unix)'.dependencies]\nrf-graph.workspace = true",
            "[dev-dependencies]\nrf-kv.workspace = true",
            "[target.'cfg(unix)'.dev-dependencies]\nrf-kv.workspace = true",
        ] {
            assert_eq!(messages(&manifest("rf-quant", section)).len(), 1, "{section}");
        }
    }

    #[test]
    fn tests_may_reach_sideways_but_not_up() {
        let tests_on = |package| {
            let section = format!("[dev-dependencies]\n{package}.workspace = true");
            messages(&manifest("rf-engine", &section)).len()
        };
        assert_eq!(tests_on("rf-cpu"), 0);
        assert_eq!(tests_on("rf-server"), 1);
        assert_eq!(tests_on("rf-engine"), 1);
    }

    #[test]
    fn libraries_stay_with_their_owner() {
        let found = messages(&manifest("rf-engine", "[dependencies]\nanyhow.workspace = true"));
        let expected = "crates/x/Cargo.toml:6: rf-engine must not depend on anyhow: only rf-bench and rf-cli and xtask may";
        assert_eq!(found, [expected]);
        assert_eq!(messages(&manifest("rf-gguf", "[dependencies]\nmemmap2 = \"0.9\"")), [""; 0]);
    }

    #[test]
    fn unknown_crates_missing_lints_and_broken_manifests_are_found() {
        assert!(messages(&manifest("rf-new", ""))[0].contains("crate rf-new has no row"));
        assert!(
            messages("[package]\nname = \"rf-kv\"\n")[0].contains("no [lints] workspace = true")
        );
        let broken = messages("[package]\nname = \"rf-kv\"\n=\n");
        assert!(broken[0].starts_with("crates/x/Cargo.toml:3: "), "{broken:?}");
    }

    #[test]
    fn manifests_elsewhere_are_left_alone() {
        let tree = Tree::of(&[("Cargo.toml", "[workspace]"), ("fuzz/Cargo.toml", "")]);
        assert!(check(&tree).is_empty());
    }
}
