//! Rule *homes*: programs translate arguments into calls and results into output. All other code
//! belongs in a library.
//!
//! A program may use a library of the workspace only as [`HOMES`] allows: the whole library if its
//! purpose is to serve programs, or single items that options or output need. Code that builds
//! graphs, plans memory or packs weights needs other items and is a finding.
//!
//! A program and a library in one package share their dependencies. The library must not use those
//! of the program: it has typed errors, takes no arguments and prints nothing.
//!
//! One file makes the options of an engine, so that every program sizes a model alike. The compiler
//! allows no literal of them outside of their crate; their constructors are found here.

use syn::Item;

use super::finding::Finding;
use super::paths::{is_test, visit_paths};
use super::tree::Tree;

/// The items of a library that a program may use.
pub(super) struct Home {
    program: &'static str,
    /// The library's name in paths, such as `rf_engine`.
    library: &'static str,
    /// The allowed items at the root of the library; empty allows all.
    items: &'static [&'static str],
    /// The starts of the paths, inside the program, that may use the library; empty allows all.
    places: &'static [&'static str],
    #[expect(dead_code, reason = "for the reader of the table")]
    reason: &'static str,
}

const fn home(
    program: &'static str,
    library: &'static str,
    items: &'static [&'static str],
    reason: &'static str,
) -> Home {
    Home { program, library, items, places: &[], reason }
}

impl Home {
    const fn only_in(self, places: &'static [&'static str]) -> Self {
        Self { places, ..self }
    }
}

const HOMES: &[Home] = &[
    home("rf-cli", "rf_convert", &[], "serves `quantize`"),
    home("rf-cli", "rf_gguf", &[], "these print, convert and edit what a file holds").only_in(&[
        "commands/gguf/",
        "commands/info/",
        "commands/quantize.rs",
    ]),
    home("rf-cli", "rf_kernels", &["GpuBackend", "objects", "selftest"], "`doctor` and `selftest`"),
    home("rf-cli", "rf_model", &["ControlVector"], "`info` says whether it can be read"),
    home("rf-cli", "rf_profile", &[], "`profile`, `run -v` and `run --trace` print its reports"),
    home("rf-cli", "rf_quant", &["DType", "Error"], "values of options, cures for errors"),
    home("rf-cli", "rf_server", &[], "serves `serve`"),
    home("rf-cli", "rf_testing", &["SplitMix64"], "random command lines of a test"),
    home("rf-cli", "rf_tokenizer", &[], "`tokenize` prints ids and text"),
    home(
        "rf-cli",
        "rf_vision",
        &["Projector", "SoundProjector"],
        "`info` says whether it can be read",
    ),
    home("rf-bench", "rf_bench", &[], "its own library"),
    home(
        "rf-bench",
        "rf_profile",
        &["baseline", "monitor", "replace_file"],
        "default values, verdicts to print, the monitor of a session, output files",
    ),
    home(
        "xtask",
        "rf_emu",
        &["CodeObject", "KernelMetadata", "cost", "isa", "kernel_metadata"],
        "estimated times, and resources and instructions of kernels, to print and to compare",
    ),
    home("xtask", "rf_kernels_build", &[], "compiles kernels"),
    home("xtask", "rf_kernels", &["counted"], "launches whose instructions are counted"),
    home("xtask", "rf_quant", &["DType"], "names of formats"),
];

