//! Bars: a value per line, with its spread.

use std::fmt::Write;

use super::svg::{Anchor, Svg};
use super::{cut, digits};

/// The size of a picture in pixels.
const WIDTH: f64 = 800.0;
const ROW: f64 = 28.0;
const HEADER: f64 = 40.0;

/// The estimated width of a character in pixels.
const CHARACTER: f64 = 6.8;

/// The room for values behind bars in pixels.
const VALUE: f64 = 150.0;

/// The longest name of a bar.
const LONGEST: usize = 60;

/// Parts of a character, from an eighth on.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// A quantity that was measured several times.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// The samples.
    pub samples: Vec<f64>,
}

impl Bar {
    fn mean(&self) -> f64 {
        self.samples.iter().sum::<f64>() / self.samples.len().max(1) as f64
    }

    /// The value as text, with the standard deviation.
    fn value(&self, unit: &str) -> String {
        let mean = self.mean();
        let squares = self.samples.iter().map(|sample| (sample - mean).powi(2));
        let freedom = self.samples.len().saturating_sub(1).max(1);
        let deviation = (squares.sum::<f64>() / freedom as f64).sqrt();
        format!("{} ± {} {unit}", digits(mean), digits(deviation))
    }
}

/// Draws bars as SVG: the mean as the length, and a dot per sample.
///
/// # Examples
///
/// ```
/// use rf_profile::plot::{Bar, bars_svg};
///
/// let bar = Bar { name: "decode".into(), samples: vec![99.0, 101.0] };
/// assert!(bars_svg(&[bar], "Speed", "t/s").contains("100 ± 1.41 t/s"));
/// ```
pub fn bars_svg(bars: &[Bar], title: &str, unit: &str) -> String {
    let longest = bars.iter().map(|bar| bar.name.chars().count().min(LONGEST)).max().unwrap_or(0);
    let left = 16.0 + CHARACTER * longest as f64;
    let width = WIDTH.max(left + VALUE + 200.0);
    let scale = (width - left - VALUE) / most(bars);
    let mut svg = Svg::new(width, HEADER + ROW * bars.len() as f64 + 8.0, title);
    svg.text("ink", (8.0, 22.0), Anchor::Start, title);
    for (row, bar) in (0_u32..).zip(bars) {
        let y = HEADER + ROW * f64::from(row);
        let middle = y + ROW / 2.0;
        let end = left + bar.mean() * scale;
        svg.text("ink", (left - 8.0, middle + 4.0), Anchor::End, &cut(&bar.name, LONGEST));
        svg.rect("bar", (left, y + 5.0), ((bar.mean() * scale).max(0.5), ROW - 10.0));
        for sample in &bar.samples {
            svg.circle("dot", (left + sample * scale, middle), 2.5);
        }
        let most = bar.samples.iter().map(|sample| left + sample * scale).fold(end, f64::max);
        svg.text("muted", (most + 8.0, middle + 4.0), Anchor::Start, &bar.value(unit));
    }
    svg.finish()
}

/// Draws bars as text of this width.
pub fn bars_text(bars: &[Bar], unit: &str, width: usize) -> String {
    let values: Vec<String> = bars.iter().map(|bar| bar.value(unit)).collect();
    let names = bars.iter().map(|bar| bar.name.chars().count().min(LONGEST)).max().unwrap_or(0);
    let value_width = values.iter().map(|value| value.chars().count()).max().unwrap_or(0);
    let columns = width.saturating_sub(names + value_width + 4).max(8);
    let scale = columns as f64 / most(bars);
    let mut out = String::new();
    for (bar, value) in bars.iter().zip(values) {
        let eighths = (bar.mean() * scale * 8.0).round() as usize;
        let drawn = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
        let name = cut(&bar.name, LONGEST);
        // Writing into a String cannot fail.
        _ = writeln!(out, "{name:<names$}  {drawn} {value}");
    }
    out
}

/// The largest value, on which the scale depends.
fn most(bars: &[Bar]) -> f64 {
    let samples = bars.iter().flat_map(|bar| bar.samples.iter().copied());
    let most = samples.filter(|sample| sample.is_finite()).fold(0.0, f64::max);
    if most > 0.0 { most } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars() -> [Bar; 2] {
        [
            Bar { name: "pp512".to_owned(), samples: vec![400.0, 400.0] },
            Bar { name: "tg<128>".to_owned(), samples: vec![90.0, 110.0] },
        ]
    }

    #[test]
    fn bars_are_as_long_as_their_means() {
        let expected = "\
pp512    ████████████████ 400 ± 0.00 t/s
tg<128>  ████ 100 ± 14.1 t/s
";
        assert_eq!(bars_text(&bars(), "t/s", 7 + 4 + 14 + 16), expected);
        let svg = bars_svg(&bars(), "Speed", "t/s");
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("tg&lt;128&gt;") && svg.contains("100 ± 14.1 t/s"), "{svg}");
        let width = |row: usize| {
            let bar = svg.split("class=\"bar\"").nth(row + 1).unwrap();
            let width = bar.split("width=\"").nth(1).unwrap().split('"').next().unwrap();
            width.parse::<f64>().unwrap()
        };
        assert!((width(0) / width(1) - 4.0).abs() < 0.01, "{svg}");
    }

    #[test]
    fn nothing_to_draw_is_a_picture() {
        assert_eq!(bars_text(&[], "t/s", 80), "");
        assert!(bars_svg(&[], "Speed", "t/s").ends_with("</svg>\n"));
        let zero = [Bar { name: "x".to_owned(), samples: vec![0.0] }];
        assert!(!bars_svg(&zero, "Speed", "t/s").contains("NaN"));
        assert_eq!(bars_text(&zero, "t/s", 80), "x   0.00 ± 0.00 t/s\n");
    }
}
