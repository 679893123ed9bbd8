//! The functions of workloads that grew, in the snapshot's revision and in the checkout.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Result, ensure};

use super::callgrind::{Counts, Functions};
use crate::snapshot::Change;

/// The most functions of a workload that are printed.
const MAX_FUNCTIONS: usize = 8;

/// Prints the functions of the workloads in `grown`, those with the largest differences, in a
/// commit and in the checkout.
///
/// # Errors
///
/// Both have the same functions.
pub(super) fn print(
    grown: &[Change<'_>],
    (commit, before): (&str, &Counts),
    counts: &Counts,
    out: &mut impl Write,
) -> Result<()> {
    writeln!(out, "functions of workloads that grew, counted in {commit} and in this checkout")?;
    let mut differs = false;
    for change in grown {
        let none = Functions::new();
        let was = before.get(change.name).unwrap_or(&none);
        let is = counts.get(change.name).unwrap_or(&none);
        let lines = side_by_side(commit, was, is);
        differs |= lines.len() > 1;
        writeln!(out, "\n{change}")?;
        for line in lines {
            writeln!(out, "  {line}")?;
        }
    }
    writeln!(out)?;
    ensure!(
        differs,
        "{commit} has the same counts: the history here does not reach the commit of the snapshot, \
         or the snapshot was edited by hand"
    );
    Ok(())
}

/// A table of the functions whose counts differ, largest difference first.
fn side_by_side(commit: &str, was: &Functions, is: &Functions) -> Vec<String> {
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let number = |functions: &Functions, name: &String| functions.get(name).copied().unwrap_or(0);
    let rows = names.into_iter().map(|name| (name, number(was, name), number(is, name)));
    let mut rows: Vec<_> = rows.filter(|(_, was, is)| was != is).collect();
    rows.sort_by_key(|&(_, was, is)| std::cmp::Reverse(was.abs_diff(is)));
    let mut lines = vec![format!("{commit:>12} {:>12}  function", "checkout")];
    lines.extend(
        rows.iter()
            .take(MAX_FUNCTIONS)
            .map(|(name, was, is)| format!("{was:>12} {is:>12}  {name}")),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_differ_are_shown_side_by_side() {
        let functions = |list: &[(&str, u64)]| {
            list.iter().map(|&(name, count)| (name.to_owned(), count)).collect::<Functions>()
        };
        let was = functions(&[("matvec", 900), ("malloc", 20), ("free", 5)]);
        let is = functions(&[("matvec", 930), ("malloc", 20), ("memcpy", 100)]);
        let expected = [
            "     abcdef0     checkout  function",
            "           0          100  memcpy",
            "         900          930  matvec",
            "           5            0  free",
        ];
        assert_eq!(side_by_side("abcdef0", &was, &is), expected);
    }
}
