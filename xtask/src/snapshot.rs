//! Committed measurements of code, in a form that a reviewer can read.
//!
//! A line is a template: the kernels that differ in a format only, or the workloads that differ in
//! their number of tokens only. A change of a template then changes one line per target. What the
//! numbers consist of is not committed: it follows from the code of a revision, and the gates
//! compute it when a number has grown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rf_quant::DType;
use serde::Deserialize;

/// The growth in % above which an entry fails the check. A compiler's output is reproducible; the
/// margin is for changes elsewhere that shift inlining and register allocation.
const MAX_GROWTH_PERCENT: u64 = 2;

/// Formats of the KV cache that are no formats of weights.
const CACHES: [&str; 2] = ["fp8", "packed"];

/// Measurements under one compiler.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "File")]
pub(crate) struct Snapshot {
    /// The version of the compiler. Other versions generate other code.
    pub(crate) compiler: String,
    /// Numbers by target and name.
    pub(crate) targets: BTreeMap<String, BTreeMap<String, Vec<u64>>>,
}

/// A snapshot as in its file: tables of targets with lines of templates.
#[derive(Deserialize)]
struct File {
    compiler: String,
    #[serde(flatten)]
    targets: BTreeMap<String, BTreeMap<String, Line>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// The only entry of its template, under its own name.
    Entry(Numbers),
    /// The entries of a template, by the text that `*` stands for.
    Template(BTreeMap<String, Numbers>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Numbers {
    One(u64),
    List(Vec<u64>),
}

impl From<File> for Snapshot {
    fn from(file: File) -> Self {
        let numbers = |numbers| match numbers {
            Numbers::One(number) => vec![number],
            Numbers::List(list) => list,
        };
        let entries = |lines: BTreeMap<String, Line>| {
            let mut entries = BTreeMap::new();
            for (name, line) in lines {
                match line {
                    Line::Entry(entry) => {
                        entries.insert(name, numbers(entry));
                    }
                    Line::Template(list) => entries.extend(
                        list.into_iter()
                            .map(|(part, n)| (name.replacen('*', &part, 1), numbers(n))),
                    ),
                }
            }
            entries
        };
        let targets = file.targets.into_iter().map(|(target, lines)| (target, entries(lines)));
        Self { compiler: file.compiler, targets: targets.collect() }
    }
}

/// An entry of two snapshots. `None`: it is missing in one of them.
pub(crate) struct Pair<'a> {
    pub(crate) target: &'a str,
    pub(crate) name: &'a str,
    pub(crate) was: Option<&'a [u64]>,
    pub(crate) is: Option<&'a [u64]>,
}

/// The differences between committed instruction counts and new ones.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SnapshotComparison<'a> {
    /// Entries of which a number grew by more than 2 %.
    pub(crate) grown: Vec<Change<'a>>,
    /// Entries of which a number shrank by more than 2 %, and none grew so much.
    pub(crate) shrunk: Vec<Change<'a>>,
    /// Entries that are new or missing.
    pub(crate) unmatched: Vec<String>,
}

/// An entry whose instruction counts changed: all instructions and, of kernels, those of loops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change<'a> {
    pub(crate) target: &'a str,
    pub(crate) name: &'a str,
    pub(crate) was: &'a [u64],
    pub(crate) is: &'a [u64],
}

impl Snapshot {
    pub(crate) fn new(compiler: &str) -> Self {
        Self { compiler: compiler.to_owned(), targets: BTreeMap::new() }
    }

    pub(crate) fn insert(&mut self, target: &str, name: &str, numbers: Vec<u64>) {
        let entries = self.targets.entry(target.to_owned()).or_default();
        entries.insert(name.to_owned(), numbers);
    }

    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Writes the snapshot after `header`, a comment.
    pub(crate) fn write(&self, path: &Path, header: &str) -> Result<()> {
        fs::write(path, format!("{header}{self}")).with_context(|| path.display().to_string())
    }

