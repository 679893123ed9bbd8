//! Rule *circles*: the files of a crate form no dependency cycle.
//!
//! Files of a cycle can only be read, moved and tested together. A cycle is a finding unless one
//! entry of [`EXCEPTIONS`] contains all its files.

pub(super) mod exceptions;
mod files;
mod modules;

use std::collections::{BTreeMap, BTreeSet};

use self::exceptions::{EXCEPTIONS, Exception};
use self::files::{Dependencies, dependencies};
use super::finding::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, EXCEPTIONS)
}

fn check_with(tree: &Tree, exceptions: &[Exception]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut cyclic = BTreeSet::new();
    for root in crate_roots(tree) {
        let graph = match dependencies(tree, root) {
            Ok(graph) => graph,
            Err(finding) => {
                findings.push(finding);
                continue;
            }
        };
        for component in cycles(&graph) {
            cyclic.extend(component.iter().map(|&file| file.to_owned()));
            let allowed =
                |exception: &Exception| component.iter().all(|file| exception.files.contains(file));
            if !exceptions.iter().any(allowed) {
                findings.push(describe(&graph, &component));
            }
        }
    }
    for exception in exceptions {
        let of_tree = |file: &str| {
            let folder = file.split("/src/").next().unwrap_or(file);
            crate_roots(tree).into_iter().any(|root| root.starts_with(folder))
        };
        let files = exception.files.iter().filter(|&&file| of_tree(file));
        for &file in files.filter(|&&file| !cyclic.contains(file)) {
            let message = "exception of rule circles for a file that is in no cycle: remove it";
            findings.push(Finding::new(file, 1, message));
        }
    }
    findings
}

/// The root file of each library and program.
fn crate_roots(tree: &Tree) -> impl Iterator<Item = &str> {
    tree.texts(&[".rs"]).map(|(path, _)| path).filter(|path| {
        let inside = match path.split_once("/src/") {
            Some((package, inside)) if is_package(package) => inside,
            _ => return false,
        };
        matches!(inside, "lib.rs" | "main.rs")
            || inside.strip_prefix("bin/").is_some_and(|name| !name.contains('/'))
    })
}

fn is_package(folder: &str) -> bool {
    folder == "xtask" || folder.strip_prefix("crates/").is_some_and(|name| !name.contains('/'))
}

/// The strongly connected components with more than one file, by Tarjan's algorithm.
fn cycles(graph: &Dependencies) -> Vec<BTreeSet<&str>> {
    let mut search =
        Tarjan { graph, visits: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for file in graph.keys() {
        if !search.visits.contains_key(file.as_str()) {
            search.visit(file);
        }
    }
    search.found
}

struct Tarjan<'a> {
    graph: &'a Dependencies,
    /// The state of each visited file.
    visits: BTreeMap<&'a str, Visit>,
    stack: Vec<&'a str>,
    found: Vec<BTreeSet<&'a str>>,
}

#[derive(Clone, Copy)]
struct Visit {
    index: usize,
    lowest: usize,
    on_stack: bool,
}

impl<'a> Tarjan<'a> {
    /// Visits `file` and its dependencies. Returns the lowest index reachable from it.
    fn visit(&mut self, file: &'a str) -> usize {
        let index = self.visits.len();
        self.visits.insert(file, Visit { index, lowest: index, on_stack: true });
        self.stack.push(file);
        let mut lowest = index;
        for target in self.graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            match self.visits.get(target.as_str()) {
                None => lowest = lowest.min(self.visit(target)),
                Some(visit) if visit.on_stack => lowest = lowest.min(visit.index),
                Some(_) => {}
            }
        }
        if let Some(visit) = self.visits.get_mut(file) {
            visit.lowest = lowest;
        }
        if lowest == index {
            let start = self.stack.iter().rposition(|&on_stack| on_stack == file).unwrap_or(0);
            let component: BTreeSet<&str> = self.stack.drain(start..).collect();
            for member in &component {
                if let Some(visit) = self.visits.get_mut(member) {
                    visit.on_stack = false;
                }
            }
            if component.len() > 1 {
                self.found.push(component);
            }
        }
        lowest
    }
}

