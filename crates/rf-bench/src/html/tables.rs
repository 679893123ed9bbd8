//! Tables: each suite, the comparison, targets, what was not measured.

use std::fmt::Write;

use rf_graph::OpCost;
use rf_profile::baseline::{Comparison, Row, Verdict};
use rf_profile::roofline::Bound;

use super::distribution::Strips;
use super::figures::{change, figure, in_words, percent, rate};
use super::{name, phases, put, suite_name, text};
use crate::Suite;
use crate::results::{Measured, Run, TargetCheck, TargetOutcome};

/// One suite's benchmarks.
pub(super) fn suite(out: &mut String, run: &Run, suite: Suite) {
    let anchor = suite_name(suite);
    let of_suite = || run.results.iter().filter(|measured| measured.suite == suite);
    let columns = Columns {
        strips: Strips::of(of_suite()),
        limit: of_suite().any(|measured| measured.roofline.is_some()),
        speed: of_suite().any(|measured| measured.cost != OpCost::default()),
        shared: shared_notes(&of_suite().collect::<Vec<_>>()),
    };
    put!(out, "<section id=\"{anchor}\"><h2>{anchor}</h2>\n");
    if !columns.shared.is_empty() {
        put!(out, "<p>{}</p>\n", text(&in_a_line(columns.shared.iter().copied())));
    }
    put!(out, "<div class=\"scroll\"><table data-filter>\n<thead><tr>");
    put!(out, "<th>benchmark</th><th class=\"num\" colspan=\"2\">median</th>");
    put!(out, "<th class=\"num wide\" colspan=\"2\">p95</th><th class=\"num\">spread</th>");
    put!(out, "<th class=\"num wide\">runs</th>");
    if columns.speed {
        put!(out, "<th class=\"num wide\">speed</th>");
    }
    if columns.limit {
        put!(out, "<th>of limit</th>");
    }
    put!(
        out,
        "<th class=\"wide\">samples <span class=\"muted\">{}</span></th></tr></thead>\n<tbody>\n",
        columns.strips.span()
    );
    for measured in of_suite() {
        row(out, measured, &columns);
    }
    put!(out, "</tbody></table></div></section>\n");
}

/// What the rows of a suite have in common.
struct Columns<'a> {
    strips: Strips,
    /// Columns that no benchmark of the suite fills are left out.
    limit: bool,
    speed: bool,
    /// Said once, above the table.
    shared: Vec<Note<'a>>,
}

type Note<'a> = (&'a String, &'a String);

/// What all of several benchmarks say of themselves.
fn shared_notes<'a>(measured: &[&'a Measured]) -> Vec<Note<'a>> {
    let [first, others @ ..] = measured else { return Vec::new() };
    if others.is_empty() {
        return Vec::new();
    }
    let is_shared = |(name, value): &Note<'_>| {
        others.iter().all(|other| other.metadata.get(*name) == Some(*value))
    };
    first.metadata.iter().filter(is_shared).collect()
}

fn in_a_line<'a>(notes: impl Iterator<Item = Note<'a>>) -> String {
    let notes: Vec<String> = notes.map(|(name, value)| format!("{name}: {value}")).collect();
    notes.join(" · ")
}

fn row(out: &mut String, measured: &Measured, columns: &Columns<'_>) {
    let metrics = &measured.metrics;
    put!(out, "<tr><td class=\"name\">{}", name(&measured.name));
    let own = in_a_line(measured.metadata.iter().filter(|note| !columns.shared.contains(note)));
    if !own.is_empty() {
        put!(out, "<div class=\"sub\">{}</div>", text(&own));
    }
    phases::bar(out, &measured.phases);
    put!(out, "</td>");
    two_cells(out, metrics.value(), &metrics.unit, "");
    two_cells(out, metrics.p95, &metrics.unit, "wide");
    let spread = metrics.noise.map_or("–".to_owned(), |noise| format!("± {}", percent(noise)));
    let runs = metrics.iterations.map_or("–".to_owned(), |count| count.to_string());
    put!(out, "<td class=\"num\">{spread}</td><td class=\"num wide\">{runs}</td>");
    let roofline = measured.roofline.as_ref();
    if columns.speed {
        let speed = roofline.map_or(String::new(), |roofline| match roofline.bound {
            Bound::Memory => rate(roofline.bytes_per_s, "B"),
            Bound::Compute => rate(roofline.operations_per_s, "ops"),
        });
        put!(out, "<td class=\"num wide\">{speed}</td>");
    }
    if columns.limit {
        put!(out, "<td>");
        if let Some(roofline) = roofline {
            let of = match roofline.bound {
                Bound::Memory => "memory",
                Bound::Compute => "arithmetic",
            };
            let width = 100.0 * roofline.share.clamp(0.0, 1.0);
            put!(
                out,
                "<div class=\"share\"><div class=\"bar {of}\"><i style=\"width:{width:.1}%\"></i></div><span>{} <span \
                 class=\"muted\">{of}</span></span></div>",
                percent(roofline.share)
            );
        }
        put!(out, "</td>");
    }
    put!(out, "<td class=\"wide\">");
    columns.strips.draw(out, measured);
    put!(out, "</td></tr>\n");
}

/// A figure, and its unit in a cell of its own so that figures stand below each other.
fn two_cells(out: &mut String, value: Option<f64>, unit: &str, class: &str) {
    let (value, unit) =
        value.map_or(("–".to_owned(), String::new()), |value| figure(value, unit));
    put!(
        out,
        "<td class=\"num figure {class}\">{value}</td><td class=\"unit {class}\">{}</td>",
        text(&unit)
    );
}

