//! The roofline plot: operations per byte and operations per second of each benchmark, with the
//! limits of the machine (Williams, Waterman and Patterson 2009). Both axes are logarithmic.

use std::ops::Range;

use plotters::prelude::{ChartBuilder, Circle, Color, IntoLogRange, PathElement, RGBColor, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use rf_profile::roofline::{MachineLimits, Roofline};

use super::plot::palette::{
    ATTENTION, DEQUANT, INFERENCE, INK, LAUNCH, MATMUL, MEMORY, MUTED, RULE,
};
use super::plot::{self, Area, Drawn, Mark, Plot, text_style};
use super::units::{percent, rate};
use crate::results::{Measured, Run};
use crate::{Error, Suite};

const SIZE: (u32, u32) = (960, 460);

/// Estimated widths of a character in labels, which plotters cannot measure.
const NAME_CHARACTER: f64 = 6.4;
const LIMIT_CHARACTER: f64 = 7.4;

/// The roofline plot of a run.
pub(super) struct RooflinePlot {
    pub(super) plot: Plot,
    /// The suites in the plot, for the legend.
    pub(super) suites: Vec<&'static str>,
}

/// A benchmark in the plot.
struct Point<'a> {
    measured: &'a Measured,
    roofline: Roofline,
    /// Operations per byte.
    intensity: f64,
}

/// Draws the roofline of a run, or returns `None` without limits or without benchmarks of known
/// cost.
pub(super) fn roofline(run: &Run) -> Result<Option<RooflinePlot>, Error> {
    let points = points(run);
    let Some((x, y)) = axes(&run.limits, &points) else { return Ok(None) };
    let plot = plot::draw(SIZE, |area| draw(area, &run.limits, &points, x, y))?;
    let mut suites: Vec<Suite> = points.iter().map(|point| point.measured.suite).collect();
    suites.sort_unstable();
    suites.dedup();
    Ok(Some(RooflinePlot { plot, suites: suites.into_iter().map(Suite::name).collect() }))
}

fn points(run: &Run) -> Vec<Point<'_>> {
    let points = run.results.iter().filter_map(|measured| {
        let roofline = measured.roofline?;
        let is_valid = roofline.bytes_per_s > 0.0 && roofline.operations_per_s > 0.0;
        let intensity = roofline.operations_per_s / roofline.bytes_per_s;
        is_valid.then_some(Point { measured, roofline, intensity })
    });
    points.collect()
}

/// The ranges of both axes, which include the ridge points.
fn axes(limits: &MachineLimits, points: &[Point<'_>]) -> Option<(Range<f64>, Range<f64>)> {
    let bandwidth = limits.bandwidth_bytes_per_s?;
    let speeds = || limits.operations_per_s().map(|(_, speed)| speed);
    let intensities = points.iter().map(|point| point.intensity);
    let measured = points.iter().map(|point| point.roofline.operations_per_s);
    let x = padded(intensities.chain(speeds().map(|speed| speed / bandwidth)))?;
    let y = padded(measured.chain(speeds()))?;
    (!points.is_empty()).then_some((x, y))
}

/// A range of the positive values with a margin and at least one power of ten.
fn padded(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    const MARGIN: f64 = 0.15;
    let logs = values.filter(|v| *v > 0.0 && v.is_finite()).map(f64::log10);
    let (low, high) = logs.fold(None, |ends: Option<(f64, f64)>, log| {
        let (low, high) = ends.unwrap_or((log, log));
        Some((low.min(log), high.max(log)))
    })?;
    let (low, high) = (low - MARGIN, high + MARGIN);
    let low = if low.ceil() <= high { low } else { low.floor() };
    Some(10_f64.powf(low)..10_f64.powf(high))
}

fn draw(
    area: &Area<'_>,
    limits: &MachineLimits,
    points: &[Point<'_>],
    x: Range<f64>,
    y: Range<f64>,
) -> Drawn<Vec<Mark>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).margin_right(16).x_label_area_size(44).y_label_area_size(84);
    let mut chart = builder.build_cartesian_2d(x.clone().log_scale(), y.clone().log_scale())?;
    chart
        .configure_mesh()
        .bold_line_style(RULE)
        .light_line_style(RULE.mix(0.0))
        .axis_style(RULE)
        .label_style(text_style(14, MUTED))
        .axis_desc_style(text_style(14, MUTED))
        .x_labels(8)
        .y_labels(8)
        .x_desc("operations per byte")
        .y_desc("operations per second")
        .x_label_formatter(&|intensity| rounded(*intensity).to_string())
        .y_label_formatter(&|speed| axis_rate(*speed))
        .draw()?;

    let roofs = roofs(limits, &x, &y);
    for [from, to] in roofs.iter().map(|roof| roof.ends) {
        chart.draw_series([PathElement::new([from, to], INK.stroke_width(2))])?;
    }
    for point in points {
        let colour = suite_colour(point.measured.suite).filled();
        let at = (point.intensity, point.roofline.operations_per_s);
        chart.draw_series([Circle::new(at, 4, colour)])?;
    }

    let pixel = |(x, y): (f64, f64)| {
        let (x, y) = chart.backend_coord(&(x, y));
        (f64::from(x), f64::from(y))
    };
    let (left, bottom) = pixel((x.start, y.start));
    let (right, top) = pixel((x.end, y.end));
    let inside = Rect { left, right, top, bottom };
    let mut labels = Labels { area, inside, occupied: Vec::new() };
    let mut marks = Vec::new();
    for point in points {
        let (x, y) = pixel((point.intensity, point.roofline.operations_per_s));
        labels.occupied.push(Rect::around(x, y, 5.0));
        marks.push(Mark::new((x as i32, y as i32), SIZE, tooltip(point)));
    }
    for roof in &roofs {
        labels.occupy_line(roof.ends.map(pixel));
    }
    for roof in &roofs {
        labels.name_roof(&roof.name, roof.ends.map(pixel))?;
    }
    // The benchmarks nearest to a limit are named first.
    let mut points: Vec<&Point<'_>> = points.iter().collect();
    points.sort_by(|a, b| b.roofline.share.total_cmp(&a.roofline.share));
    for point in points {
        let at = pixel((point.intensity, point.roofline.operations_per_s));
        labels.name_point(&short_name(&point.measured.name), at)?;
    }
    Ok(marks)
}

