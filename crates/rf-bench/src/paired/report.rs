//! Paired comparisons as text.

use std::fmt::Write;

use rf_profile::baseline::Verdict;

use super::{PairedComparison, PairedResult};
use crate::Error;
use crate::table::{csv_lines, csv_value, with_unit};

/// A table for terminals, and a summary.
pub fn table(comparison: &PairedComparison) -> String {
    let PairedComparison { base, head, threshold, passes, elapsed_s, rows } = comparison;
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(8);
    let mut out = String::new();
    // Writing into a String cannot fail.
    let mut line = |text: String| _ = writeln!(out, "{}", text.trim_end());
    line(format!("base  {} ({})", base.label, base.backend));
    line(format!("head  {} ({})", head.label, head.backend));
    line(format!("{passes} passes in {elapsed_s:.0} s, threshold ±{:.1} %", 100.0 * threshold));
    line(String::new());
    line(format!(
        "{:<width$}  {:>12}  {:>12}  {:>8}  {:>18}  {:>6}  {:>10}  {:<12}  note",
        "workload", "base", "head", "change", "95 % interval", "passes", "contention", "verdict"
    ));
    for row in rows {
        let time = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| with_unit(ns / 1e3, "us"));
        let change = row.estimate.map_or("-".to_owned(), |e| percent(e.ratio));
        let interval = row.estimate.map_or("-".to_owned(), |estimate| {
            format!("{} to {}", percent(estimate.interval.0), percent(estimate.interval.1))
        });
        line(format!(
            "{:<width$}  {:>12}  {:>12}  {change:>8}  {interval:>18}  {:>6}  {:>8.1} %  {:<12}  {}",
            row.name,
            time(row.base_ns),
            time(row.head_ns),
            row.passes.len(),
            100.0 * row.contention,
            row.verdict,
            row.note
        ));
    }
    line(String::new());
    line(summary(rows));
    out
}

/// One line per workload; the interval is that of 95 %.
///
/// # Errors
///
/// [`Error::Csv`] if a row cannot be encoded.
pub fn csv(comparison: &PairedComparison) -> Result<String, Error> {
    let header = [
        "name",
        "base_ns",
        "head_ns",
        "ratio",
        "low",
        "high",
        "passes",
        "contention",
        "verdict",
        "note",
    ];
    let rows = comparison.rows.iter().map(|row| {
        [
            row.name.clone(),
            csv_value(row.base_ns),
            csv_value(row.head_ns),
            csv_value(row.estimate.map(|estimate| estimate.ratio)),
            csv_value(row.estimate.map(|estimate| estimate.interval.0)),
            csv_value(row.estimate.map(|estimate| estimate.interval.1)),
            row.passes.len().to_string(),
            row.contention.to_string(),
            row.verdict.to_string(),
            row.note.clone(),
        ]
    });
    csv_lines(header, rows)
}

fn summary(rows: &[PairedResult]) -> String {
    let verdicts = [
        Verdict::Regression,
        Verdict::Improved,
        Verdict::Inconclusive,
        Verdict::Ok,
        Verdict::Missing,
    ];
    let counts = verdicts.iter().filter_map(|verdict| {
        let count = rows.iter().filter(|row| row.verdict == *verdict).count();
        (count > 0).then(|| format!("{count} {verdict}"))
    });
    counts.collect::<Vec<_>>().join(", ")
}

/// A ratio as a change: `+5.0 %`.
fn percent(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}
