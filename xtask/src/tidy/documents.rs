//! Rule *documents*: lists in documents that mirror code are complete.
//!
//! Such a list is the text between `<!-- tidy: NAME -->` and the next `<!-- tidy: end -->`; `NAME`
//! selects the list in the code.

use std::collections::BTreeSet;

use rf_quant::DType;
use serde::Deserialize;
use syn::visit::{self, Visit};

use super::circles::exceptions::{EXCEPTIONS, Exception};
use super::finding::Finding;
use super::layering;
use super::sources::UNSAFE_ALLOWED;
use super::tree::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const COMMANDS: &str = "docs/cli.md";
const README: &str = "README.md";
const GOLDEN_MODELS: &str = "golden/arch/index.json";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = crates(tree);
    let unsafe_paths = UNSAFE_ALLOWED.iter().map(|&path| path.to_owned()).collect();
    findings.extend(compare(tree, ARCHITECTURE, "unsafe", &code_spans, &unsafe_paths));
    findings.extend(circles(tree, EXCEPTIONS));
    let formats = DType::ALL.iter().map(ToString::to_string).collect();
    findings.extend(compare(tree, README, "formats", &words, &formats));
    findings.extend(architectures(tree));
    findings.extend(commands(tree));
    findings.extend(lengths(tree));
    findings
}

/// The first documents that a newcomer reads stay short enough to be read whole.
fn lengths(tree: &Tree) -> Vec<Finding> {
    const MOST_LINES: [(&str, usize); 2] = [(README, 150), (ARCHITECTURE, 250)];
    let mut findings = Vec::new();
    for (path, most) in MOST_LINES {
        let lines = tree.text(path).map_or(0, |text| text.lines().count());
        if lines > most {
            findings.push(Finding::new(
                path,
                most + 1,
                format!("{lines} lines, the limit is {most}"),
            ));
        }
    }
    findings
}

/// The crates of the workspace in the order of the table of layers, each with a file to start at.
fn crates(tree: &Tree) -> Vec<Finding> {
    if tree.packages.is_empty() {
        return Vec::new();
    }
    let (line, table) = match block(tree, ARCHITECTURE, "crates") {
        Ok(found) => found,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    let mut named = Vec::new();
    for (number, row) in (line..).zip(table.lines()) {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let (Some(name), Some(start)) = (cells.next(), cells.nth(1)) else { continue };
        let name = name.trim_matches('`');
        let folder = match name {
            "xtask" => "xtask/src".to_owned(),
            "rocmforge" => "crates/rocmforge/src".to_owned(),
            _ if name.starts_with("rf-") => format!("crates/{name}/src"),
            _ => continue,
        };
        named.push(name.to_owned());
        let file = format!("{folder}/{}", start.trim_matches('`'));
        if tree.text(&file).is_none() {
            findings.push(Finding::new(ARCHITECTURE, number, format!("{file} does not exist")));
        }
    }
    let expected = layering::names_of(&tree.packages);
    if named != expected {
        let message = format!("the crates, lowest first, are {}", expected.join(" "));
        findings.push(Finding::new(ARCHITECTURE, line, message));
    }
    findings
}

/// The architectures of the README: those of the code, each with a golden model.
fn architectures(tree: &Tree) -> Vec<Finding> {
    let names = families(tree);
    if names.is_empty() {
        return Vec::new();
    }
    let mut findings = compare(tree, README, "architectures", &code_spans, &names);
    findings.extend(golden_models(tree, &names));
    findings
}

/// Reports each architecture that no golden model in the repository proves, and each model whose
/// file is not there.
fn golden_models(tree: &Tree, architectures: &BTreeSet<String>) -> Vec<Finding> {
    #[derive(Deserialize)]
    struct Index {
        models: Vec<Model>,
        #[serde(default)]
        embeddings: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        architecture: String,
        file: String,
    }
    let finding = |message: String| Finding::new(GOLDEN_MODELS, 1, message);
    let Some(text) = tree.text(GOLDEN_MODELS) else {
        return vec![finding("missing: it lists the golden models of the architectures".into())];
    };
    let Index { mut models, embeddings } = match serde_json::from_str(text) {
        Ok(index) => index,
        Err(error) => return vec![finding(format!("not an index of golden models: {error}"))],
    };
    models.extend(embeddings);
    let folder = GOLDEN_MODELS.trim_end_matches("index.json");
    let is_tracked = |model: &Model| {
        let path = format!("{folder}{}", model.file);
        tree.files.iter().any(|file| file.path == path)
    };
    let (tracked, missing): (Vec<Model>, Vec<Model>) = models.into_iter().partition(is_tracked);
    let unproven = architectures
        .iter()
        .filter(|name| tracked.iter().all(|model| model.architecture != **name))
        .map(|name| finding(format!("architecture {name} has no golden model")));
    let missing = missing.iter().map(|model| finding(format!("{} is not tracked", model.file)));
    missing.chain(unproven).collect()
}

/// The names of the families: the field `name` of each `Family` in rf-model.
fn families(tree: &Tree) -> BTreeSet<String> {
    const FOLDER: &str = "crates/rf-model/src/families/";
    struct Names(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
            if let syn::Member::Named(member) = &field.member
                && member == "name"
                && let syn::Expr::Lit(literal) = &field.expr
                && let syn::Lit::Str(name) = &literal.lit
            {
                self.0.insert(name.value());
            }
            visit::visit_field_value(self, field);
        }
    }
    let mut names = Names(BTreeSet::new());
    for (_, text) in tree.texts(&[".rs"]).filter(|(path, _)| path.starts_with(FOLDER)) {
        if let Ok(file) = syn::parse_file(text) {
            names.visit_file(&file);
        }
    }
    names.0
}