    /// Keeps the committed numbers of entries that changed by at most 2 %: an update then shows
    /// what changed, and small changes add up until they exceed the margin. Nothing is kept of
    /// another compiler.
    pub(crate) fn keep_small_changes(&mut self, committed: &Self) {
        if committed.compiler != self.compiler {
            return;
        }
        let small = |was: &Vec<u64>, is: &Vec<u64>| {
            let change = Change { target: "", name: "", was, is };
            !change.any(grew) && !change.any(shrank)
        };
        for (target, entries) in &mut self.targets {
            let Some(committed) = committed.targets.get(target) else { continue };
            for (name, is) in entries {
                if let Some(was) = committed.get(name).filter(|was| small(was, is)) {
                    is.clone_from(was);
                }
            }
        }
    }

    /// Adds the targets of `committed` that this build does not have. Entries of another compiler
    /// are dropped.
    pub(crate) fn keep_other_targets(&mut self, committed: Self) {
        if committed.compiler == self.compiler {
            for (target, entries) in committed.targets {
                self.targets.entry(target).or_insert(entries);
            }
        }
    }

    /// The entries of this snapshot and of `current`, for the targets of `current`.
    pub(crate) fn pairs<'a>(&'a self, current: &'a Self) -> Vec<Pair<'a>> {
        let mut pairs = Vec::new();
        for (target, is) in &current.targets {
            let was = self.targets.get(target);
            let names: BTreeSet<&String> =
                was.into_iter().flat_map(BTreeMap::keys).chain(is.keys()).collect();
            pairs.extend(names.into_iter().map(|name| Pair {
                target,
                name,
                was: was.and_then(|was| was.get(name)).map(Vec::as_slice),
                is: is.get(name).map(Vec::as_slice),
            }));
        }
        pairs
    }

    /// Compares instruction counts, for the targets of `current`.
    pub(crate) fn compare<'a>(&'a self, current: &'a Self) -> SnapshotComparison<'a> {
        let mut comparison = SnapshotComparison::default();
        for Pair { target, name, was, is } in self.pairs(current) {
            let (was, is) = match (was, is) {
                (Some(was), Some(is)) => (was, is),
                (None, _) => {
                    comparison.unmatched.push(format!("{name} for {target}: new"));
                    continue;
                }
                (_, None) => {
                    comparison.unmatched.push(format!("{name} for {target}: missing"));
                    continue;
                }
            };
            let change = Change { target, name, was, is };
            if change.any(grew) {
                comparison.grown.push(change);
            } else if change.any(shrank) {
                comparison.shrunk.push(change);
            }
        }
        comparison
    }
}

/// Returns true if a number grew by more than the margin.
fn grew(was: u64, is: u64) -> bool {
    is * 100 > was * (100 + MAX_GROWTH_PERCENT)
}

/// Returns true if a number shrank by more than the margin.
fn shrank(was: u64, is: u64) -> bool {
    is * 100 < was * (100 - MAX_GROWTH_PERCENT)
}

impl Change<'_> {
    /// The pairs of numbers. A number that one snapshot lacks is 0.
    fn numbers(&self) -> impl Iterator<Item = (u64, u64)> {
        let number = |list: &[u64], index| list.get(index).copied().unwrap_or(0);
        (0..self.was.len().max(self.is.len()))
            .map(move |index| (number(self.was, index), number(self.is, index)))
    }

    fn any(&self, test: impl Fn(u64, u64) -> bool) -> bool {
        self.numbers().any(|(was, is)| test(was, is))
    }

    /// The largest growth of a number in %.
    pub(crate) fn percent(&self) -> f64 {
        self.numbers().map(|(was, is)| percent(was, is)).fold(f64::MIN, f64::max)
    }
}

fn percent(was: u64, is: u64) -> f64 {
    100.0 * (is as f64 / was.max(1) as f64 - 1.0)
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}:", self.name, self.target)?;
        for ((was, is), what) in self.numbers().zip([" instructions", ", in loops"]) {
            write!(f, "{what} {was} → {is} ({:+.1} %)", percent(was, is))?;
        }
        Ok(())
    }
}

