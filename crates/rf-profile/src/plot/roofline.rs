//! Rooflines: operations per byte and per second of each operation, below the limits of the
//! machine. Both axes are logarithmic.

use std::fmt::Write;
use std::ops::Range;

use super::svg::{Anchor, Svg};
use super::{cut, digits};
use crate::roofline::{MachineLimits, RooflineVerdict};

/// The size of a picture in pixels.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 44.0;
/// The room for the list of operations.
const LIST: f64 = 290.0;

/// Rows of a plot in a terminal.
const ROWS: usize = 16;

/// The room for the labels of the vertical axis in a terminal.
const LABELS: usize = 7;

/// The marks of operations in a terminal.
const MARKS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

/// The limits and the operations of a plot.
struct Plot<'a> {
    bandwidth: f64,
    /// Limits of arithmetic by name.
    roofs: Vec<(&'static str, f64)>,
    points: Vec<Point<'a>>,
    /// Decades of operations per byte.
    x: Range<i32>,
    /// Decades of operations per second.
    y: Range<i32>,
}

/// An operation.
struct Point<'a> {
    verdict: &'a RooflineVerdict,
    intensity: f64,
}

/// Draws operations below the roofline of a machine as SVG. `None` without limits, or without an
/// operation that computes.
pub fn roofline_svg(
    limits: &MachineLimits,
    verdicts: &[RooflineVerdict],
    title: &str,
) -> Option<String> {
    let plot = Plot::new(limits, verdicts)?;
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    svg.text("ink", (8.0, 22.0), Anchor::Start, title);
    let (right, bottom) = (WIDTH - LIST, HEIGHT - BOTTOM);
    let at = |intensity: f64, rate: f64| {
        let x = LEFT + share(intensity, &plot.x) * (right - LEFT);
        (x, bottom - share(rate, &plot.y) * (bottom - TOP))
    };
    for decade in plot.x.start..=plot.x.end {
        let (x, _) = at(10_f64.powi(decade), 1.0);
        svg.path("rule", &[(x, TOP), (x, bottom)]);
        svg.text("muted", (x, bottom + 16.0), Anchor::Middle, &power(decade));
    }
    for decade in plot.y.start..=plot.y.end {
        let (_, y) = at(1.0, 10_f64.powi(decade));
        svg.path("rule", &[(LEFT, y), (right, y)]);
        svg.text("muted", (LEFT - 6.0, y + 4.0), Anchor::End, &rate(decade));
    }
    let middle = f64::midpoint(LEFT, right);
    svg.text("muted", (middle, HEIGHT - 8.0), Anchor::Middle, "operations per byte");
    svg.text("muted", (LEFT, TOP - 8.0), Anchor::Start, "operations per second");
    let (least, most) = (10_f64.powi(plot.x.start), 10_f64.powi(plot.x.end));
    for (name, limit) in &plot.roofs {
        let ridge = (limit / plot.bandwidth).clamp(least, most);
        let corners = [
            at(least, (least * plot.bandwidth).min(*limit)),
            at(ridge, (ridge * plot.bandwidth).min(*limit)),
            at(most, (most * plot.bandwidth).min(*limit)),
        ];
        svg.path("roof", &corners);
        let label = format!("{} Gops/s {name}", digits(limit / 1e9));
        svg.text("ink", (right - 4.0, corners[2].1 - 6.0), Anchor::End, &label);
    }
    let slope = at(least, least * plot.bandwidth);
    let label = format!("{} GB/s", digits(plot.bandwidth / 1e9));
    svg.text("ink", (slope.0 + 8.0, slope.1 - 18.0), Anchor::Start, &label);
    for (number, point) in (1_u32..).zip(&plot.points) {
        let (x, y) = at(point.intensity, point.verdict.operations_per_s);
        let line = TOP + 18.0 * f64::from(number);
        let description = point.description();
        svg.with_tooltip(&description, |svg| {
            svg.circle("dot", (x, y), 5.0);
            svg.text("ink", (x + 8.0, y + 4.0), Anchor::Start, &number.to_string());
            let entry = format!("{number}  {description}");
            svg.text("ink", (right + 16.0, line), Anchor::Start, &cut(&entry, 42));
        });
    }
    Some(svg.finish())
}

