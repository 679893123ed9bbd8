//! Comparisons as text and JSON.

use std::fmt::Write;

use super::{BaselineComparison, Verdict};

impl BaselineComparison {
    /// Formats a table for terminals, with the [`summary`](Self::summary) as its last line.
    pub fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(9);
        let mut out = format!(
            "{:<width$}  {:<3}  {:>12}  {:>12}  {:>8}  {:>8}  {:<16}  {}\n",
            "benchmark", "on", "baseline", "now", "change", "allowed", "verdict", "note"
        );
        for row in &self.rows {
            let shown = |value: Option<f64>| match value {
                Some(value) => format!("{} {}", significant(value), row.unit).trim_end().to_owned(),
                None => "-".to_owned(),
            };
            let percent = |share: Option<f64>| {
                share.map_or("-".to_owned(), |s| format!("{:+.1} %", 100.0 * s))
            };
            let allowed = row.allowed.map_or("-".to_owned(), |s| format!("{:.1} %", 100.0 * s));
            let line = format!(
                "{:<width$}  {:<3}  {:>12}  {:>12}  {:>8}  {allowed:>8}  {:<16}  {}",
                row.name,
                row.device,
                shown(row.baseline),
                shown(row.current),
                percent(row.change),
                row.verdict,
                row.note
            );
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out.push_str(&self.summary());
        out.push('\n');
        out
    }

    /// Formats the number of benchmarks per verdict: `3 Ok, 1 Regression`.
    pub fn summary(&self) -> String {
        let mut summary = String::new();
        for verdict in [
            Verdict::Ok,
            Verdict::Improved,
            Verdict::Regression,
            Verdict::Inconclusive,
            Verdict::HardwareMismatch,
            Verdict::Missing,
            Verdict::New,
        ] {
            let count = self.count(verdict);
            if count > 0 {
                let comma = if summary.is_empty() { "" } else { ", " };
                // Writing into a String cannot fail.
                _ = write!(summary, "{comma}{count} {verdict}");
            }
        }
        if summary.is_empty() { "nothing to compare".to_owned() } else { summary }
    }

    /// Serializes the comparison as an object of `threshold`, `hardware` and `rows`.
    pub fn to_json(&self) -> serde_json::Value {
        // JSON has no infinities and NaNs: such numbers become null.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Formats a value with about four significant digits.
fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1000.0 || size == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::{BenchmarkComparison, DeviceKind, Hardware};

    fn row(name: &str, verdict: Verdict, current: Option<f64>) -> BenchmarkComparison {
        BenchmarkComparison {
            name: name.into(),
            device: DeviceKind::Cpu,
            verdict,
            unit: "ms".into(),
            baseline: Some(10.0),
            current,
            change: current.map(|now| (now - 10.0) / 10.0),
            allowed: current.map(|_| 0.1),
            note: String::new(),
        }
    }

    fn comparison() -> BaselineComparison {
        BaselineComparison {
            threshold: 0.1,
            hardware: Hardware::default(),
            rows: vec![
                row("matmul/4096", Verdict::Regression, Some(12.5)),
                row("b", Verdict::Missing, None),
            ],
        }
    }

    #[test]
    fn the_table_lines_up() {
        let expected = "\
benchmark    on       baseline           now    change   allowed  verdict           note
matmul/4096  CPU      10.00 ms      12.50 ms   +25.0 %    10.0 %  Regression
b            CPU      10.00 ms             -         -         -  Missing
1 Regression, 1 Missing
";
        assert_eq!(comparison().table(), expected);
    }

    #[test]
    fn json_has_every_row() {
        let json = comparison().to_json();
        assert_eq!(json["rows"][0]["verdict"], "Regression");
        assert_eq!(json["rows"][0]["change"], 0.25);
        assert_eq!(json["rows"][1]["current"], serde_json::Value::Null);
        assert_eq!(json["threshold"], 0.1);
    }
}