/// The crate that a source file belongs to.
#[derive(Clone, Copy)]
enum Code {
    Program(&'static str),
    /// A library that shares its package with a program.
    Library(&'static str),
}

/// The folders of sources. The first one that contains a file applies.
const FOLDERS: [(&str, Code); 4] = [
    ("crates/rf-bench/src/bin/rf-bench/", Code::Program("rf-bench")),
    ("crates/rf-bench/src/", Code::Library("rf-bench")),
    ("crates/rf-cli/src/", Code::Program("rf-cli")),
    ("xtask/src/", Code::Program("xtask")),
];

/// The files that make the options of an engine: the sizing policy, and a test in its own file.
const MAKERS_OF_ENGINE_OPTIONS: [&str; 2] =
    ["crates/rocmforge/src/sizing.rs", "crates/rf-server/src/kv_events/subscriber.rs"];

/// The crates that make such options otherwise: that of the type, and the support of tests.
const CRATES_OF_ENGINE_OPTIONS: [&str; 2] = ["crates/rf-engine/", "crates/rf-testing/"];

/// External libraries for programs.
const FOR_PROGRAMS: [&str; 4] = ["anyhow", "clap", "ctrlc", "indicatif"];

/// The modules of xtask, which check the repository. No library needs them.
const TASKS: [&str; 11] = [
    "bench",
    "dist",
    "doc",
    "emulate",
    "estimates",
    "instructions",
    "kernels",
    "main",
    "revision",
    "snapshot",
    "tidy",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".rs"]) {
        let mut folders = FOLDERS.iter();
        let found = folders.find_map(|(folder, code)| Some((*code, path.strip_prefix(folder)?)));
        if let Some((Code::Program("xtask"), inside)) = found
            && !TASKS.contains(&task(inside))
        {
            let message = "module of xtask that is no task: put it into a library, or list it";
            findings.push(Finding::new(path, 1, message));
        }
        let sizes = text.contains("EngineOptions") && must_not_size(path);
        if found.is_none() && !sizes {
            continue;
        }
        let violation = |names: &[String]| {
            let of_code = match found {
                Some((Code::Program(program), inside)) => {
                    violation_of_program(program, inside, names)
                }
                Some((Code::Library(library), _)) => violation_of_library(library, names),
                None => None,
            };
            of_code.or_else(|| sizes.then(|| violation_of_sizing(names)).flatten())
        };
        match syn::parse_file(text) {
            Ok(file) => check_items(path, &violation, &file.items, &mut findings),
            Err(error) => {
                let line = error.span().start().line;
                findings.push(Finding::new(path, line, format!("could not parse: {error}")));
            }
        }
    }
    findings
}

/// Returns true if a file belongs to the product and may not make the options of an engine.
fn must_not_size(path: &str) -> bool {
    path.starts_with("crates/")
        && path.contains("/src/")
        && !MAKERS_OF_ENGINE_OPTIONS.contains(&path)
        && !CRATES_OF_ENGINE_OPTIONS.iter().any(|of| path.starts_with(of))
}

/// The first component of a path, without its extension.
fn task(inside: &str) -> &str {
    inside.split(['/', '.']).next().unwrap_or_default()
}

