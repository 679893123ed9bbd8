//! The medians of each benchmark over the records of this hardware.

use std::collections::BTreeMap;

use plotters::prelude::{ChartBuilder, Circle, Color, LineSeries};
use rf_profile::baseline::{DEFAULT_THRESHOLD, Metrics, Verdict};

use super::plot::palette::{ACCENT, MUTED};
use super::plot::{self, Area, Drawn, Mark, Plot};
use super::units::{FormattedValue, change, percent, seconds_per};
use crate::Error;
use crate::results::{Measured, Report, Run};

/// Three times the size on the page, because plotters rounds positions to pixels.
const SIZE: (u32, u32) = (720, 108);
const MARGIN: u32 = 18;

/// The smallest relative range of a plot, so that noise does not fill its height.
const MIN_RANGE: f64 = 0.1;

/// The history of all benchmarks in a run.
pub(super) struct RunHistory {
    /// The number of runs with the dates of the first and the last one, if there is a history.
    pub(super) span: Option<(usize, String, String)>,
    pub(super) threshold: String,
    pub(super) groups: Vec<SuiteHistory>,
}

/// The benchmarks of a suite.
pub(super) struct SuiteHistory {
    pub(super) suite: &'static str,
    pub(super) rows: Vec<HistoryRow>,
}

/// A benchmark with at least one earlier record.
pub(super) struct HistoryRow {
    pub(super) name: String,
    pub(super) plot: Plot,
    pub(super) now: FormattedValue,
    pub(super) since_previous: RunChange,
    pub(super) since_first: RunChange,
}

/// The change between two runs.
pub(super) struct RunChange {
    pub(super) change: String,
    pub(super) verdict: &'static str,
    pub(super) class: &'static str,
}

/// An earlier run with its verdicts by benchmark: those of the current run against it.
struct Record<'a> {
    run: &'a Run,
    verdicts: BTreeMap<String, Verdict>,
}

/// A benchmark in a record.
struct Entry<'a> {
    run: &'a Run,
    /// The median in the unit of the current run.
    value: f64,
    verdict: Verdict,
}

pub(super) fn history(report: &Report<'_>) -> Result<RunHistory, Error> {
    let records = records(report);
    let mut groups = Vec::new();
    for suite in report.run.suites() {
        let mut rows = Vec::new();
        for measured in report.run.results.iter().filter(|measured| measured.suite == suite) {
            rows.extend(row(measured, &entries(&records, measured))?);
        }
        if !rows.is_empty() {
            groups.push(SuiteHistory { suite: suite.name(), rows });
        }
    }
    let day = |record: &Record<'_>| record.run.timestamp.to_string().chars().take(10).collect();
    let span = match &records[..] {
        [first, .., last] if !groups.is_empty() => Some((records.len(), day(first), day(last))),
        _ => None,
    };
    Ok(RunHistory { span, threshold: percent(DEFAULT_THRESHOLD), groups })
}

/// The records in order, and then the current run unless it is the last record.
fn records<'a>(report: &Report<'a>) -> Vec<Record<'a>> {
    let mut runs: Vec<&Run> = report.history.iter().collect();
    if runs.last().is_none_or(|last| last.timestamp != report.run.timestamp) {
        runs.push(report.run);
    }
    let now = report.run.baselines();
    let record = |run: &'a Run| {
        let comparison = run.baselines().compare(&now, &report.run.hardware, DEFAULT_THRESHOLD);
        let verdicts = comparison.rows.into_iter().map(|row| (row.name, row.verdict));
        Record { run, verdicts: verdicts.collect() }
    };
    runs.into_iter().map(record).collect()
}

fn entries<'a>(records: &[Record<'a>], now: &Measured) -> Vec<Entry<'a>> {
    let entry = |record: &Record<'a>| {
        let run = record.run;
        let measured = run.results.iter().find(|measured| measured.name == now.name)?;
        let value = in_unit_of(&measured.metrics, &now.metrics)?;
        Some(Entry { run, value, verdict: *record.verdicts.get(&now.name)? })
    };
    records.iter().filter_map(entry).collect()
}

/// The value of an earlier metric in the unit of the current one.
fn in_unit_of(then: &Metrics, now: &Metrics) -> Option<f64> {
    let value = then.value().filter(|value| value.is_finite())?;
    if then.unit == now.unit {
        return Some(value);
    }
    Some(value * seconds_per(&then.unit)? / seconds_per(&now.unit)?)
}

/// A row, or `None` without an earlier record.
fn row(measured: &Measured, entries: &[Entry<'_>]) -> Result<Option<HistoryRow>, Error> {
    let (Some(first), [.., previous, now]) = (entries.first(), entries) else { return Ok(None) };
    let unit = &measured.metrics.unit;
    Ok(Some(HistoryRow {
        name: measured.name.clone(),
        plot: plot::draw(SIZE, |area| draw(area, entries, unit))?,
        now: FormattedValue::new(now.value, unit),
        since_previous: step(previous, now),
        since_first: step(first, now),
    }))
}

fn step(from: &Entry<'_>, now: &Entry<'_>) -> RunChange {
    let fraction = if from.value == 0.0 { 0.0 } else { now.value / from.value - 1.0 };
    let (verdict, class) = match from.verdict {
        Verdict::Improved => ("improved", "v-Improved"),
        Verdict::Regression => ("regression", "v-Regression"),
        Verdict::Ok => ("not significant", "muted"),
        Verdict::Inconclusive => ("inconclusive", "v-Inconclusive"),
        Verdict::New => ("other model", "muted"),
        Verdict::HardwareMismatch | Verdict::Missing => ("other hardware", "muted"),
    };
    RunChange { change: change(fraction), verdict, class }
}

/// Draws medians at equal distances: the days between runs mean nothing for the code.
fn draw(area: &Area<'_>, entries: &[Entry<'_>], unit: &str) -> Drawn<Vec<Mark>> {
    let values = || entries.iter().map(|entry| entry.value);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    let middle = f64::midpoint(low, high);
    let reach = ((high - low) / 2.0).max(middle.abs() * MIN_RANGE / 2.0).max(f64::MIN_POSITIVE);
    let last = entries.len().saturating_sub(1);
    let mut builder = ChartBuilder::on(area);
    builder.margin(MARGIN);
    let mut chart = builder.build_cartesian_2d(0.0..last as f64, middle - reach..middle + reach)?;
    let points: Vec<(f64, f64)> =
        values().enumerate().map(|(index, value)| (index as f64, value)).collect();
    chart.draw_series(LineSeries::new(points.iter().copied(), MUTED.stroke_width(4)))?;
    chart.draw_series(points.iter().enumerate().map(|(index, at)| {
        if index == last {
            Circle::new(*at, 10, ACCENT.filled())
        } else {
            Circle::new(*at, 7, MUTED.filled())
        }
    }))?;
    let marks = points.iter().zip(entries).map(|(at, entry)| {
        let value = FormattedValue::new(entry.value, unit).joined();
        let title = format!("{value} · {} · {}", entry.run.timestamp, entry.run.build.revision);
        Mark::new(chart.backend_coord(at), SIZE, title)
    });
    Ok(marks.collect())
}
