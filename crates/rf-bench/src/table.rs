//! Text reports of results: a table for terminals, and CSV.

use std::fmt::Write;

use rf_profile::baseline::Better;
use rf_profile::roofline::{Bound, Roofline};

use crate::results::{Measured, Report, Run, TargetCheck, TargetOutcome};
use crate::{Error, Suite};

/// Formats the whole report: machine and build, results by suite, missing benchmarks, targets and
/// the comparison.
pub fn report(report: &Report<'_>) -> String {
    let mut out = String::new();
    header(&mut out, report.run);
    results(&mut out, report.run);
    left_out(&mut out, report.run);
    if !report.targets.is_empty() {
        line(&mut out, "");
        targets(&mut out, report.targets);
    }
    if let Some(comparison) = report.comparison {
        line(&mut out, "");
        out.push_str(&comparison.table());
    }
    out
}

fn header(out: &mut String, run: &Run) {
    let Run { hardware, build, limits, .. } = run;
    line(out, &format!("on       {}; {}", hardware.name(run.device), hardware.os));
    let revision = if build.revision.is_empty() { "unknown revision" } else { &build.revision };
    line(
        out,
        &format!(
            "build    {} {revision}, {}, {}; {}",
            build.version, build.profile, hardware.rustc, run.backend
        ),
    );
    if let Some(model) = &run.model {
        line(out, &format!("model    {} ({})", model.name, model.hash));
    }
    let mut shown = Vec::new();
    if let Some(bandwidth) = limits.bandwidth_bytes_per_s {
        shown.push(format!("memory {:.1} GB/s", bandwidth / 1e9));
    }
    for (name, speed) in limits.operations_per_s() {
        shown.push(format!("{name} {:.3} Tops/s", speed / 1e12));
    }
    line(out, &format!("limits   {}: {}", shown.join(", "), limits.source));
}

fn results(out: &mut String, run: &Run) {
    let width = run.results.iter().map(|measured| measured.name.chars().count()).max().unwrap_or(0);
    let mut suite: Option<Suite> = None;
    for measured in &run.results {
        if suite != Some(measured.suite) {
            suite = Some(measured.suite);
            line(out, "");
            line(
                out,
                &format!(
                    "{:<width$}  {:>14}  {:>14}  {:>8}  {:>5}  {:>12}  {}",
                    measured.suite.name(),
                    "median",
                    "p95",
                    "spread",
                    "n",
                    "speed",
                    "of roofline"
                ),
            );
        }
        row(out, measured, width);
    }
}

fn row(out: &mut String, measured: &Measured, width: usize) {
    let Measured { name, metrics, roofline, phases, metadata, .. } = measured;
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |x| with_unit(x, &metrics.unit));
    // The column shows the slow end of the distribution.
    let slow = match metrics.better {
        Better::Lower => metrics.p95,
        Better::Higher => metrics.min,
    };
    let spread = metrics.noise.map_or("-".to_owned(), |noise| format!("±{:.1} %", 100.0 * noise));
    let count = metrics.iterations.unwrap_or(0);
    let (speed, of_roofline) = roofline.map_or_else(Default::default, rates);
    line(
        out,
        &format!(
            "{name:<width$}  {:>14}  {:>14}  {spread:>8}  {count:>5}  {speed:>12}  {of_roofline}",
            shown(metrics.value()),
            shown(slow),
        ),
    );
    for phase in phases {
        let all: f64 = phases.iter().map(|phase| phase.ms).sum();
        let share = if all > 0.0 { 100.0 * phase.ms / all } else { 0.0 };
        let label = format!("  {}", phase.name);
        line(out, &format!("{label:<width$}  {:>14}  {share:>12.1} %", with_unit(phase.ms, "ms")));
    }
    for (key, value) in metadata.iter().filter(|(key, _)| *key != "clock") {
        let label = format!("  {key}");
        line(out, &format!("{label:<width$}  {value:>14}"));
    }
}

/// Formats the throughput and the percentage of the roofline.
fn rates(roofline: Roofline) -> (String, String) {
    let Roofline { share, bound, bytes_per_s, operations_per_s } = roofline;
    let (speed, name) = match bound {
        Bound::Memory => (format!("{:.1} GB/s", bytes_per_s / 1e9), "bandwidth"),
        Bound::Compute => (format!("{:.1} Gops/s", operations_per_s / 1e9), "compute"),
    };
    // Caches serve the data of results above the bandwidth of memory.
    let caches = if share > 1.1 { ", by caches" } else { "" };
    (speed, format!("{:>4.0} % {name}{caches}", 100.0 * share))
}

