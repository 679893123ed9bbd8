//! Numbers and units for readers.

/// A formatted number and its unit, for two table columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormattedValue {
    pub(super) number: String,
    pub(super) unit: String,
}

impl FormattedValue {
    /// Formats a metric. Times and sizes get the unit that suits them: `12.34` and `ms`.
    pub(super) fn new(value: f64, unit: &str) -> Self {
        let (value, unit) = match (seconds_per(unit), unit) {
            (Some(factor), _) => scaled_seconds(value * factor),
            (None, "bytes") => scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
            _ => (value, unit),
        };
        Self { number: digits(value), unit: unit.to_owned() }
    }

    /// A metric that may be missing.
    pub(super) fn of(value: Option<f64>, unit: &str) -> Self {
        value.map_or_else(|| Self::text(DASH, ""), |value| Self::new(value, unit))
    }

    pub(super) fn text(number: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { number: number.into(), unit: unit.into() }
    }

    /// Number and unit as one text: `12.34 ms`.
    pub(super) fn joined(&self) -> String {
        format!("{} {}", self.number, self.unit).trim_end().to_owned()
    }
}

/// The placeholder for a missing value.
pub(super) const DASH: &str = "–";

/// A rate with a suitable prefix: `18.42 GB/s`.
pub(super) fn rate(per_s: f64, unit: &str) -> FormattedValue {
    let (value, prefix) = scaled(per_s, 1000.0, &["", "k", "M", "G", "T", "P"]);
    FormattedValue::text(digits(value), format!("{prefix}{unit}/s"))
}

/// A fraction in percent: `8.3 %`.
pub(super) fn percent(fraction: f64) -> String {
    let percent = 100.0 * fraction;
    match percent.abs() {
        size if size >= 10.0 => format!("{percent:.0} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// A relative change in percent: `+8.3 %`, `−12 %`.
pub(super) fn change(fraction: f64) -> String {
    let percent = percent(fraction.abs());
    if fraction < 0.0 { format!("−{percent}") } else { format!("+{percent}") }
}

/// The length of a unit of time in seconds.
pub(super) fn seconds_per(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" | "µs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    }
}

fn scaled_seconds(s: f64) -> (f64, &'static str) {
    match s.abs() {
        size if size >= 1.0 => (s, "s"),
        size if size >= 1e-3 => (s * 1e3, "ms"),
        size if size >= 1e-6 => (s * 1e6, "µs"),
        _ => (s * 1e9, "ns"),
    }
}

fn scaled(value: f64, step: f64, units: &[&'static str]) -> (f64, &'static str) {
    let (mut value, mut index) = (value, 0);
    while value.abs() >= step && index + 1 < units.len() {
        value /= step;
        index += 1;
    }
    (value, units.get(index).copied().unwrap_or(""))
}

/// Formats a number with four significant digits, or more before the decimal point.
fn digits(value: f64) -> String {
    if !value.is_finite() {
        return DASH.to_owned();
    }
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_suitable_unit() {
        assert_eq!(FormattedValue::new(0.01234, "ms"), FormattedValue::text("12.34", "µs"));
        assert_eq!(FormattedValue::new(1234.5, "ms").joined(), "1.234 s");
        assert_eq!(FormattedValue::new(54.321, "tokens/s").joined(), "54.32 tokens/s");
        assert_eq!(FormattedValue::new(3.0 * 1024.0 * 1024.0, "bytes").joined(), "3.000 MiB");
        assert_eq!(rate(18.42e9, "B").joined(), "18.42 GB/s");
        assert_eq!((percent(0.0123), percent(0.98)), ("1.2 %".to_owned(), "98 %".to_owned()));
        assert_eq!((change(-0.5), change(0.031)), ("−50 %".to_owned(), "+3.1 %".to_owned()));
        assert_eq!(FormattedValue::new(f64::NAN, "ms").joined(), "– ns");
    }
}
