//! `kernels/resources.toml`: the accepted resources of every kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    fs,
    path::Path,
};

use anyhow::{Context, Result};
use serde::Deserialize;

const HEADER: &str = "\
# The resources of every kernel. `cargo xtask kernels --report --bless` writes this file;
# `cargo xtask kernels --report --check` fails if a kernel is worse, new or missing. waves is the
# number of waves that fit on a SIMD.
";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Snapshot {
    /// The compiler, as the first line of `--version`: resources depend on it.
    pub(super) compiler: String,
    /// The entries by kernel and target.
    pub(super) kernels: BTreeMap<String, BTreeMap<String, Entry>>,
}

/// The resources of a kernel on a target.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) vgprs: u32,
    pub(super) sgprs: u32,
    #[serde(default)]
    pub(super) spills: u32,
    #[serde(default)]
    pub(super) scratch_bytes: u32,
    #[serde(default)]
    pub(super) lds_bytes: u32,
    pub(super) waves: u32,
}

impl Snapshot {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("{}; write it with --bless", path.display()))?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.to_string()).with_context(|| path.display().to_string())
    }

    /// Adds the entries of `committed` for targets outside this build. Entries of another compiler
    /// are dropped.
    pub(super) fn keep_other_targets(&mut self, committed: Self) {
        if committed.compiler != self.compiler {
            return;
        }
        let built: BTreeSet<String> = self.rows().map(|((_, target), _)| target.clone()).collect();
        for (kernel, mut entries) in committed.kernels {
            entries.retain(|target, _| !built.contains(target));
            if !entries.is_empty() {
                self.kernels.entry(kernel).or_default().extend(entries);
            }
        }
    }

    /// The kernels that are worse, new or missing in `current`, on the targets of its build.
    pub(super) fn differences(&self, current: &Self) -> Vec<String> {
        let built =
            |target: &String| current.kernels.values().any(|entries| entries.contains_key(target));
        let was = self.rows().filter(|&((_, target), _)| built(target));
        let was: BTreeMap<_, _> = was.collect();
        let is: BTreeMap<_, _> = current.rows().collect();

        let mut differences = Vec::new();
        for (&(kernel, target), entry) in &was {
            match is.get(&(kernel, target)) {
                None => differences.push(format!("{kernel} for {target}: missing")),
                Some(now) if now.is_worse_than(entry) => {
                    differences.push(format!("{kernel} for {target}: was {entry}, is {now}"));
                }
                Some(_) => {}
            }
        }
        let new = is.iter().filter(|(key, _)| !was.contains_key(*key));
        differences.extend(
            new.map(|((kernel, target), entry)| format!("{kernel} for {target}: new, {entry}")),
        );
        if !differences.is_empty() {
            let hint = "kernels/resources.toml differs: review the changes, then run \
                        `cargo xtask kernels --report --bless`";
            differences.push(hint.to_owned());
        }
        differences
    }

    fn rows(&self) -> impl Iterator<Item = ((&String, &String), &Entry)> {
        self.kernels.iter().flat_map(|(kernel, entries)| {
            entries.iter().map(move |(target, entry)| ((kernel, target), entry))
        })
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{HEADER}compiler = {:?}\n", self.compiler);
        for (kernel, entries) in &self.kernels {
            write!(text, "\n[kernels.{kernel}]\n")?;
            for (target, entry) in entries {
                // Without the spaces, which are a sixth of the bytes.
                writeln!(text, "{target}={{{}}}", entry.to_string().replace(' ', ""))?;
            }
        }
        f.write_str(&text)
    }
}

impl Entry {
    /// Compares occupancy and memory. Register counts change with every edit and matter only
    /// through occupancy.
    fn is_worse_than(&self, other: &Self) -> bool {
        self.spills > other.spills
            || self.scratch_bytes > other.scratch_bytes
            || self.lds_bytes > other.lds_bytes
            || self.waves < other.waves
    }
}

