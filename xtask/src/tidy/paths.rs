//! The paths in Rust code, except in tests.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Path, UseTree, Visibility};

/// The place of a path in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathPlace {
    /// In an expression, type, pattern or macro.
    Code,
    /// In a private `use`.
    Import,
    /// In a `pub use` of any visibility.
    ReExport,
}

/// A path: its names, its place and its line.
pub(super) struct PathUse {
    pub(super) names: Vec<String>,
    pub(super) place: PathPlace,
    pub(super) line: usize,
}

/// One leaf of a `use` declaration.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// The name in scope; `None` for `*` and `_`.
    pub(super) name: Option<String>,
    pub(super) glob: bool,
}

/// Calls `found` for every path in `item`, except in tests and in modules inside it.
pub(super) fn visit_paths(item: &Item, found: &mut dyn FnMut(PathUse)) {
    Visitor { found }.visit_item(item);
}

/// Returns true if `item` is compiled for tests only.
pub(super) fn is_test(item: &Item) -> bool {
    attributes(item).iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
    })
}

/// The leaves of a `use` tree.
pub(super) fn imports(tree: &UseTree) -> Vec<Import> {
    let mut found = Vec::new();
    collect_imports(tree, &mut Vec::new(), &mut found);
    found
}

struct Visitor<'a> {
    found: &'a mut dyn FnMut(PathUse),
}

impl Visitor<'_> {
    /// Visits every chain of names joined by `::`.
    fn visit_tokens(&mut self, tokens: TokenStream) {
        let mut names = Vec::new();
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
                        self.add(std::mem::take(&mut names), line);
                        line = name.span().start().line;
                    }
                    names.push(name.to_string());
                }
                other => {
                    self.add(std::mem::take(&mut names), line);
                    if let TokenTree::Group(group) = other {
                        self.visit_tokens(group.stream());
                    }
                }
            }
            colons = 0;
        }
        self.add(names, line);
    }

    fn add(&mut self, names: Vec<String>, line: usize) {
        if !names.is_empty() {
            (self.found)(PathUse { names, place: PathPlace::Code, line });
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_item_use(&mut self, declaration: &'ast ItemUse) {
        let place = match declaration.vis {
            Visibility::Inherited => PathPlace::Import,
            _ => PathPlace::ReExport,
        };
        let line = declaration.use_token.span.start().line;
        for import in imports(&declaration.tree) {
            (self.found)(PathUse { names: import.path, place, line });
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let names: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let line = path.segments.first().map_or(1, |first| first.ident.span().start().line);
        self.add(names, line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        self.visit_path(&invocation.path);
        self.visit_tokens(invocation.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn collect_imports(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Vec<Import>) {
    let mut leaf = |last: Option<String>, name: Option<String>, glob: bool| {
        let mut path = prefix.clone();
        path.extend(last.filter(|last| last != "self" || prefix.is_empty()));
        let name = name.filter(|name| name != "_").map(|name| match name.as_str() {
            "self" => path.last().cloned().unwrap_or_default(),
            _ => name,
        });
        found.push(Import { path, name, glob });
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            collect_imports(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Name(name) => {
            let name = Some(name.ident.to_string());
            leaf(name.clone(), name, false);
        }
        UseTree::Rename(rename) => {
            leaf(Some(rename.ident.to_string()), Some(rename.rename.to_string()), false);
        }
        UseTree::Glob(_) => leaf(None, None, true),
        UseTree::Group(group) => {
            for tree in &group.items {
                collect_imports(tree, prefix, found);
            }
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