/// The files of the accepted cycles, each cycle with its reason.
fn circles(tree: &Tree, exceptions: &[Exception]) -> Vec<Finding> {
    let files = exceptions.iter().flat_map(|exception| exception.files);
    let files = files.map(|&path| path.to_owned()).collect();
    let mut findings = compare(tree, ARCHITECTURE, "circles", &code_spans, &files);
    if let Ok((line, text)) = block(tree, ARCHITECTURE, "circles") {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let missing = exceptions.iter().filter(|exception| !text.contains(exception.reason));
        findings.extend(missing.map(|exception| {
            let message = format!("circles: the reason \"{}\" is missing", exception.reason);
            Finding::new(ARCHITECTURE, line, message)
        }));
    }
    findings
}

/// The subcommands of rf-cli, each at the start of a paragraph of the page of commands.
fn commands(tree: &Tree) -> Vec<Finding> {
    let sources = tree.texts(&[".rs"]).filter(|(path, _)| path.starts_with("crates/rf-cli/src/"));
    let mut commands = BTreeSet::new();
    for (_, text) in sources {
        let Ok(file) = syn::parse_file(text) else { continue };
        for item in file.items {
            if let syn::Item::Enum(item) = item
                && item.ident == "Command"
            {
                let shown = item.variants.iter().filter(|variant| !is_hidden(&variant.attrs));
                commands.extend(shown.map(|variant| kebab(&variant.ident)));
            }
        }
    }
    if commands.is_empty() {
        return Vec::new();
    }
    compare(tree, COMMANDS, "commands", &bold_at_line_starts, &commands)
}

/// Returns true if `#[command(hide = true)]` keeps a command out of the help.
fn is_hidden(attributes: &[syn::Attribute]) -> bool {
    let is_hidden = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) => list.tokens.to_string().contains("hide = true"),
        _ => false,
    };
    attributes.iter().any(is_hidden)
}

fn kebab(name: &syn::Ident) -> String {
    let mut kebab = String::new();
    for c in name.to_string().chars() {
        if c.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.extend(c.to_lowercase());
    }
    kebab
}

/// Compares the names that `extract` finds in a block with those of the code.
fn compare(
    tree: &Tree,
    path: &str,
    name: &str,
    extract: &dyn Fn(&str) -> BTreeSet<String>,
    expected: &BTreeSet<String>,
) -> Vec<Finding> {
    if tree.text(path).is_none() {
        return Vec::new();
    }
    let (line, text) = match block(tree, path, name) {
        Ok(found) => found,
        Err(finding) => return vec![finding],
    };
    let found = extract(text);
    let missing = expected.difference(&found).map(|item| format!("{name}: {item} is missing"));
    let extra = found.difference(expected).map(|item| format!("{name}: {item} is not in the code"));
    missing.chain(extra).map(|message| Finding::new(path, line, message)).collect()
}

/// The text between the markers of `name`, and the line that it starts in.
fn block<'a>(tree: &'a Tree, path: &str, name: &str) -> Result<(usize, &'a str), Finding> {
    let text = tree.text(path).unwrap_or_default();
    let marker = format!("<!-- tidy: {name} -->");
    let missing = || Finding::new(path, 1, format!("no {marker} … <!-- tidy: end -->"));
    let start = text.find(&marker).ok_or_else(missing)? + marker.len();
    let length = text[start..].find("<!-- tidy: end -->").ok_or_else(missing)?;
    Ok((text[..start].lines().count(), &text[start..start + length]))
}

