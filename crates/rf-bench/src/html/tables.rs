//! The tables of suites and of the comparison.

use rf_oracle::rf_graph::OpCost;
use rf_profile::baseline::{BaselineComparison, Verdict};
use rf_profile::roofline::{Bound, Roofline};

use super::distribution::{Distribution, Scale};
use super::units::{DASH, FormattedValue, change, percent, rate};
use crate::results::{Measured, PhaseTime, Run};
use crate::{Error, Suite};

/// The number of colours for phases. Further phases share the last one.
const SHADES: usize = 6;

/// The table of a suite. A column without values is left out.
pub(super) struct SuiteTable {
    pub(super) name: &'static str,
    /// The metadata that all benchmarks of the suite share.
    pub(super) shared_notes: String,
    pub(super) has_throughput: bool,
    pub(super) has_roofline: bool,
    /// The ends of the scale of all distributions.
    pub(super) scale: String,
    pub(super) rows: Vec<SuiteRow>,
}

/// A benchmark of a suite.
pub(super) struct SuiteRow {
    pub(super) name: String,
    pub(super) notes: String,
    pub(super) phases: Vec<Phase>,
    pub(super) median: FormattedValue,
    pub(super) p95: FormattedValue,
    pub(super) noise: String,
    pub(super) samples: String,
    pub(super) throughput: String,
    pub(super) roofline: Option<RooflineBar>,
    pub(super) distribution: Option<Distribution>,
}

/// A phase of an iteration.
pub(super) struct Phase {
    pub(super) name: String,
    pub(super) time: String,
    pub(super) fraction: String,
    pub(super) width: String,
    pub(super) shade: usize,
}

/// The fraction of the roofline as a bar.
pub(super) struct RooflineBar {
    pub(super) bound: &'static str,
    pub(super) fraction: String,
    pub(super) width: String,
}

/// A comparison with its rows in groups.
pub(super) struct ComparisonTable<'a> {
    pub(super) threshold: String,
    pub(super) counts: Vec<(usize, Badge)>,
    pub(super) groups: Vec<ComparisonGroup<'a>>,
}

/// Compared benchmarks.
pub(super) struct ComparisonGroup<'a> {
    pub(super) collapsed: bool,
    pub(super) rows: Vec<ComparisonRow<'a>>,
}

/// A compared benchmark.
pub(super) struct ComparisonRow<'a> {
    pub(super) name: &'a str,
    pub(super) note: &'a str,
    pub(super) badge: Badge,
    pub(super) baseline: FormattedValue,
    pub(super) current: FormattedValue,
    pub(super) change: String,
    pub(super) required: String,
}

/// A verdict in words and colour.
pub(super) struct Badge {
    pub(super) label: &'static str,
    pub(super) class: String,
}

type Note<'a> = (&'a String, &'a String);

/// The table of a suite.
pub(super) fn suite(run: &Run, suite: Suite) -> Result<SuiteTable, Error> {
    let measured: Vec<&Measured> =
        run.results.iter().filter(|measured| measured.suite == suite).collect();
    let scale = Scale::of(measured.iter().copied());
    let shared = shared_notes(&measured);
    let rows = measured.iter().map(|measured| suite_row(measured, &shared, &scale));
    Ok(SuiteTable {
        name: suite.name(),
        rows: rows.collect::<Result<_, _>>()?,
        has_throughput: measured.iter().any(|measured| measured.cost != OpCost::default()),
        has_roofline: measured.iter().any(|measured| measured.roofline.is_some()),
        scale: scale.ends(),
        shared_notes: in_a_line(shared.into_iter()),
    })
}