/// A finding that shows the dependencies inside the component, one per line.
fn describe(graph: &Dependencies, component: &BTreeSet<&str>) -> Finding {
    let edges = component.iter().flat_map(|&from| {
        let inside = graph.get(from).into_iter().flatten();
        inside
            .filter(|(to, _)| component.contains(to.as_str()))
            .map(move |(to, line)| format!("\n    {from}:{line} uses {to}"))
    });
    let message = format!("{} files form a cycle:{}", component.len(), edges.collect::<String>());
    let first = component.first().copied().unwrap_or_default();
    Finding::new(first, 1, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)], exceptions: &[Exception]) -> Vec<String> {
        check_with(&Tree::of(files), exceptions).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn two_files_that_use_each_other_are_found_with_their_lines() {
        let found = findings(
            &[
                ("crates/a/src/lib.rs", "//! X.\nmod x;\nmod y;\n"),
                ("crates/a/src/x.rs", "use crate::y::Y;\npub struct X(Y);\n"),
                ("crates/a/src/y.rs", "pub struct Y;\nfn f() {\n    super::x::g();\n}\n"),
            ],
            &[],
        );
        let expected = "crates/a/src/x.rs:1: 2 files form a cycle:\
                        \n    crates/a/src/x.rs:1 uses crates/a/src/y.rs\
                        \n    crates/a/src/y.rs:3 uses crates/a/src/x.rs";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_long_cycle_is_one_finding() {
        let found = findings(
            &[
                ("xtask/src/main.rs", "mod x; mod y; mod z; fn main() { x::x() }\n"),
                ("xtask/src/x.rs", "pub fn x() { crate::y::y() }\n"),
                ("xtask/src/y.rs", "pub fn y() { crate::z::z() }\n"),
                ("xtask/src/z.rs", "pub fn z() { crate::x::x() }\n"),
            ],
            &[],
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("3 files form a cycle"), "{found:?}");
        assert!(!found[0].contains("main.rs"), "{found:?}");
    }

    #[test]
    fn re_exports_and_tests_close_no_cycle() {
        let found = findings(
            &[
                (
                    "crates/a/src/lib.rs",
                    "mod x;\npub mod y;\npub use x::X;\npub(crate) use y::f;\npub struct Own;\n",
                ),
                ("crates/a/src/x.rs", "use super::Own;\npub struct X(Own);\n"),
                (
                    "crates/a/src/y.rs",
                    "pub(crate) fn f(_: crate::X) {}\n#[cfg(test)]\nmod tests { use super::*; }\n",
                ),
            ],
            &[],
        );
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines() {
        let files = [
            ("crates/a/src/lib.rs", "mod x;\nmod y;\npub use y::Y;\npub use x::*;\n"),
            ("crates/a/src/x.rs", "use crate::Y;\npub struct X(Y);\n"),
            ("crates/a/src/y.rs", "pub struct Y;\nimpl Y { fn f() -> crate::X { todo!() } }\n"),
        ];
        assert_eq!(findings(&files, &[]).len(), 1);
    }

    #[test]
    fn macro_bodies_are_read() {
        let files = [
            ("crates/a/src/lib.rs", "mod x;\nmod y;\n"),
            ("crates/a/src/x.rs", "fn f() { assert!(crate::y::g() == 1); }\n"),
            ("crates/a/src/y.rs", "macro_rules! m { () => { $crate::x::f() }; }\n"),
        ];
        assert_eq!(findings(&files, &[]).len(), 1);
    }

    #[test]
    fn a_local_variable_is_no_module() {
        let files = [
            ("crates/a/src/lib.rs", "mod plan;\npub struct S;\nfn f() { let plan = 1; g(plan) }\n"),
            ("crates/a/src/plan.rs", "pub struct P(super::S);\n"),
        ];
        assert_eq!(findings(&files, &[]), [""; 0]);
    }

    #[test]
    fn exceptions_hold_for_their_files_only_and_go_when_unused() {
        let files = [
            ("crates/a/src/lib.rs", "mod x;\nfn f() { x::x() }\npub fn g() {}\n"),
            ("crates/a/src/x.rs", "pub fn x() { super::g() }\n"),
            ("crates/a/src/y.rs", ""),
        ];
        let exception = |files| [Exception { files, reason: "a test" }];
        let both = exception(&["crates/a/src/lib.rs", "crates/a/src/x.rs"]);
        assert_eq!(findings(&files, &both), [""; 0]);
        let one = exception(&["crates/a/src/lib.rs"]);
        assert_eq!(findings(&files, &one).len(), 1);
        let stale = exception(&["crates/a/src/lib.rs", "crates/a/src/x.rs", "crates/a/src/y.rs"]);
        let found = findings(&files, &stale);
        assert!(
            found[0].starts_with("crates/a/src/y.rs:1: exception of rule circles"),
            "{found:?}"
        );
    }
}