fn left_out(out: &mut String, run: &Run) {
    if !run.skipped.is_empty() {
        line(out, "");
        for skipped in &run.skipped {
            line(out, &format!("skipped: {}: {}", skipped.name, skipped.why));
        }
    }
    if !run.missing.is_empty() {
        line(out, "");
        line(out, &format!("not measured: {}", run.missing.join(", ")));
    }
}

fn targets(out: &mut String, checks: &[TargetCheck]) {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    line(
        out,
        &format!(
            "{:<width$}  {:>15}  {:<12}  {}",
            "target", "wanted", "outcome", "result or reason"
        ),
    );
    for check in checks {
        let (outcome, why) = match &check.outcome {
            TargetOutcome::Pass(value) => ("PASS", value.clone()),
            TargetOutcome::Fail(value) => ("FAIL", value.clone()),
            TargetOutcome::NotMeasured(why) => {
                ("NOT MEASURED", format!("{why} (needs {})", check.needs))
            }
        };
        line(out, &format!("{:<width$}  {:>15}  {outcome:<12}  {why}", check.name, check.wanted));
    }
}

/// Formats one line of CSV per benchmark. Fields without a value are empty.
///
/// # Errors
///
/// [`Error::Csv`] if a row cannot be encoded.
pub fn csv(run: &Run) -> Result<String, Error> {
    let header = [
        "name",
        "suite",
        "device",
        "unit",
        "median",
        "mean",
        "min",
        "max",
        "p95",
        "p99",
        "noise",
        "iterations",
        "bytes_per_s",
        "operations_per_s",
        "limit",
        "share_of_limit",
    ];
    let device = run.device.to_string().to_lowercase();
    let rows = run.results.iter().map(|Measured { name, suite, metrics, roofline, .. }| {
        let limit = roofline.map_or("", |roofline| match roofline.bound {
            Bound::Memory => "bandwidth",
            Bound::Compute => "compute",
        });
        [
            name.clone(),
            suite.name().to_owned(),
            device.clone(),
            metrics.unit.clone(),
            csv_value(metrics.p50),
            csv_value(metrics.avg),
            csv_value(metrics.min),
            csv_value(metrics.max),
            csv_value(metrics.p95),
            csv_value(metrics.p99),
            csv_value(metrics.noise),
            csv_value(metrics.iterations),
            csv_value(roofline.map(|roofline| roofline.bytes_per_s)),
            csv_value(roofline.map(|roofline| roofline.operations_per_s)),
            limit.to_owned(),
            csv_value(roofline.map(|roofline| roofline.share)),
        ]
    });
    csv_lines(header, rows)
}

/// Formats a header and rows as CSV (RFC 4180).
pub(crate) fn csv_lines<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> Result<String, Error> {
    let mut text = Vec::new();
    let mut writer = csv::Writer::from_writer(&mut text);
    writer.write_record(header)?;
    for row in rows {
        writer.write_record(row)?;
    }
    writer.flush().map_err(csv::Error::from)?;
    drop(writer);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A field of CSV, empty without a value.
pub(crate) fn csv_value(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Formats a value with about four significant digits. Times get the unit that fits their
/// magnitude.
pub fn with_unit(value: f64, unit: &str) -> String {
    let (value, unit) = match unit {
        "us" if value >= 1e6 => (value / 1e6, "s"),
        "us" if value >= 1e3 => (value / 1e3, "ms"),
        "us" if value < 1.0 => (value * 1e3, "ns"),
        "ms" if value >= 1e3 => (value / 1e3, "s"),
        "ms" if value < 1.0 => (value * 1e3, "us"),
        _ => (value, unit),
    };
    let decimals = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$} {unit}")
}

fn line(out: &mut String, text: &str) {
    // Writing into a String cannot fail.
    _ = writeln!(out, "{}", text.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_of_their_magnitude() {
        for (value, unit, shown) in [
            (0.25, "us", "250.0 ns"),
            (412.34, "us", "412.3 us"),
            (12_345.0, "us", "12.35 ms"),
            (2_500_000.0, "us", "2.500 s"),
            (0.5, "ms", "500.0 us"),
            (5850.4, "tokens/s", "5850 tokens/s"),
        ] {
            assert_eq!(with_unit(value, unit), shown);
        }
    }

    #[test]
    fn fields_of_csv_are_quoted_where_necessary() {
        let rows = [["a, \"b\"".to_owned(), csv_value(Some(1.5))], ["c".to_owned(), String::new()]];
        let text = csv_lines(["name", "value"], rows).unwrap();
        assert_eq!(text, "name,value\n\"a, \"\"b\"\"\",1.5\nc,\n");
    }
}