/// Prints the entry as in the file, without fields that are usually 0.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vgprs = {}, sgprs = {}", self.vgprs, self.sgprs)?;
        for (name, value) in [
            ("spills", self.spills),
            ("scratch_bytes", self.scratch_bytes),
            ("lds_bytes", self.lds_bytes),
        ] {
            if value > 0 {
                write!(f, ", {name} = {value}")?;
            }
        }
        write!(f, ", waves = {}", self.waves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(kernels: &[(&str, &str, u32)]) -> Snapshot {
        let mut snapshot =
            Snapshot { compiler: "clang \"x\"".to_owned(), kernels: BTreeMap::new() };
        for &(kernel, target, waves) in kernels {
            let entry =
                Entry { vgprs: 40, sgprs: 16, spills: 0, scratch_bytes: 0, lds_bytes: 512, waves };
            let entries = snapshot.kernels.entry(kernel.to_owned()).or_default();
            entries.insert(target.to_owned(), entry);
        }
        snapshot
    }

    #[test]
    fn a_written_snapshot_is_read_back() {
        let written = snapshot(&[("a", "gfx1030", 16), ("a", "gfx1100", 12), ("b", "gfx1100", 8)]);
        let read: Snapshot = toml::from_str(&written.to_string()).unwrap();
        assert_eq!(read.compiler, written.compiler);
        assert_eq!(written.differences(&read), [""; 0]);
        assert_eq!(read.kernels["a"]["gfx1100"].waves, 12);
    }

    #[test]
    fn changes_are_reported_by_name() {
        let was = snapshot(&[("a", "gfx1030", 16), ("b", "gfx1030", 8)]);
        let is = snapshot(&[("a", "gfx1030", 12), ("c", "gfx1030", 8)]);
        let differences = was.differences(&is);
        assert!(differences[0].starts_with("a for gfx1030: was vgprs = 40, "), "{differences:?}");
        assert!(differences[0].ends_with(", waves = 12"), "{differences:?}");
        assert_eq!(differences[1], "b for gfx1030: missing");
        assert!(differences[2].starts_with("c for gfx1030: new"), "{differences:?}");
    }

    #[test]
    fn register_counts_and_improvements_are_ignored() {
        let was = snapshot(&[("a", "gfx1030", 16)]);
        let with = |change: fn(&mut Entry)| {
            let mut is = snapshot(&[("a", "gfx1030", 16)]);
            is.kernels.values_mut().flat_map(BTreeMap::values_mut).for_each(change);
            was.differences(&is).len()
        };
        assert_eq!(with(|entry| entry.vgprs += 4), 0);
        assert_eq!(with(|entry| entry.lds_bytes = 0), 0);
        assert_eq!(with(|entry| entry.waves -= 1), 2);
        assert_eq!(with(|entry| entry.spills += 1), 2);
        assert_eq!(with(|entry| entry.lds_bytes += 4), 2);
    }

    #[test]
    fn writing_keeps_the_targets_outside_the_build() {
        let committed =
            || snapshot(&[("a", "gfx1030", 16), ("b", "gfx1030", 8), ("b", "gfx1100", 8)]);
        let mut current = snapshot(&[("a", "gfx1100", 12)]);
        current.keep_other_targets(committed());
        let expected = snapshot(&[("a", "gfx1030", 16), ("a", "gfx1100", 12), ("b", "gfx1030", 8)]);
        assert_eq!(current.to_string(), expected.to_string());

        let mut newer = snapshot(&[("a", "gfx1100", 12)]);
        newer.compiler = "another".to_owned();
        newer.keep_other_targets(committed());
        assert_eq!(newer.kernels["a"].len(), 1);
    }

    #[test]
    fn targets_outside_the_build_are_ignored() {
        let was = snapshot(&[("a", "gfx1030", 16), ("a", "gfx1100", 12)]);
        assert_eq!(was.differences(&snapshot(&[("a", "gfx1100", 12)])), [""; 0]);
    }
}