/// The template of a name, in which `*` replaces a format or a number of tokens, and the replaced
/// text.
pub(crate) fn template(name: &str) -> Option<(String, &str)> {
    if let Some((workload, tokens)) =
        name.strip_suffix(" tokens").and_then(|name| name.rsplit_once(", "))
    {
        return Some((format!("{workload}, * tokens"), tokens));
    }
    let formats: Vec<String> = DType::ALL.iter().map(|dtype| dtype.name().to_lowercase()).collect();
    let formats = || formats.iter().map(String::as_str).chain(CACHES);
    name.match_indices('_').find_map(|(at, _)| {
        let rest = &name[at + 1..];
        let starts =
            |format: &&str| rest.strip_prefix(format).is_some_and(|suffix| suffix.starts_with('_'));
        let length = formats().filter(starts).map(str::len).max()?;
        Some((format!("{}_*{}", &name[..at], &rest[length..]), &rest[..length]))
    })
}

/// The lines of a target by their keys.
fn lines(entries: &BTreeMap<String, Vec<u64>>) -> BTreeMap<String, String> {
    let mut templates: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in entries.keys() {
        let key = template(name).map_or_else(|| name.clone(), |(key, _)| key);
        templates.entry(key).or_default().push(name);
    }
    let line = |(key, names): (String, Vec<&str>)| {
        if let [name] = names[..] {
            return (name.to_owned(), list(&entries[name]));
        }
        let part = |name: &&str| {
            let part = template(name).map_or("", |(_, part)| part);
            format!("{part}={}", list(&entries[*name]))
        };
        let parts: Vec<String> = names.iter().map(part).collect();
        (key, format!("{{{}}}", parts.join(", ")))
    };
    templates.into_iter().map(line).collect()
}