/// Draws the same as text of this width.
pub fn roofline_text(
    limits: &MachineLimits,
    verdicts: &[RooflineVerdict],
    width: usize,
) -> Option<String> {
    let plot = Plot::new(limits, verdicts)?;
    let columns = width.saturating_sub(LABELS + 1).max(20);
    let mut rows = vec![vec![' '; columns]; ROWS];
    let column = |intensity: f64| (share(intensity, &plot.x) * (columns - 1) as f64).round();
    let row = |rate: f64| (ROWS - 1) as f64 - (share(rate, &plot.y) * (ROWS - 1) as f64).round();
    let mut set = |column: f64, row: f64, c: char| {
        let cells = rows.get_mut(row.max(0.0) as usize);
        if let Some(cell) = cells.and_then(|cells| cells.get_mut(column.max(0.0) as usize)) {
            *cell = c;
        }
    };
    for (_, limit) in &plot.roofs {
        for place in 0..columns {
            let decades = f64::from(plot.x.end - plot.x.start);
            let exponent = place as f64 / (columns - 1) as f64 * decades;
            let intensity = 10_f64.powf(f64::from(plot.x.start) + exponent);
            let slope = intensity * plot.bandwidth;
            let c = if slope < *limit { '∙' } else { '▔' };
            set(place as f64, row(slope.min(*limit)), c);
        }
    }
    let marked = plot.points.iter().zip(MARKS);
    for (point, mark) in marked.clone().rev() {
        set(column(point.intensity), row(point.verdict.operations_per_s), char::from(*mark));
    }
    let mut out = String::new();
    // Writing into a String cannot fail.
    let mut line = |text: &str| _ = writeln!(out, "{}", text.trim_end());
    let decades: Vec<i32> = (plot.y.start..=plot.y.end).collect();
    for (index, cells) in rows.iter().enumerate() {
        let labelled = decades.iter().find(|decade| row(10_f64.powi(**decade)) as usize == index);
        let label = labelled.map(|decade| rate(*decade)).unwrap_or_default();
        line(&format!("{label:>LABELS$}▏{}", cells.iter().collect::<String>()));
    }
    let (from, to) = (power(plot.x.start), power(plot.x.end));
    let gap = columns.saturating_sub(from.len() + to.len()).max(1);
    line(&format!("{:>LABELS$} {from}{:^gap$}{to}", "", "operations per byte"));
    for (point, mark) in marked {
        line(&format!("{} {}", char::from(*mark), point.description()));
    }
    Some(out)
}

impl<'a> Plot<'a> {
    fn new(limits: &MachineLimits, verdicts: &'a [RooflineVerdict]) -> Option<Self> {
        let bandwidth = limits.bandwidth_bytes_per_s.filter(|limit| *limit > 0.0)?;
        let roofs: Vec<_> = limits.operations_per_s().filter(|(_, limit)| *limit > 0.0).collect();
        let points = verdicts.iter().filter_map(|verdict| {
            let intensity = verdict.intensity.filter(|intensity| *intensity > 0.0)?;
            (verdict.operations_per_s > 0.0).then_some(Point { verdict, intensity })
        });
        let points: Vec<_> = points.collect();
        if roofs.is_empty() || points.is_empty() {
            return None;
        }
        let ridges = roofs.iter().map(|(_, limit)| limit / bandwidth);
        let x = decades(points.iter().map(|point| point.intensity).chain(ridges))?;
        let rates = points.iter().map(|point| point.verdict.operations_per_s);
        let y = decades(rates.chain(roofs.iter().map(|(_, limit)| *limit)))?;
        Some(Self { bandwidth, roofs, points, x, y })
    }
}

impl Point<'_> {
    fn description(&self) -> String {
        let RooflineVerdict { name, time_share, roofline, .. } = self.verdict;
        let reached = roofline
            .map(|roofline| format!(", {:.0} % of the roofline", 100.0 * roofline.share))
            .unwrap_or_default();
        format!("{}: {:.0} % of the time{reached}", cut(name, 60), 100.0 * time_share)
    }
}