/// Against a baseline: what changed first.
pub(super) fn comparison(out: &mut String, comparison: &Comparison) {
    put!(out, "<section id=\"comparison\"><h2>Comparison with the baseline</h2>\n");
    let verdicts = [
        Verdict::Regression,
        Verdict::Improved,
        Verdict::Inconclusive,
        Verdict::Ok,
        Verdict::New,
        Verdict::Missing,
        Verdict::HardwareMismatch,
    ];
    put!(
        out,
        "<p>A change counts beyond {}, the noise, and what the machine itself changed by. ",
        percent(comparison.threshold)
    );
    for verdict in verdicts {
        let count = comparison.count(verdict);
        if count > 0 {
            put!(out, "<span class=\"count\">{count} {}</span> ", badge(verdict));
        }
    }
    put!(out, "</p>\n");
    let rows = |verdicts: &[Verdict]| -> Vec<&Row> {
        let of = |verdict: &Verdict| {
            let verdict = *verdict;
            comparison.rows.iter().filter(move |row| row.verdict == verdict)
        };
        verdicts.iter().flat_map(of).collect()
    };
    compared(out, &rows(&[Verdict::Regression, Verdict::Improved, Verdict::Inconclusive]));
    let rest = [Verdict::Ok, Verdict::New, Verdict::Missing, Verdict::HardwareMismatch];
    let rest = rows(&rest);
    if !rest.is_empty() {
        put!(out, "<details><summary>{} without a change that counts</summary>\n", rest.len());
        compared(out, &rest);
        put!(out, "</details>\n");
    }
    put!(out, "</section>\n");
}

/// Nothing without rows.
fn compared(out: &mut String, rows: &[&Row]) {
    if rows.is_empty() {
        return;
    }
    put!(
        out,
        "<div class=\"scroll\"><table data-filter>\n<thead><tr><th>benchmark</th><th>verdict</th><th class=\"num wide\" \
         colspan=\"2\">baseline</th><th class=\"num wide\" colspan=\"2\">now</th><th class=\"num\">change</th><th class=\"num wide\">counts \
         beyond</th><th class=\"wide\">note</th></tr></thead>\n<tbody>\n"
    );
    for row in rows {
        let verdict = row.verdict;
        put!(out, "<tr><td class=\"name\">{}</td><td>{}</td>", name(&row.name), badge(verdict));
        two_cells(out, row.baseline, &row.unit, "wide");
        two_cells(out, row.current, &row.unit, "wide");
        let share = row.change.filter(|change| change.is_finite());
        let share = share.map_or("–".to_owned(), change);
        let allowed = row.allowed.map_or("–".to_owned(), percent);
        put!(
            out,
            "<td class=\"num v-{}\">{share}</td><td class=\"num wide\">{allowed}</td><td class=\"wide note\">{}</td></tr>\n",
            verdict.as_str(),
            text(&row.note)
        );
    }
    put!(out, "</tbody></table></div>\n");
}

fn badge(verdict: Verdict) -> String {
    let word = match verdict {
        Verdict::HardwareMismatch => "other hardware",
        verdict => verdict.as_str(),
    };
    format!("<span class=\"badge v-{}\">{word}</span>", verdict.as_str())
}

/// Targets, met or not.
pub(super) fn targets(out: &mut String, targets: &[TargetCheck]) {
    if targets.is_empty() {
        return;
    }
    put!(
        out,
        "<section id=\"targets\"><h2>Targets</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>target</th><th>outcome</th>\
         <th>wanted</th><th>measured</th><th class=\"wide\">needs</th></tr></thead>\n<tbody>\n"
    );
    for target in targets {
        let (class, word, figure) = match &target.outcome {
            TargetOutcome::Pass(figure) => ("Improved", "PASS", figure),
            TargetOutcome::Fail(figure) => ("Regression", "FAIL", figure),
            TargetOutcome::NotMeasured(why) => ("Missing", "NOT MEASURED", why),
        };
        put!(
            out,
            "<tr><td class=\"name\">{}</td><td><span class=\"badge v-{class}\">{word}</span></td><td>{}</td><td>{}</td><td \
             class=\"wide note\">{}</td></tr>\n",
            text(&target.name),
            text(&target.wanted),
            text(figure),
            text(&target.needs)
        );
    }
    put!(out, "</tbody></table></div></section>\n");
}

/// What could not run, and what Ctrl-C left.
pub(super) fn unmeasured(out: &mut String, run: &Run) {
    let (skipped, missing) = (&run.skipped, &run.missing);
    if skipped.is_empty() && missing.is_empty() {
        return;
    }
    put!(out, "<section id=\"unmeasured\"><h2>Not measured</h2>\n<div class=\"scroll\"><table>\n");
    put!(out, "<thead><tr><th>benchmark</th><th>why</th></tr></thead>\n<tbody>\n");
    for skipped in skipped {
        put!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"note\">{}</td></tr>\n",
            text(&skipped.name),
            text(&skipped.why)
        );
    }
    for name in missing {
        put!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"note\">the run ended early</td></tr>\n",
            text(name)
        );
    }
    put!(out, "</tbody></table></div></section>\n");
}

/// A figure of a record, for titles.
pub(super) fn headline(measured: &Measured) -> Option<String> {
    Some(in_words(measured.metrics.value()?, &measured.metrics.unit))
}
