//! Figures as people read them.

/// A figure and its unit, in two parts for two columns: `("12.34", "ms")`. Times are scaled.
pub(super) fn figure(value: f64, unit: &str) -> (String, String) {
    let (value, unit) = match (unit_s(unit), unit) {
        (Some(factor), _) => seconds(value * factor),
        (None, "bytes") => scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
        _ => (value, unit),
    };
    (digits(value), unit.to_owned())
}

/// The same in one: `12.34 ms`.
pub(super) fn in_words(value: f64, unit: &str) -> String {
    let (value, unit) = figure(value, unit);
    format!("{value} {unit}").trim_end().to_owned()
}

/// A rate with the unit that suits it: `18.4 GB/s`.
pub(super) fn rate(per_s: f64, of: &str) -> String {
    let (value, prefix) = scaled(per_s, 1000.0, &["", "k", "M", "G", "T", "P"]);
    format!("{} {prefix}{of}/s", digits(value))
}

/// A share: `8.3 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.abs() {
        size if size >= 10.0 => format!("{percent:.0} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// A change: `+8.3 %`, `−12 %`.
pub(super) fn change(share: f64) -> String {
    let percent = percent(share.abs());
    if share < 0.0 { format!("−{percent}") } else { format!("+{percent}") }
}

/// A unit of time in seconds.
pub(super) fn unit_s(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" | "µs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    }
}

fn seconds(s: f64) -> (f64, &'static str) {
    match s.abs() {
        size if size >= 1.0 => (s, "s"),
        size if size >= 1e-3 => (s * 1e3, "ms"),
        size if size >= 1e-6 => (s * 1e6, "µs"),
        _ => (s * 1e9, "ns"),
    }
}

fn scaled(value: f64, step: f64, units: &[&'static str]) -> (f64, &'static str) {
    let (mut value, mut place) = (value, 0);
    while value.abs() >= step && place + 1 < units.len() {
        value /= step;
        place += 1;
    }
    (value, units.get(place).copied().unwrap_or(""))
}

/// Four digits, more where they stand before the point.
fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
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
    fn figures_have_the_unit_that_suits_them() {
        assert_eq!(figure(0.01234, "ms"), ("12.34".to_owned(), "µs".to_owned()));
        assert_eq!(in_words(1234.5, "ms"), "1.234 s");
        assert_eq!(in_words(54.321, "tokens/s"), "54.32 tokens/s");
        assert_eq!(in_words(3.0 * 1024.0 * 1024.0, "bytes"), "3.000 MiB");
        assert_eq!(rate(18.42e9, "B"), "18.42 GB/s");
        assert_eq!((percent(0.0123), percent(0.98)), ("1.2 %".to_owned(), "98 %".to_owned()));
        assert_eq!((change(-0.5), change(0.031)), ("−50 %".to_owned(), "+3.1 %".to_owned()));
        assert_eq!(in_words(f64::NAN, "ms"), "– ns");
    }
}