/// A limit of the machine: a line in the plot.
struct Roof {
    name: String,
    ends: [(f64, f64); 2],
}

fn roofs(limits: &MachineLimits, x: &Range<f64>, y: &Range<f64>) -> Vec<Roof> {
    let Some(bandwidth) = limits.bandwidth_bytes_per_s else { return Vec::new() };
    let top = limits.operations_per_s().map(|(_, speed)| speed).fold(0.0, f64::max);
    let top = if top > 0.0 { top } else { y.end };
    let (start, end) = (x.start.max(y.start / bandwidth), x.end.min(top / bandwidth));
    let memory = Roof {
        name: format!("memory {}", rate(bandwidth, "B").joined()),
        ends: [(start, start * bandwidth), (end, end * bandwidth)],
    };
    let compute = limits.operations_per_s().map(|(arithmetic, speed)| Roof {
        name: format!("{arithmetic} {}", rate(speed, "ops").joined()),
        ends: [(speed / bandwidth, speed), (x.end, speed)],
    });
    [memory].into_iter().chain(compute).collect()
}

fn tooltip(point: &Point<'_>) -> String {
    let Point { measured, roofline, intensity } = point;
    let bound = roofline.bound.as_str();
    format!(
        "{}\n{} · {} · {intensity:.2} operations/byte\n{} of roofline ({bound} bound)",
        measured.name,
        rate(roofline.bytes_per_s, "B").joined(),
        rate(roofline.operations_per_s, "ops").joined(),
        percent(roofline.share)
    )
}

/// Places labels where they cover nothing.
struct Labels<'a, 'b> {
    area: &'a Area<'b>,
    inside: Rect,
    occupied: Vec<Rect>,
}

impl Labels<'_, '_> {
    /// Names a limit: at the left of a slope, above a horizontal line.
    fn name_roof(&mut self, name: &str, [(x1, y1), (x2, y2)]: [(f64, f64); 2]) -> Drawn<()> {
        let width = LIMIT_CHARACTER * name.chars().count() as f64;
        let is_slope = (y2 - y1).abs() > 1.0;
        let candidates = (0..40).map(|step| {
            let (right, bottom) = if is_slope {
                let fraction = 0.5 + 0.012 * f64::from(step);
                (x1 + fraction * (x2 - x1) - 8.0, y1 + fraction * (y2 - y1) - 2.0)
            } else {
                (x2 - 12.0 * f64::from(step), y1 - 4.0)
            };
            Rect { left: right - width, right, top: bottom - 14.0, bottom }
        });
        let rect = candidates.into_iter().find(|rect| self.is_free(rect));
        let Some(rect) = rect else { return Ok(()) };
        let style = text_style(15, INK).pos(Pos::new(HPos::Right, VPos::Bottom));
        let at = (rect.right as i32, rect.bottom as i32);
        self.area.draw(&Text::new(name.to_owned(), at, style))?;
        self.occupied.push(rect);
        Ok(())
    }

