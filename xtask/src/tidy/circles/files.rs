//! Which file of a crate uses which other one.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    ItemMod, ItemUse, Macro, Path,
    visit::{self, Visit},
};

use super::modules::{Modules, Target, attributes, imports, is_re_export, is_test};
use crate::tidy::{Finding, Tree};

/// For each file the files it uses, with the line of the first use.
pub(super) type Dependencies = BTreeMap<String, BTreeMap<String, usize>>;

/// The dependencies between the files of the crate whose root file is `root`.
///
/// A file uses the file that defines what one of its paths names, wherever it is re-exported.
/// Declaring and re-exporting modules is no use of them. Tests do not count.
pub(super) fn dependencies(tree: &Tree, root: &str) -> Result<Dependencies, Finding> {
    let modules = Modules::parse(tree, root)?;
    let mut found = Dependencies::new();
    for (module, content) in modules.modules.iter().enumerate() {
        let uses = found.entry(content.file.clone()).or_default();
        let mut visitor = Visitor { modules: &modules, module, uses };
        for item in &content.items {
            visitor.visit_item(item);
        }
    }
    Ok(found)
}

struct Visitor<'a> {
    modules: &'a Modules,
    module: usize,
    uses: &'a mut BTreeMap<String, usize>,
}

impl Visitor<'_> {
    fn add(&mut self, path: &[String], line: usize) {
        if let Some(Target::Item(module)) = self.modules.resolve(self.module, path) {
            let file = &self.modules.modules[module].file;
            if *file != self.modules.modules[self.module].file {
                self.uses.entry(file.clone()).or_insert(line);
            }
        }
    }

    /// Every chain of names joined by `::`.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add(&path, line);
                        path.clear();
                        line = name.span().start().line;
                    }
                    path.push(name.to_string());
                }
                other => {
                    self.add(&path, line);
                    path.clear();
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
            colons = 0;
        }
        self.add(&path, line);
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    /// Modules inside functions share the scope of nothing outside: there are none here.
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_item_use(&mut self, declaration: &'ast ItemUse) {
        if is_re_export(&declaration.vis) || declaration.leading_colon.is_some() {
            return;
        }
        for import in imports(&declaration.tree) {
            self.add(&import.path, declaration.use_token.span.start().line);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let names: Vec<String> =
                path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = path.segments.first().map_or(1, |first| first.ident.span().start().line);
            self.add(&names, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        self.visit_path(&invocation.path);
        self.add_tokens(invocation.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}
