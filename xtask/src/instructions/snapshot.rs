//! Committed instruction counts, and their comparison with new counts.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs,
    path::Path,
};

use anyhow::{Context, Result};
use serde::Deserialize;

/// The growth in % above which an entry fails the check. A compiler's output is reproducible; the
/// margin is for changes elsewhere that shift inlining and register allocation.
const MAX_GROWTH_PERCENT: u64 = 2;

/// The maximum number of parts that a finding lists.
const MAX_NAMED_PARTS: usize = 3;

/// Instructions of one entry, by function or by class of instruction.
pub(crate) type Parts = BTreeMap<String, u64>;

/// Instruction counts under one compiler.
#[derive(Clone, Deserialize)]
#[serde(from = "Tables")]
pub(crate) struct Snapshot {
    /// The version of the compiler. Other versions generate other code.
    pub(crate) compiler: String,
    pub(crate) entries: BTreeMap<String, Parts>,
}

/// A snapshot as its file has it: a table per entry, or per first word of the names of entries,
/// which then is not repeated on each line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    compiler: String,
    entries: BTreeMap<String, BTreeMap<String, Line>>,
}

/// A line of a table.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// A part of the table's entry.
    Count(u64),
    /// The entry whose name ends with the key.
    Parts(Parts),
}

impl From<Tables> for Snapshot {
    fn from(Tables { compiler, entries: tables }: Tables) -> Self {
        let mut entries: BTreeMap<String, Parts> = BTreeMap::new();
        for (name, lines) in tables {
            for (key, line) in lines {
                match line {
                    Line::Parts(parts) => {
                        entries.insert(format!("{name} {key}"), parts);
                    }
                    Line::Count(count) => {
                        entries.entry(name.clone()).or_default().insert(key, count);
                    }
                }
            }
        }
        Self { compiler, entries }
    }
}

/// The differences between a committed snapshot and a new one.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    /// Entries that grew by more than 2 %, are missing or are new.
    pub(crate) findings: Vec<String>,
    /// Entries that shrank by more than 2 %.
    pub(crate) improvements: Vec<String>,
}

impl Snapshot {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Writes the snapshot after `header`, a comment.
    pub(crate) fn write(&self, path: &Path, header: &str) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        fs::write(path, format!("{header}{self}")).with_context(|| path.display().to_string())
    }

    pub(crate) fn compare(&self, current: &Self) -> Comparison {
        let mut comparison = Comparison::default();
        for (name, was) in &self.entries {
            let Some(is) = current.entries.get(name) else {
                comparison.findings.push(format!("{name}: missing"));
                continue;
            };
            let (before, after) = (total(was), total(is));
            let percent = 100.0 * (after as f64 / before.max(1) as f64 - 1.0);
            let change = format!("{name}: {before} → {after} instructions ({percent:+.1} %)");
            if after * 100 > before * (100 + MAX_GROWTH_PERCENT) {
                comparison.findings.push(format!("{change}; grew: {}", grown_parts(was, is)));
            } else if after * 100 < before * (100 - MAX_GROWTH_PERCENT) {
                comparison.improvements.push(change);
            }
        }
        let new = current.entries.keys().filter(|name| !self.entries.contains_key(*name));
        comparison.findings.extend(new.map(|name| format!("{name}: not in the snapshot")));
        comparison
    }
}

fn total(parts: &Parts) -> u64 {
    parts.values().sum()
}

/// Describes the parts that grew most.
fn grown_parts(was: &Parts, is: &Parts) -> String {
    let mut grown: Vec<(u64, &String)> = is
        .iter()
        .map(|(part, &after)| (after.saturating_sub(was.get(part).copied().unwrap_or(0)), part))
        .filter(|&(growth, _)| growth > 0)
        .collect();
    grown.sort_by(|a, b| b.cmp(a));
    let named = grown.iter().take(MAX_NAMED_PARTS);
    named.map(|(growth, part)| format!("{part} (+{growth})")).collect::<Vec<_>>().join(", ")
}

