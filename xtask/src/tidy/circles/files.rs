//! The dependencies between the files of a crate.

use std::collections::BTreeMap;

use super::modules::{Modules, PathTarget};
use crate::tidy::finding::Finding;
use crate::tidy::paths::{PathPlace, visit_paths};
use crate::tidy::tree::Tree;

/// Maps each file to the files that it uses, with the line of the first use.
pub(super) type Dependencies = BTreeMap<String, BTreeMap<String, usize>>;

/// The dependencies between the files of the crate whose root file is `root`.
///
/// A file uses the file that defines the item named by one of its paths, even through a re-export.
/// Declaring or re-exporting a module is not a use. Tests do not count.
pub(super) fn dependencies(tree: &Tree, root: &str) -> Result<Dependencies, Finding> {
    let modules = Modules::parse(tree, root)?;
    let mut found = Dependencies::new();
    for (module, content) in modules.modules.iter().enumerate() {
        let uses = found.entry(content.file.clone()).or_default();
        for item in &content.items {
            visit_paths(item, &mut |path| {
                if path.place == PathPlace::ReExport {
                    return;
                }
                if let Some(PathTarget::Item(defined_in)) = modules.resolve(module, &path.names) {
                    let file = &modules.modules[defined_in].file;
                    if *file != content.file {
                        uses.entry(file.clone()).or_insert(path.line);
                    }
                }
            });
        }
    }
    Ok(found)
}
