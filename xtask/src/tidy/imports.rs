//! Rule *imports*: a `use` declaration names one module, and the items that it takes from it.
//!
//! Nested groups hide the module of an item, and two branches that import from one crate conflict.
//! Stable rustfmt does not split them. `cargo +nightly fmt -- --config imports_granularity=Module`
//! does.

use syn::UseTree;
use syn::visit::{self, Visit};

use super::finding::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts(&[".rs"]).flat_map(|(path, text)| nested_groups(path, text)).collect()
}

fn nested_groups(path: &str, text: &str) -> Vec<Finding> {
    // Rule *sources* reports a file that does not parse.
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    let mut groups = NestedGroups::default();
    groups.visit_file(&file);
    let finding = |&line: &usize| {
        Finding::new(path, line, "nested import: one `use` per module, as `use a::b::{C, D};`")
    };
    groups.lines.iter().map(finding).collect()
}

/// The lines of modules within a group of imports.
#[derive(Default)]
struct NestedGroups {
    lines: Vec<usize>,
}

impl Visit<'_> for NestedGroups {
    fn visit_use_group(&mut self, group: &syn::UseGroup) {
        for item in &group.items {
            if let UseTree::Path(module) = item {
                self.lines.push(module.ident.span().start().line);
            }
        }
        visit::visit_use_group(self, group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_within_a_group_is_found() {
        let lines = |text| {
            let findings = nested_groups("a.rs", text);
            findings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(lines("use std::fmt::{self, Display};\nuse std::{env, io};\n"), [""; 0]);
        let found =
            lines("use std::{\n    env,\n    io::Write,\n};\nfn f() { use a::{b::C, d}; }\n");
        let message = "nested import: one `use` per module, as `use a::b::{C, D};`";
        assert_eq!(found, [format!("a.rs:3: {message}"), format!("a.rs:5: {message}")]);
    }
}