/// The texts in backquotes.
fn code_spans(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn words(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn bold_at_line_starts(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| line.starts_with("**"));
    lines.flat_map(|line| line.split("**").skip(1).step_by(2)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn architectures_are_compared_both_ways() {
        let two = "const A: F = F { name: \"a\", n: 1 }; const B: F = F { name: \"b\" };";
        let one = "const C: F = F { name: \"c\", ..A };";
        let with = |readme: &str| {
            let files = [
                ("crates/rf-model/src/families/ab.rs", two),
                ("crates/rf-model/src/families/c.rs", one),
                ("README.md", readme),
                (GOLDEN_MODELS, &index(&["a", "b", "c"])),
                ("golden/arch/a.gguf", ""),
                ("golden/arch/b.gguf", ""),
                ("golden/arch/c.gguf", ""),
            ];
            messages(&architectures(&Tree::of(&files)))
        };
        let list = "x\n<!-- tidy: architectures -->`a`, `b`, `c`<!-- tidy: end -->";
        assert_eq!(with(list), [""; 0]);
        let found = with("<!-- tidy: architectures -->`a`, `b`, `d`<!-- tidy: end -->");
        let expected = [
            "README.md:1: architectures: c is missing",
            "README.md:1: architectures: d is not in the code",
        ];
        assert_eq!(found, expected);
        assert!(with("no list")[0].contains("no <!-- tidy: architectures -->"));
    }

    /// An index of golden models, one of each architecture.
    fn index(architectures: &[&str]) -> String {
        let model =
            |name: &&str| format!("{{\"architecture\": \"{name}\", \"file\": \"{name}.gguf\"}}");
        let models: Vec<String> = architectures.iter().map(model).collect();
        format!("{{\"models\": [{}]}}", models.join(", "))
    }

    #[test]
    fn an_architecture_without_a_golden_model_is_found() {
        let names = ["a", "b"].map(str::to_owned).into();
        let with = |files: &[(&str, &str)]| messages(&golden_models(&Tree::of(files), &names));
        let (both, one) = (index(&["a", "b"]), index(&["a"]));
        let (a, b) = (("golden/arch/a.gguf", ""), ("golden/arch/b.gguf", ""));
        assert_eq!(with(&[(GOLDEN_MODELS, &both), a, b]), [""; 0]);
        let unproven = "golden/arch/index.json:1: architecture b has no golden model";
        assert_eq!(with(&[(GOLDEN_MODELS, &one), a, b]), [unproven]);
        let missing = "golden/arch/index.json:1: b.gguf is not tracked";
        assert_eq!(with(&[(GOLDEN_MODELS, &both), a]), [missing, unproven]);
        assert_eq!(with(&[a, b]).len(), 1);
        assert!(with(&[(GOLDEN_MODELS, "{}")])[0].contains("not an index"));
    }

    #[test]
    fn a_long_readme_is_found() {
        let with =
            |lines: usize| messages(&lengths(&Tree::of(&[("README.md", &"line\n".repeat(lines))])));
        assert_eq!(with(150), [""; 0]);
        assert_eq!(with(151), ["README.md:151: 151 lines, the limit is 150"]);
    }

    #[test]
    fn cycles_are_listed_with_their_reasons() {
        let exceptions = [Exception { files: &["a.rs", "b.rs"], reason: "they are one type" }];
        let with =
            |text: &str| messages(&circles(&Tree::of(&[("ARCHITECTURE.md", text)]), &exceptions));
        let list =
            "<!-- tidy: circles -->\n`a.rs`, `b.rs`: they are\n  one type.\n<!-- tidy: end -->";
        assert_eq!(with(list), [""; 0]);
        let found = with("<!-- tidy: circles -->`a.rs`: no reason.<!-- tidy: end -->");
        let expected = [
            "ARCHITECTURE.md:1: circles: b.rs is missing",
            "ARCHITECTURE.md:1: circles: the reason \"they are one type\" is missing",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_command_has_a_paragraph() {
        let source = "enum Command { Run(A), SelfTest, #[command(hide = true)] Probe }";
        let with = |page: &str| {
            let files = [("crates/rf-cli/src/args.rs", source), (COMMANDS, page)];
            messages(&commands(&Tree::of(&files)))
        };
        let both = "<!-- tidy: commands -->\n**run** and **self-test** do x.\n<!-- tidy: end -->";
        assert_eq!(with(both), [""; 0]);
        let one = "<!-- tidy: commands -->\n**run** does **x**\n<!-- tidy: end -->";
        assert_eq!(with(one).len(), 2);
    }
}