fn list(numbers: &[u64]) -> String {
    if let [number] = numbers {
        return number.to_string();
    }
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("[{}]", numbers.join(","))
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_bare = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let mut text = format!("compiler = {:?}\n", self.compiler);
        for (target, entries) in &self.targets {
            writeln!(text, "\n[{target}]")?;
            for (key, line) in lines(entries) {
                if is_bare(&key) {
                    writeln!(text, "{key} = {line}")?;
                } else {
                    writeln!(text, "{key:?} = {line}")?;
                }
            }
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(entries: &[(&str, &str, &[u64])]) -> Snapshot {
        let mut snapshot = Snapshot::new("clang \"x\"");
        for (target, name, numbers) in entries {
            snapshot.insert(target, name, numbers.to_vec());
        }
        snapshot
    }

    #[test]
    fn names_are_divided_at_the_format_or_the_tokens() {
        let expected = [
            ("matvec_q4_k_q8_f32_n1", Some(("matvec_*_q8_f32_n1", "q4_k"))),
            ("matvec_mixed_q4_k_q6_k_q8_f32_n1", Some(("matvec_mixed_*_q6_k_q8_f32_n1", "q4_k"))),
            ("matmul_wide_mxfp6_e3m2_f16_f32", Some(("matmul_wide_*_f16_f32", "mxfp6_e3m2"))),
            ("attention_decode_fp8_d128_g1", Some(("attention_decode_*_d128_g1", "fp8"))),
            ("rope_append_f32", None),
            ("glu/Silu, 33 tokens", Some(("glu/Silu, * tokens", "33"))),
            ("demo model, decode, per token", None),
        ];
        for (name, expected) in expected {
            let found = template(name);
            let found = found.as_ref().map(|(template, part)| (template.as_str(), *part));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn an_update_keeps_the_numbers_that_changed_little() {
        let committed = snapshot(&[("avx2", "a", &[100]), ("avx2", "b", &[100, 10])]);
        let mut current =
            snapshot(&[("avx2", "a", &[102]), ("avx2", "b", &[100, 11]), ("avx2", "c", &[1])]);
        current.keep_small_changes(&committed);
        let expected =
            snapshot(&[("avx2", "a", &[100]), ("avx2", "b", &[100, 11]), ("avx2", "c", &[1])]);
        assert_eq!(current, expected);
        let mut shrunk = snapshot(&[("avx2", "a", &[97])]);
        shrunk.keep_small_changes(&committed);
        assert_eq!(shrunk, snapshot(&[("avx2", "a", &[97])]));
    }

    #[test]
    fn a_line_is_a_template_and_is_read_again() {
        let written = snapshot(&[
            ("gfx1030", "add_f32", &[57, 17]),
            ("gfx1030", "matvec_q4_k_q8_f32_n1", &[900, 300]),
            ("gfx1030", "matvec_q8_0_q8_f32_n1", &[16]),
            ("gfx1100", "matvec_q4_k_q8_f32_n1", &[]),
        ]);
        let text = "compiler = \"clang \\\"x\\\"\"\n\n[gfx1030]\nadd_f32 = [57,17]\n\
                    \"matvec_*_q8_f32_n1\" = {q4_k=[900,300], q8_0=16}\n\n\
                    [gfx1100]\nmatvec_q4_k_q8_f32_n1 = []\n";
        assert_eq!(written.to_string(), text);
        let read: Snapshot = toml::from_str(&format!("# Header.\n{text}")).unwrap();
        assert_eq!(read, written);
    }

    #[test]
    fn three_percent_more_of_one_number_is_found() {
        let was = snapshot(&[("a", "k", &[1000, 100]), ("a", "l", &[1000, 100])]);
        let is = snapshot(&[("a", "k", &[1003, 103]), ("a", "l", &[1030, 100])]);
        let grown: Vec<String> = was.compare(&is).grown.iter().map(Change::to_string).collect();
        let expected = [
            "k for a: instructions 1000 → 1003 (+0.3 %), in loops 100 → 103 (+3.0 %)",
            "l for a: instructions 1000 → 1030 (+3.0 %), in loops 100 → 100 (+0.0 %)",
        ];
        assert_eq!(grown, expected);
        assert!((was.compare(&is).grown[0].percent() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn two_percent_either_way_is_neither_found_nor_an_improvement() {
        let was = snapshot(&[("a", "k", &[1000]), ("a", "l", &[1000])]);
        let is = snapshot(&[("a", "k", &[1020]), ("a", "l", &[980])]);
        assert_eq!(was.compare(&is), SnapshotComparison::default());
    }

    #[test]
    fn less_is_an_improvement() {
        let was = snapshot(&[("a", "k", &[1000])]);
        let is = snapshot(&[("a", "k", &[970])]);
        let comparison = was.compare(&is);
        assert_eq!(comparison.grown, []);
        assert_eq!(comparison.shrunk[0].to_string(), "k for a: instructions 1000 → 970 (-3.0 %)");
    }

    #[test]
    fn missing_and_new_entries_are_found_on_the_targets_of_the_build() {
        let was = snapshot(&[("a", "k", &[1]), ("b", "k", &[1])]);
        let is = snapshot(&[("a", "l", &[1])]);
        assert_eq!(was.compare(&is).unmatched, ["k for a: missing", "l for a: new"]);
    }

    #[test]
    fn a_loop_where_there_was_none_is_found() {
        let was = snapshot(&[("a", "k", &[1000])]);
        let is = snapshot(&[("a", "k", &[1000, 10])]);
        assert_eq!(was.compare(&is).grown.len(), 1);
    }

    #[test]
    fn writing_keeps_the_targets_outside_the_build() {
        let committed = || snapshot(&[("a", "k", &[1]), ("b", "k", &[1]), ("b", "l", &[1])]);
        let mut current = snapshot(&[("b", "k", &[2])]);
        current.keep_other_targets(committed());
        assert_eq!(current, snapshot(&[("a", "k", &[1]), ("b", "k", &[2])]));

        let mut newer = snapshot(&[("b", "k", &[2])]);
        newer.compiler = "another".to_owned();
        newer.keep_other_targets(committed());
        assert_eq!(newer.targets.len(), 1);
    }
}
