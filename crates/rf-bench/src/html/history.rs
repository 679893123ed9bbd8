//! What became of each benchmark over the records of this hardware: a line each, and what the latest step was.

use std::{collections::BTreeMap, fmt::Write};

use rf_profile::baseline::{DEFAULT_THRESHOLD, Metrics, Verdict};

use super::figures::{change, figure, unit_s};
use super::scale::Linear;
use super::tables::headline;
use super::{name, put, suite_name, suites, text};
use crate::results::{Measured, Report, Run};

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 36.0;
const EDGE: f64 = 6.0;

/// Changes within this are drawn flat: a line that fills its height with noise misleads.
const LEAST_SPAN: f64 = 0.1;

/// A run, and how this one's figures compare with it, by benchmark.
struct Past<'a> {
    run: &'a Run,
    verdicts: BTreeMap<String, Verdict>,
}

/// A record of one benchmark.
struct Entry<'a> {
    run: &'a Run,
    measured: &'a Measured,
    value: f64,
    /// How this run's figure compares with it.
    verdict: Verdict,
}

/// All benchmarks that have a past.
pub(super) fn section(out: &mut String, report: &Report<'_>) {
    put!(out, "<section id=\"history\"><h2>History</h2>\n");
    let runs = runs(report);
    let lines: Vec<(&Measured, Vec<Entry<'_>>)> = report
        .run
        .results
        .iter()
        .map(|measured| (measured, entries(&runs, measured)))
        .filter(|(_, entries)| entries.len() > 1)
        .collect();
    if lines.is_empty() {
        put!(
            out,
            "<p class=\"note\">No earlier record of these benchmarks on this hardware: <code>cargo xtask bench --record</code> adds this \
             one’s kind to benchmarks/records/.</p></section>\n"
        );
        return;
    }
    let (first, last) = (runs.first(), runs.last());
    if let (Some(Past { run: first, .. }), Some(Past { run: last, .. })) = (first, last) {
        let day = |run: &Run| run.timestamp.to_string().chars().take(10).collect::<String>();
        put!(out, "<p>{} runs, {} to {}. ", runs.len(), day(first), day(last));
        put!(
            out,
            "A change counts beyond {:.0} %, the noise, and what the machine itself changed by. Hold the pointer over a dot for its revision.</p>\n",
            100.0 * DEFAULT_THRESHOLD
        );
    }
    for suite in suites(report) {
        let of_suite: Vec<_> =
            lines.iter().filter(|(measured, _)| measured.suite == suite).collect();
        if of_suite.is_empty() {
            continue;
        }
        put!(out, "<h3>{}</h3>\n<div class=\"scroll\"><table data-filter>\n", suite_name(suite));
        put!(
            out,
            "<thead><tr><th>benchmark</th><th>medians over time</th><th class=\"num\" colspan=\"2\">now</th><th class=\"num\">since the last</th>\
             <th class=\"num wide\">since the first</th></tr></thead>\n<tbody>\n"
        );
        for (measured, entries) in of_suite {
            row(out, measured, entries);
        }
        put!(out, "</tbody></table></div>\n");
    }
    put!(out, "</section>\n");
}

/// The records and this run behind them, unless it is the last of them.
fn runs<'a>(report: &Report<'a>) -> Vec<Past<'a>> {
    let mut runs: Vec<&Run> = report.history.iter().collect();
    if runs.last().is_none_or(|last| last.timestamp != report.run.timestamp) {
        runs.push(report.run);
    }
    let now = report.run.baselines();
    let past = |run: &'a Run| {
        let compared = run.baselines().compare(&now, &report.run.hardware, DEFAULT_THRESHOLD);
        let verdicts = compared.rows.into_iter().map(|row| (row.name, row.verdict));
        Past { run, verdicts: verdicts.collect() }
    };
    runs.into_iter().map(past).collect()
}

fn entries<'a>(runs: &[Past<'a>], now: &Measured) -> Vec<Entry<'a>> {
    let of_run = |past: &Past<'a>| {
        let run = past.run;
        let measured = run.results.iter().find(|measured| measured.name == now.name)?;
        let value = in_unit_of(&measured.metrics, &now.metrics)?;
        Some(Entry { run, measured, value, verdict: *past.verdicts.get(&now.name)? })
    };
    runs.iter().filter_map(of_run).collect()
}

/// A record's figure in the unit of today's.
fn in_unit_of(then: &Metrics, now: &Metrics) -> Option<f64> {
    let value = then.value().filter(|value| value.is_finite())?;
    if then.unit == now.unit {
        return Some(value);
    }
    Some(value * unit_s(&then.unit)? / unit_s(&now.unit)?)
}

fn row(out: &mut String, measured: &Measured, entries: &[Entry<'_>]) {
    put!(out, "<tr><td class=\"name\">{}</td><td>", name(&measured.name));
    line(out, entries);
    let [first, .., before, now] = entries else {
        // Two: the last is the first.
        let [before, now] = entries else { return };
        return steps(out, measured, before, before, now);
    };
    steps(out, measured, first, before, now);
}

fn steps(
    out: &mut String,
    measured: &Measured,
    first: &Entry<'_>,
    before: &Entry<'_>,
    now: &Entry<'_>,
) {
    let (value, unit) = figure(now.value, &measured.metrics.unit);
    put!(out, "</td><td class=\"num figure\">{value}</td><td class=\"unit\">{}</td>", text(&unit));
    for (from, class) in [(before, ""), (first, "wide")] {
        let share = if from.value == 0.0 { 0.0 } else { now.value / from.value - 1.0 };
        let (word, colour) = match from.verdict {
            Verdict::Improved => ("better", "v-Improved"),
            Verdict::Regression => ("worse", "v-Regression"),
            Verdict::Ok => ("does not count", "muted"),
            Verdict::Inconclusive => ("inconclusive", "muted"),
            Verdict::New => ("of another model", "muted"),
            Verdict::HardwareMismatch | Verdict::Missing => ("of other hardware", "muted"),
        };
        put!(
            out,
            "<td class=\"num {class}\">{} <span class=\"{colour}\">{word}</span></td>",
            change(share)
        );
    }
    put!(out, "</tr>\n");
}

/// Medians by their place in the order of the records: days between them say nothing about the code.
fn line(out: &mut String, entries: &[Entry<'_>]) {
    let values = || entries.iter().map(|entry| entry.value);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    let middle = f64::midpoint(low, high);
    let reach = ((high - low) / 2.0).max(middle.abs() * LEAST_SPAN / 2.0);
    let y = Linear { from: middle - reach..middle + reach, to: HEIGHT - EDGE..EDGE };
    let last = entries.len().saturating_sub(1);
    let x = Linear { from: 0.0..last as f64, to: EDGE..WIDTH - EDGE };
    put!(
        out,
        "<svg class=\"line\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} records\">",
        entries.len()
    );
    put!(out, "<polyline points=\"");
    for (place, entry) in entries.iter().enumerate() {
        put!(out, "{:.1},{:.1} ", x.at(place as f64), y.at(entry.value));
    }
    put!(out, "\"/>");
    for (place, entry) in entries.iter().enumerate() {
        let label = format!(
            "{} · {} · {}",
            headline(entry.measured).unwrap_or_default(),
            entry.run.timestamp,
            entry.run.build.revision
        );
        let (class, radius) = if place == last { ("now", 3.5) } else { ("then", 2.2) };
        put!(
            out,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\"><title>{}</title></circle>",
            x.at(place as f64),
            y.at(entry.value),
            text(&label)
        );
    }
    put!(out, "</svg>");
}
