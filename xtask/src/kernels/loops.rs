//! The loops of kernels that grew, in the code of the snapshot's revision and of the checkout.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use anyhow::{Result, ensure};
use rf_kernels_build::{Cache, Compiler, Selection, Sources, compile_all};

use super::instructions::{self, Classes, Counted};
use crate::revision;
use crate::snapshot::{Change, template};

/// The most kernels that are printed: a change of a shared header may let all of them grow.
const MAX_PRINTED: usize = 12;

/// The tools that compile the kernels of another revision.
pub(super) struct Build<'a> {
    pub(super) root: &'a Path,
    pub(super) compiler: &'a Compiler,
    pub(super) cache: &'a Cache,
    pub(super) threads: usize,
}

/// Prints the loops of the kernels in `grown`, of a template and target the one that grew most.
/// `counted` is the code of the checkout. The code of the commit that last wrote the snapshot is
/// compiled.
///
/// # Errors
///
/// That commit is not available, or does not build.
pub(super) fn print(
    build: &Build<'_>,
    grown: &[Change<'_>],
    counted: &[Counted],
    out: &mut impl Write,
) -> Result<()> {
    let templates = grown.iter().map(key).collect::<BTreeSet<_>>().len();
    let worst = worst(grown);
    let is = |change: &Change<'_>| find(counted, change);
    let units: BTreeSet<&str> = worst.iter().filter_map(is).map(|kernel| &*kernel.unit).collect();
    let targets: BTreeSet<&str> = worst.iter().map(|change| change.target).collect();

    let commit = revision::last_change(build.root, instructions::FILE)?;
    writeln!(
        out,
        "\nthe loops of kernels that grew, compiled from {commit} and from this checkout"
    )?;
    let worktree = revision::checkout(build.root, &commit)?;
    let mut sources = Sources::read(&worktree.join("kernels"))?;
    sources.retain(|unit| units.contains(&*unit.name));
    let selection: Selection = Vec::from_iter(targets).join(",").parse()?;
    let targets = build.compiler.supported_targets(&selection)?.targets;
    let objects = compile_all(build.compiler, build.cache, &sources, &targets, build.threads)?;
    let before = instructions::count(&objects)?;

    let mut differs = false;
    for change in &worst {
        let none = Vec::new();
        let was = find(&before, change).map_or(&none, |kernel| &kernel.parts);
        let is = is(change).map_or(&none, |kernel| &kernel.parts);
        differs |= was != is;
        let (name, target) = (change.name, change.target);
        writeln!(out, "\n{name} for {target} ({:+.1} %)", change.percent())?;
        for line in side_by_side(&commit, was, is) {
            writeln!(out, "  {line}")?;
        }
    }
    if templates > worst.len() {
        writeln!(out, "\nand kernels of {} more templates", templates - worst.len())?;
    }
    ensure!(
        differs,
        "{commit} has the same code: the history here does not reach the commit of the snapshot, or \
         the snapshot was edited by hand"
    );
    Ok(())
}

/// The template of a kernel, and its target.
fn key<'a>(change: &Change<'a>) -> (String, &'a str) {
    (template(change.name).map_or_else(|| change.name.to_owned(), |(key, _)| key), change.target)
}

/// For each template and target the kernel that grew most, worst first, at most [`MAX_PRINTED`].
fn worst<'a>(grown: &[Change<'a>]) -> Vec<Change<'a>> {
    let mut worst: BTreeMap<(String, &str), Change<'a>> = BTreeMap::new();
    for change in grown {
        let entry = worst.entry(key(change)).or_insert(*change);
        if change.percent() > entry.percent() {
            *entry = *change;
        }
    }
    let mut worst: Vec<_> = worst.into_values().collect();
    worst.sort_by(|a, b| b.percent().total_cmp(&a.percent()));
    worst.truncate(MAX_PRINTED);
    worst
}

fn find<'a>(counted: &'a [Counted], change: &Change<'_>) -> Option<&'a Counted> {
    counted.iter().find(|kernel| kernel.target == change.target && kernel.name == change.name)
}

/// A table: a row per part with its instructions in both revisions, and the classes that changed.
fn side_by_side(commit: &str, was: &[(String, Classes)], is: &[(String, Classes)]) -> Vec<String> {
    let mut names: Vec<&String> = was.iter().map(|(name, _)| name).collect();
    names.extend(is.iter().map(|(name, _)| name).filter(|name| was.iter().all(|w| w.0 != **name)));
    let mut lines = vec![format!("{:<12} {commit:>10} {:>10}  changed", "part", "checkout")];
    for name in names {
        let of = |parts: &[(String, Classes)]| {
            parts.iter().find(|(part, _)| part == name).map(|(_, classes)| classes.clone())
        };
        let (was, is) = (of(was), of(is));
        let total = |classes: &Option<Classes>| match classes {
            Some(classes) => classes.values().sum::<u64>().to_string(),
            None => "-".to_owned(),
        };
        let totals = format!("{:>10} {:>10}", total(&was), total(&is));
        let changed = changed(&was.unwrap_or_default(), &is.unwrap_or_default());
        lines.push(format!("{name:<12} {totals}  {changed}").trim_end().to_owned());
    }
    lines
}

/// The classes whose number of instructions changed.
fn changed(was: &Classes, is: &Classes) -> String {
    let classes: BTreeSet<&str> = was.keys().chain(is.keys()).copied().collect();
    let number = |classes: &Classes, class: &str| classes.get(class).copied().unwrap_or(0);
    let changes = classes.into_iter().filter_map(|class| {
        let (was, is) = (number(was, class), number(is, class));
        (was != is).then(|| format!("{class} {was} → {is}"))
    });
    changes.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change<'a>(name: &'a str, was: &'a [u64], is: &'a [u64]) -> Change<'a> {
        Change { target: "gfx1100", name, was, is }
    }

    #[test]
    fn of_a_template_the_kernel_that_grew_most_is_shown_worst_first() {
        let grown = [
            change("matvec_q4_k_q8_f32_n1", &[100], &[103]),
            change("matvec_q5_k_q8_f32_n1", &[100], &[105]),
            change("matvec_q6_k_q8_f32_n1", &[100], &[104]),
            change("add_f32", &[100], &[110]),
        ];
        let names: Vec<&str> = worst(&grown).iter().map(|change| change.name).collect();
        assert_eq!(names, ["add_f32", "matvec_q5_k_q8_f32_n1"]);
    }

    #[test]
    fn parts_are_shown_side_by_side() {
        let part = |name: &str, classes: &[(&'static str, u64)]| {
            (name.to_owned(), classes.iter().copied().collect::<Classes>())
        };
        let was = [part("all", &[("valu", 10), ("load", 2)]), part("loop 1", &[("valu", 4)])];
        let is = [
            part("all", &[("valu", 12), ("load", 2), ("wait", 1)]),
            part("loop 1", &[("valu", 4)]),
            part("loop 2", &[("valu", 3)]),
        ];
        let expected = [
            "part            abcdef0   checkout  changed",
            "all                  12         15  valu 10 → 12, wait 0 → 1",
            "loop 1                4          4",
            "loop 2                -          3  valu 0 → 3",
        ];
        assert_eq!(side_by_side("abcdef0", &was, &is), expected);
    }
}