fn suite_row(measured: &Measured, shared: &[Note<'_>], scale: &Scale) -> Result<SuiteRow, Error> {
    let metrics = &measured.metrics;
    let throughput = measured.roofline.map(|roofline| match roofline.bound {
        Bound::Memory => rate(roofline.bytes_per_s, "B").joined(),
        Bound::Compute => rate(roofline.operations_per_s, "ops").joined(),
    });
    Ok(SuiteRow {
        name: measured.name.clone(),
        notes: in_a_line(measured.metadata.iter().filter(|note| !shared.contains(note))),
        phases: phases(&measured.phases),
        median: FormattedValue::of(metrics.value(), &metrics.unit),
        p95: FormattedValue::of(metrics.p95, &metrics.unit),
        noise: metrics.noise.map_or(DASH.to_owned(), |noise| format!("± {}", percent(noise))),
        samples: metrics.iterations.map_or(DASH.to_owned(), |count| count.to_string()),
        throughput: throughput.unwrap_or_default(),
        roofline: measured.roofline.map(bar),
        distribution: scale.plot(measured)?,
    })
}

/// The metadata that all of several benchmarks have.
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

fn phases(phases: &[PhaseTime]) -> Vec<Phase> {
    let total: f64 = phases.iter().map(|phase| phase.ms).sum();
    if total <= 0.0 || !total.is_finite() {
        return Vec::new();
    }
    let phase = |(index, phase): (usize, &PhaseTime)| Phase {
        name: phase.name.clone(),
        time: FormattedValue::new(phase.ms, "ms").joined(),
        fraction: percent(phase.ms / total),
        width: format!("{:.2}", 100.0 * phase.ms / total),
        shade: index.min(SHADES - 1),
    };
    phases.iter().enumerate().map(phase).collect()
}

fn bar(roofline: Roofline) -> RooflineBar {
    let width = format!("{:.1}", 100.0 * roofline.share.clamp(0.0, 1.0));
    RooflineBar { bound: roofline.bound.as_str(), fraction: percent(roofline.share), width }
}

/// The tables of a comparison: significant changes first.
pub(super) fn comparison(comparison: &BaselineComparison) -> ComparisonTable<'_> {
    let mut verdicts: Vec<Verdict> =
        vec![Verdict::Regression, Verdict::Improved, Verdict::Inconclusive];
    for row in &comparison.rows {
        if !verdicts.contains(&row.verdict) {
            verdicts.push(row.verdict);
        }
    }
    let (shown, collapsed): (Vec<Verdict>, Vec<Verdict>) =
        verdicts.into_iter().partition(|verdict| is_shown(*verdict));
    let group = |collapsed: bool, verdicts: &[Verdict]| {
        let rows = verdicts.iter().flat_map(|verdict| {
            comparison.rows.iter().filter(move |row| row.verdict == *verdict).map(comparison_row)
        });
        ComparisonGroup { collapsed, rows: rows.collect() }
    };
    let groups = [group(false, &shown), group(true, &collapsed)];
    let counts = shown.iter().chain(&collapsed);
    let counts = counts.map(|verdict| (comparison.count(*verdict), badge(*verdict)));
    ComparisonTable {
        threshold: percent(comparison.threshold),
        counts: counts.filter(|(count, _)| *count > 0).collect(),
        groups: groups.into_iter().filter(|group| !group.rows.is_empty()).collect(),
    }
}

/// Returns true for verdicts whose rows are visible when the page opens.
fn is_shown(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Regression | Verdict::Improved | Verdict::Inconclusive)
}

fn comparison_row(row: &rf_profile::baseline::BenchmarkComparison) -> ComparisonRow<'_> {
    let fraction = row.change.filter(|change| change.is_finite());
    ComparisonRow {
        name: &row.name,
        note: &row.note,
        badge: badge(row.verdict),
        baseline: FormattedValue::of(row.baseline, &row.unit),
        current: FormattedValue::of(row.current, &row.unit),
        change: fraction.map_or(DASH.to_owned(), change),
        required: row.allowed.map_or(DASH.to_owned(), percent),
    }
}

fn badge(verdict: Verdict) -> Badge {
    let label = match verdict {
        Verdict::HardwareMismatch => "other hardware",
        verdict => verdict.as_str(),
    };
    Badge { label, class: format!("v-{}", verdict.as_str()) }
}