    /// Names a point at its right, left, top or bottom.
    fn name_point(&mut self, name: &str, (x, y): (f64, f64)) -> Drawn<()> {
        const HEIGHT: f64 = 12.0;
        let width = NAME_CHARACTER * name.chars().count() as f64;
        let rect = |left: f64, middle: f64| Rect {
            left,
            right: left + width,
            top: middle - HEIGHT / 2.0,
            bottom: middle + HEIGHT / 2.0,
        };
        let candidates = [
            rect(x + 8.0, y),
            rect(x - 8.0 - width, y),
            rect(x - width / 2.0, y - 12.0),
            rect(x - width / 2.0, y + 12.0),
        ];
        let Some(rect) = candidates.into_iter().find(|rect| self.is_free(rect)) else {
            return Ok(());
        };
        let style = text_style(13, MUTED).pos(Pos::new(HPos::Left, VPos::Center));
        let at = (rect.left as i32, f64::midpoint(rect.top, rect.bottom) as i32);
        self.area.draw(&Text::new(name.to_owned(), at, style))?;
        self.occupied.push(rect);
        Ok(())
    }

    fn occupy_line(&mut self, [(x1, y1), (x2, y2)]: [(f64, f64); 2]) {
        const STEPS: u32 = 160;
        let fractions = (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS));
        let rects = fractions.map(|f| Rect::around(x1 + f * (x2 - x1), y1 + f * (y2 - y1), 3.0));
        self.occupied.extend(rects);
    }

    fn is_free(&self, rect: &Rect) -> bool {
        rect.is_within(&self.inside) && !self.occupied.iter().any(|other| rect.overlaps(other))
    }
}

/// A rectangle in pixels.
struct Rect {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Rect {
    fn around(x: f64, y: f64, distance: f64) -> Self {
        let (left, right) = (x - distance, x + distance);
        Self { left, right, top: y - distance, bottom: y + distance }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn is_within(&self, other: &Self) -> bool {
        self.left >= other.left
            && self.right <= other.right
            && self.top >= other.top
            && self.bottom <= other.bottom
    }
}

fn suite_colour(suite: Suite) -> RGBColor {
    match suite {
        Suite::Matmul => MATMUL,
        Suite::Attention => ATTENTION,
        Suite::Dequant => DEQUANT,
        Suite::Inference => INFERENCE,
        Suite::Memory => MEMORY,
        Suite::Launch => LAUNCH,
    }
}

/// A benchmark name without its suite, which the colour identifies.
fn short_name(name: &str) -> String {
    const MAX: usize = 44;
    let rest = name.split_once('/').map_or(name, |(_, rest)| rest);
    if rest.chars().count() <= MAX {
        return rest.to_owned();
    }
    rest.chars().take(MAX - 1).chain(['…']).collect()
}

/// A power of ten on the axis of operations per second: `10 G`.
fn axis_rate(per_s: f64) -> String {
    const PREFIXES: [(f64, &str); 5] =
        [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"), (0.0, "")];
    let prefix = PREFIXES.into_iter().find(|(scale, _)| per_s >= *scale * (1.0 - 1e-9));
    let (scale, name) = prefix.unwrap_or_default();
    let value = if scale > 0.0 { per_s / scale } else { per_s };
    format!("{}{name}", rounded(value))
}

/// A power of ten without the rounding errors of the axis.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        assert_eq!([1e7, 1e9, 1e13, 100.0].map(axis_rate), ["10 M", "1 G", "10 T", "100"]);
        assert_eq!(short_name("matmul/q4_0/rows=1"), "q4_0/rows=1");
        assert_eq!(short_name(&"x".repeat(99)).chars().count(), 44);
    }

    #[test]
    fn axes_include_all_positive_values_and_a_power_of_ten() {
        let range = padded([0.5, 0.0, 300.0].into_iter()).unwrap();
        assert!(range.start < 0.5 && range.end > 300.0);
        let range = padded([2.0, 3.0].into_iter()).unwrap();
        assert!(range.contains(&1.0) && range.contains(&3.0));
        assert!(padded([0.0, f64::NAN].into_iter()).is_none());
    }
}
