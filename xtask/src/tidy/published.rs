//! Rule *published*: a library that is published has a README for its page in the registry.
//!
//! The programs of the README are tested: each is a program of the crate's front page without its
//! hidden lines, or the crate includes its README in its doc tests.

use serde::Deserialize;

use super::finding::Finding;
use super::tree::Tree;

#[derive(Deserialize)]
struct Manifest {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    #[serde(default = "published")]
    publish: bool,
}

const fn published() -> bool {
    true
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&["/Cargo.toml"]) {
        let Some(folder) = path.strip_suffix("/Cargo.toml") else { continue };
        let Some(library) = tree.text(&format!("{folder}/src/lib.rs")) else { continue };
        match toml::from_str::<Manifest>(text) {
            Ok(manifest) if !(folder.starts_with("crates/") && manifest.package.publish) => {}
            Ok(_) => findings.extend(readme(tree, folder, library)),
            Err(error) => {
                let message = format!("could not parse: {}", error.message());
                findings.push(Finding::new(path, 1, message));
            }
        }
    }
    findings
}

fn readme(tree: &Tree, folder: &str, library: &str) -> Vec<Finding> {
    let path = format!("{folder}/README.md");
    let Some(text) = tree.text(&path) else {
        let message = "missing: the crate is published; write one, or set publish = false";
        return vec![Finding::new(&path, 1, message)];
    };
    let programs = programs(text.lines());
    if programs.is_empty() {
        return vec![Finding::new(&path, 1, "no program in Rust that shows the use of the crate")];
    }
    if library.contains("include_str!(\"../README.md\")") {
        return Vec::new();
    }
    let page = library.lines().map_while(|line| line.strip_prefix("//!"));
    let page = page.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let tested: Vec<String> =
        self::programs(page).into_iter().map(|(_, program)| program).collect();
    let untested = programs.into_iter().filter(|(_, program)| !tested.contains(program));
    untested
        .map(|(line, _)| {
            Finding::new(
                &path,
                line,
                format!("not a program of the front page in {folder}/src/lib.rs"),
            )
        })
        .collect()
}

/// The Rust programs of a document without hidden lines, each with the number of its first line.
fn programs<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut in_block, mut is_rust) = (false, false);
    for (number, line) in (1..).zip(lines) {
        if let Some(language) = line.strip_prefix("```") {
            // In doc comments Rust is the default, and an attribute such as `no_run` may follow.
            is_rust = !in_block
                && ["", "rust", "no_run"]
                    .iter()
                    .any(|&name| language.split(',').next() == Some(name));
            in_block = !in_block;
            if is_rust {
                found.push((number, String::new()));
            }
        } else if let (true, true, Some((_, program))) = (in_block, is_rust, found.last_mut()) {
            let trimmed = line.trim();
            let is_hidden = trimmed == "#" || trimmed.starts_with("# ");
            // A program may begin with hidden lines and a blank one.
            let is_margin = program.is_empty() && trimmed.is_empty();
            if !is_hidden && !is_margin {
                program.push_str(line);
                program.push('\n');
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: (&str, &str) = ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n");
    const LIBRARY: (&str, &str) = (
        "crates/a/src/lib.rs",
        "//! A.\n//!\n//! ```\n//! # fn main() {\n//!\n//! a::run();\n//! # }\n//! ```\nmod b;\n",
    );

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_program_of_a_readme_is_one_of_the_front_page() {
        let with = |readme| messages(&[MANIFEST, LIBRARY, ("crates/a/README.md", readme)]);
        assert!(with("# a\n\n```rust\na::run();\n```\n").is_empty());
        let other = "# a\n\n```rust\na::other();\n```\n";
        let finding = "not a program of the front page in crates/a/src/lib.rs";
        assert_eq!(with(other), [format!("crates/a/README.md:3: {finding}")]);
        let finding = "no program in Rust that shows the use of the crate";
        assert_eq!(with("# a\n\n```sh\nls\n```\n"), [format!("crates/a/README.md:1: {finding}")]);

        let tested = ("crates/a/src/lib.rs", "#[doc = include_str!(\"../README.md\")]\n");
        assert!(messages(&[MANIFEST, tested, ("crates/a/README.md", other)]).is_empty());
    }

    #[test]
    fn only_published_libraries_need_a_readme() {
        let finding = "crates/a/README.md:1: missing: the crate is published; write one, or set \
                       publish = false";
        assert_eq!(messages(&[MANIFEST, LIBRARY]), [finding]);
        let private = (MANIFEST.0, "[package]\nname = \"a\"\npublish = false\n");
        assert!(messages(&[private, LIBRARY]).is_empty());
        assert!(messages(&[MANIFEST, ("crates/a/src/main.rs", "")]).is_empty());
    }
}
