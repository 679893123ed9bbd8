//! Rule *names*: a type name of one word, such as `Plan` or `Kind`, says of what it is as soon as
//! three places define it.
//!
//! A reader who meets `Outcome` in a file has to look up which one it is, and a search finds all of
//! them. `CaseOutcome` and `MetricOutcome` need neither. The rule counts types that other files can
//! name: a private type is read next to its definition. Type aliases and traits count as well.
//!
//! Two names keep one word because their module says of what they are: [`BY_CONVENTION`].

use std::collections::BTreeMap;

use syn::{Ident, Item, Visibility};

use super::finding::Finding;
use super::paths::is_test;
use super::tree::Tree;

/// The names that every module may define: a crate has one `Error`, as most crates do, and a
/// command's `Options` are written with their module, as in `rf_convert::Options`.
const BY_CONVENTION: [&str; 2] = ["Error", "Options"];

/// The number of definitions that are a collision.
const TOO_MANY: usize = 3;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut places = BTreeMap::<String, Vec<(&str, usize)>>::new();
    for (path, text) in tree.texts(&[".rs"]) {
        let of_product = path.starts_with("crates/") || path.starts_with("xtask/");
        if !of_product || !path.contains("/src/") {
            continue;
        }
        // Rule *sources* reports a file that does not parse.
        let Ok(file) = syn::parse_file(text) else { continue };
        let mut names = Vec::new();
        collect_visible_types(&file.items, &mut names);
        for name in names {
            let line = name.span().start().line;
            places.entry(name.to_string()).or_default().push((path, line));
        }
    }
    places.retain(|name, places| {
        places.len() >= TOO_MANY && is_one_word(name) && !BY_CONVENTION.contains(&name.as_str())
    });
    let findings = |(name, places): (&String, &Vec<(&str, usize)>)| {
        let message = format!(
            "{} types are called {name}: say of what, as in CaseOutcome for Outcome",
            places.len()
        );
        let finding = |&(path, line): &(&str, usize)| Finding::new(path, line, message.clone());
        places.iter().map(finding).collect::<Vec<_>>()
    };
    places.iter().flat_map(findings).collect()
}

/// Collects the names of types that are visible outside of their module, except in tests.
fn collect_visible_types<'a>(items: &'a [Item], names: &mut Vec<&'a Ident>) {
    for item in items.iter().filter(|item| !is_test(item)) {
        let (visibility, name) = match item {
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Union(item) => (&item.vis, &item.ident),
            Item::Mod(module) => {
                let items = module.content.as_ref().map(|(_, items)| items.as_slice());
                collect_visible_types(items.unwrap_or_default(), names);
                continue;
            }
            _ => continue,
        };
        if !matches!(visibility, Visibility::Inherited) {
            names.push(name);
        }
    }
}

/// Returns true for `Plan`, not for `TilePlan` and `X86`.
fn is_one_word(name: &str) -> bool {
    name.chars().filter(|c| !c.is_lowercase()).count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 3] = ["crates/a/src/a.rs", "crates/b/src/b/c.rs", "xtask/src/d.rs"];

    /// The findings in three files with the same text.
    fn messages(text: &str) -> Vec<String> {
        let files = PATHS.map(|path| (path, text));
        check(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_word_that_three_places_define_is_found_in_each() {
        let definitions = [
            "pub struct Plan;",
            "pub(crate) enum Plan {}",
            "mod inner { pub(super) trait Plan {} }",
            "pub(super) type Plan = u8;",
        ];
        for text in definitions {
            let message = "3 types are called Plan: say of what, as in CaseOutcome for Outcome";
            assert_eq!(messages(text), PATHS.map(|path| format!("{path}:1: {message}")), "{text}");
        }
        let two = [PATHS[0], PATHS[1], "crates/a/tests/a.rs"].map(|path| (path, definitions[0]));
        assert!(check(&Tree::of(&two)).is_empty());
    }

    #[test]
    fn other_names_are_fine() {
        for text in [
            "struct Plan;",
            "pub struct TilePlan;",
            "pub enum Error {}",
            "pub struct Options;",
            "#[cfg(test)]\nmod tests { pub struct Plan; }",
            "pub fn f() { enum Plan {} }",
        ] {
            assert_eq!(messages(text), [""; 0], "{text}");
        }
    }
}