/// Returns true for keys that TOML allows without quotes.
fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// A name as a key of TOML.
fn key(name: &str) -> Cow<'_, str> {
    if is_bare(name) { name.into() } else { format!("{name:?}").into() }
}

/// One line per entry in tables of the first word of its name, or one table per entry if the names
/// of parts are long. There are no spaces around the counts, which saves a fifth of the bytes.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |parts: &Parts| {
            let parts: Vec<String> =
                parts.iter().map(|(part, count)| format!("{part}={count}")).collect();
            parts.join(",")
        };
        let inline = self.entries.values().flat_map(BTreeMap::keys).all(|part| is_bare(part));
        let mut text = format!("compiler = {:?}\n", self.compiler);
        let mut table = None;
        for (name, parts) in &self.entries {
            if let Some((word, rest)) = name.split_once(' ').filter(|_| inline) {
                if table.replace(word) != Some(word) {
                    writeln!(text, "\n[entries.{}]", key(word))?;
                }
                writeln!(text, "{}={{{}}}", key(rest), line(parts))?;
            } else {
                writeln!(text, "\n[entries.{}]", key(name))?;
                for (part, count) in parts {
                    writeln!(text, "{}={count}", key(part))?;
                }
            }
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(entries: &[(&str, &[(&str, u64)])]) -> Snapshot {
        let parts = |parts: &[(&str, u64)]| {
            parts.iter().map(|&(part, count)| (part.to_owned(), count)).collect()
        };
        let entries = entries.iter().map(|&(name, list)| (name.to_owned(), parts(list))).collect();
        Snapshot { compiler: "rustc 1".to_owned(), entries }
    }

    #[test]
    fn three_percent_more_is_found_with_the_name_of_the_function() {
        let was = snapshot(&[("decode", &[("matvec", 900), ("attention", 100)])]);
        let is = snapshot(&[("decode", &[("matvec", 895), ("attention", 135)])]);
        let comparison = was.compare(&is);
        let expected = "decode: 1000 → 1030 instructions (+3.0 %); grew: attention (+35)";
        assert_eq!(comparison.findings, [expected]);
        assert_eq!(comparison.improvements, [""; 0]);
    }

    #[test]
    fn two_percent_either_way_is_neither_found_nor_an_improvement() {
        let was = snapshot(&[("a", &[("f", 1000)]), ("b", &[("f", 1000)])]);
        let is = snapshot(&[("a", &[("f", 1020)]), ("b", &[("f", 980)])]);
        assert_eq!(was.compare(&is), Comparison::default());
    }

    #[test]
    fn less_is_an_improvement() {
        let was = snapshot(&[("a", &[("f", 1000)])]);
        let is = snapshot(&[("a", &[("f", 970)])]);
        assert_eq!(was.compare(&is).findings, [""; 0]);
        assert_eq!(was.compare(&is).improvements, ["a: 1000 → 970 instructions (-3.0 %)"]);
    }

    #[test]
    fn missing_and_new_entries_are_found() {
        let was = snapshot(&[("a", &[("f", 1)])]);
        let is = snapshot(&[("b", &[("f", 1)])]);
        assert_eq!(was.compare(&is).findings, ["a: missing", "b: not in the snapshot"]);
    }

    #[test]
    fn a_part_that_was_not_there_before_is_named() {
        let was = snapshot(&[("a", &[("f", 100)])]);
        let is = snapshot(&[("a", &[("f", 100), ("g<h>", 50)])]);
        assert!(was.compare(&is).findings[0].ends_with("grew: g<h> (+50)"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        for part in ["valu", "<rf_cpu::Isa as X>::run::{{closure}}"] {
            let written = snapshot(&[
                ("a gfx1030", &[(part, 2)]),
                ("a gfx1100 loop 1", &[(part, 3)]),
                ("b", &[("f", 1)]),
            ]);
            let read: Snapshot = toml::from_str(&format!("# Header.\n{written}")).unwrap();
            assert_eq!((read.compiler, read.entries), (written.compiler, written.entries));
        }
    }
}