fn check_items(
    path: &str,
    violation: &dyn Fn(&[String]) -> Option<String>,
    items: &[Item],
    findings: &mut Vec<Finding>,
) {
    for item in items.iter().filter(|item| !is_test(item)) {
        if let Item::Mod(module) = item {
            let items = module.content.as_ref().map(|(_, items)| items.as_slice());
            check_items(path, violation, items.unwrap_or_default(), findings);
            continue;
        }
        visit_paths(item, &mut |found| {
            if let Some(message) = violation(&found.names) {
                let finding = Finding::new(path, found.line, message);
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        });
    }
}

fn violation_of_program(program: &str, inside: &str, names: &[String]) -> Option<String> {
    let (library, rest) = names.split_first()?;
    if !library.starts_with("rf_") {
        return None;
    }
    let Some(home) =
        HOMES.iter().find(|home| home.program == program && home.library == library.as_str())
    else {
        return Some(format!("{program} must not use {library}: see the table of rule homes"));
    };
    if !home.places.is_empty() && !home.places.iter().any(|place| inside.starts_with(place)) {
        let places = home.places.join(", ");
        return Some(format!("{program} must not use {library} here, only in {places}"));
    }
    let item = rest.first()?;
    let allowed = home.items.is_empty() || home.items.contains(&item.as_str());
    (!allowed).then(|| {
        format!(
            "{program} must not use {library}::{item}: a library has to offer what needs it \
             (rule homes allows {})",
            home.items.join(", ")
        )
    })
}

fn violation_of_library(library: &str, names: &[String]) -> Option<String> {
    let first = names.first().filter(|name| FOR_PROGRAMS.contains(&name.as_str()))?;
    Some(format!("the library {library} must not use {first}, a dependency of its program"))
}

fn violation_of_sizing(names: &[String]) -> Option<String> {
    let makes = |pair: &[String]| {
        pair[0] == "EngineOptions" && matches!(pair[1].as_str(), "default" | "DEFAULT")
    };
    names
        .windows(2)
        .any(makes)
        .then(|| format!("only {} makes the options of an engine", MAKERS_OF_ENGINE_OPTIONS[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn domain_logic_in_a_program_is_found() {
        let text = "use rf_kernels::{Kernel, objects};\nfn f() { rf_kv::PagePool::new() }\n";
        let found = messages("crates/rf-cli/src/limits.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        let expected = "crates/rf-cli/src/limits.rs:1: rf-cli must not use rf_kernels::Kernel: ";
        assert!(found[0].starts_with(expected), "{found:?}");
        assert!(found[1].contains("must not use rf_kv"), "{found:?}");
    }

    #[test]
    fn libraries_that_serve_programs_and_tests_are_fine() {
        let text = "use rf_profile::{baseline, tools};\nfn f(_: rf_quant::DType) {}\n\
                    #[cfg(test)]\nmod tests { use rf_graph::GraphBuilder; }\n";
        assert_eq!(messages("crates/rf-cli/src/run.rs", text), [""; 0]);
        assert_eq!(messages("crates/rf-model/src/run.rs", "use rf_graph::Op;"), [""; 0]);
    }

    #[test]
    fn inline_modules_and_macros_are_looked_into() {
        let text = "mod gpu { fn f() { println!(\"{}\", rf_hip::devices()); } }\n";
        assert_eq!(messages("crates/rf-cli/src/device.rs", text).len(), 1);
    }

    #[test]
    fn a_library_uses_no_dependency_of_its_program() {
        let text = "use anyhow::Result;\nfn f() -> Result<()> { Ok(()) }\n";
        let found = messages("crates/rf-bench/src/session/rounds.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("the library rf-bench must not use anyhow"), "{found:?}");
        let program = "crates/rf-bench/src/bin/rf-bench/session.rs";
        assert_eq!(messages(program, text), [""; 0]);
        assert_eq!(messages(program, "use rf_engine::Engine;\n").len(), 1);
    }

    #[test]
    fn containers_are_read_by_commands_about_files_only() {
        let text = "use rf_gguf::Gguf;\n";
        assert_eq!(messages("crates/rf-cli/src/commands/info/report.rs", text), [""; 0]);
        assert_eq!(messages("crates/rf-cli/src/commands/gguf/diff.rs", text), [""; 0]);
        let found = messages("crates/rf-cli/src/commands/run.rs", text);
        assert!(
            found[0].contains("must not use rf_gguf here, only in commands/gguf/, "),
            "{found:?}"
        );
    }

    #[test]
    fn one_file_makes_the_options_of_an_engine() {
        let made = "fn f() { let o = rf_engine::EngineOptions::DEFAULT; }\n";
        let named = "use rf_engine::EngineOptions;\nfn f(_: &EngineOptions) {}\n\
                     #[cfg(test)]\nmod tests { fn f() { EngineOptions::default(); } }\n";
        let found = messages("crates/rf-device/src/kv_size.rs", made);
        assert!(found[0].contains("only crates/rocmforge/src/sizing.rs makes"), "{found:?}");
        assert_eq!(messages("crates/rf-device/src/kv_size.rs", named), [""; 0]);
        for other in [
            "crates/rocmforge/src/sizing.rs",
            "crates/rf-engine/src/engine.rs",
            "crates/rf-device/examples/placement.rs",
        ] {
            assert_eq!(messages(other, made), [""; 0], "{other}");
        }
    }

    #[test]
    fn modules_of_xtask_are_tasks() {
        assert_eq!(messages("xtask/src/tidy/text.rs", ""), [""; 0]);
        assert_eq!(messages("xtask/src/rounds.rs", "").len(), 1);
        assert_eq!(messages("xtask/src/rounds/plan.rs", "").len(), 1);
    }
}