/// Whole decades around finite values.
fn decades(values: impl Iterator<Item = f64>) -> Option<Range<i32>> {
    let exponents = values.map(f64::log10).filter(|exponent| exponent.is_finite());
    let ends = exponents.fold(None, |ends: Option<(f64, f64)>, exponent| {
        let (least, most) = ends.unwrap_or((exponent, exponent));
        Some((least.min(exponent), most.max(exponent)))
    });
    let (least, most) = ends?;
    let (start, end) = (least.floor() as i32, most.ceil() as i32);
    Some(start..end.max(start + 1))
}

/// The place of a value between decades, from 0 to 1.
fn share(value: f64, decades: &Range<i32>) -> f64 {
    let (start, end) = (f64::from(decades.start), f64::from(decades.end));
    ((value.log10() - start) / (end - start)).clamp(0.0, 1.0)
}

/// A power of ten: `0.01`, `1`, `1000`.
fn power(decade: i32) -> String {
    let places = usize::try_from(-decade).unwrap_or(0);
    format!("{:.places$}", 10_f64.powi(decade))
}

/// A power of ten operations per second: `10 G`.
fn rate(decade: i32) -> String {
    const PREFIXES: [&str; 6] = ["", " k", " M", " G", " T", " P"];
    let prefix = decade.div_euclid(3).clamp(0, 5);
    format!("{}{}", power(decade - 3 * prefix), PREFIXES[prefix as usize])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::roofline::OpMeasurement;

    fn limits() -> MachineLimits {
        MachineLimits {
            source: "a test".to_owned(),
            bandwidth_bytes_per_s: Some(10e9),
            f32_operations_per_s: Some(100e9),
            int8_operations_per_s: Some(1e12),
            ..MachineLimits::default()
        }
    }

    fn verdicts() -> Vec<RooflineVerdict> {
        let op = |name: &str, bytes: f64, operations: f64| OpMeasurement {
            name: name.to_owned(),
            count: 1,
            time: Duration::from_millis(1),
            bytes,
            int8_operations: operations,
            ..OpMeasurement::default()
        };
        limits().judge(&[op("mat<mul>", 8e6, 16e6), op("copy", 5e6, 0.0), op("big", 1e6, 400e6)])
    }

    #[test]
    fn operations_are_drawn_below_the_limits() {
        let svg = roofline_svg(&limits(), &verdicts(), "Ops").unwrap();
        assert_eq!(svg.matches("<circle").count(), 2, "a copy has no operations: {svg}");
        assert_eq!(svg.matches("class=\"roof\"").count(), 2);
        for text in ["10.0 GB/s", "100 Gops/s f32", "1000 Gops/s int8", "mat&lt;mul&gt;: 33 %"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_terminal_shows_marks_and_their_names() {
        let text = roofline_text(&limits(), &verdicts(), 60).unwrap();
        assert!(text.contains("\na mat<mul>: 33 % of the time, 80 % of the roofline\n"), "{text}");
        assert!(text.contains("\nb big: 33 % of the time, 40 % of the roofline\n"), "{text}");
        let rows: Vec<&str> = text.lines().take(ROWS).collect();
        let place = |c: char| {
            let row = rows.iter().position(|row| row.contains(c)).unwrap();
            (row, rows[row].chars().position(|cell| cell == c).unwrap())
        };
        // More operations per byte, and more per second.
        assert!(place('b').0 < place('a').0 && place('b').1 > place('a').1, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains("▔") && text.contains("∙"), "{text}");
    }

    #[test]
    fn nothing_is_drawn_without_limits_or_operations() {
        assert_eq!(roofline_svg(&MachineLimits::default(), &verdicts(), "Ops"), None);
        assert_eq!(roofline_text(&limits(), &[], 60), None);
        let copies: Vec<_> = verdicts().into_iter().filter(|it| it.name == "copy").collect();
        assert_eq!(roofline_text(&limits(), &copies, 60), None);
    }

    #[test]
    fn axes_are_labelled_in_decades() {
        assert_eq!([power(-2), power(0), power(3)], ["0.01", "1", "1000"]);
        assert_eq!([rate(9), rate(11), rate(13), rate(2)], ["1 G", "100 G", "10 T", "100"]);
        assert_eq!(decades([0.5, 20.0].into_iter()), Some(-1..2));
        assert_eq!(decades([1.0].into_iter()), Some(0..1));
        assert_eq!(decades([0.0].into_iter()), None);
    }
}
