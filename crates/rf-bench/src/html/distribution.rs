//! The distribution of a benchmark's samples relative to their median. All benchmarks of a suite
//! share one scale.

use std::ops::Range;

use plotters::prelude::{
    ChartBuilder, Circle, Color, EmptyElement, PathElement, Polygon, ShapeStyle,
};
use rf_profile::baseline::Metrics;

use super::plot::palette::{ACCENT, INK, RULE};
use super::plot::{self, Area, Drawn, Mark};
use super::units::{FormattedValue, percent};
use crate::Error;
use crate::results::Measured;

/// Three times the size on the page, because plotters rounds positions to pixels.
const SIZE: (u32, u32) = (600, 72);

/// The margin for samples beyond the scale.
const MARGIN: u32 = 21;

/// The maximum number of samples in a plot.
const MAX_SAMPLES: usize = 400;

/// The deviations from the median that the plots of a suite show.
#[derive(Clone, Debug)]
pub(super) struct Scale(Range<f64>);

/// The distribution of one benchmark.
pub(super) struct Distribution {
    pub(super) svg: String,
    pub(super) label: String,
}

impl Scale {
    /// A scale that contains the minimum and the 95th percentile of each benchmark, within limits,
    /// so that one noisy benchmark does not flatten the others.
    pub(super) fn of<'a>(measured: impl Iterator<Item = &'a Measured>) -> Self {
        let mut shown = -0.02..0.02;
        for Metrics { p50, min, max, p95, .. } in measured.map(|measured| &measured.metrics) {
            let Some(median) = p50.filter(|median| *median > 0.0) else { continue };
            let deviation = |value: Option<f64>| value.map_or(0.0, |value| value / median - 1.0);
            shown.start = deviation(*min).min(shown.start);
            shown.end = deviation(p95.or(*max)).max(shown.end);
        }
        Self(shown.start.max(-0.3)..shown.end.min(0.6))
    }

    /// The ends of the scale.
    pub(super) fn ends(&self) -> String {
        format!("−{} … +{}", percent(-self.0.start), percent(self.0.end))
    }

    /// The plot of a benchmark, or `None` without a median.
    pub(super) fn plot(&self, measured: &Measured) -> Result<Option<Distribution>, Error> {
        let Some(median) = measured.metrics.p50.filter(|median| *median > 0.0) else {
            return Ok(None);
        };
        let plot = plot::draw(SIZE, |area| self.draw(area, measured, median))?;
        Ok(Some(Distribution { svg: plot.svg, label: describe(&measured.metrics) }))
    }

    fn draw(&self, area: &Area<'_>, measured: &Measured, median: f64) -> Drawn<Vec<Mark>> {
        let (start, end) = (self.0.start, self.0.end);
        let mut builder = ChartBuilder::on(area);
        builder.margin_left(MARGIN).margin_right(MARGIN);
        let mut chart = builder.build_cartesian_2d(start..end, 0.0..1.0)?;
        let line = |points: [(f64, f64); 2], style: ShapeStyle| PathElement::new(points, style);
        chart.draw_series([line([(start, 0.5), (end, 0.5)], RULE.stroke_width(3))])?;

        let deviation = |value: f64| value / median - 1.0;
        let samples = samples(&measured.rounds);
        if samples.is_empty() {
            let Metrics { min, max, p95, .. } = measured.metrics;
            let ends = min.zip(p95.or(max)).map(|(min, max)| [deviation(min), deviation(max)]);
            let range = ends.map(|ends| ends.map(|x| (x.clamp(start, end), 0.5)));
            let style = ACCENT.mix(0.45).stroke_width(9);
            chart.draw_series(range.map(|range| line(range, style)))?;
        }
        let (shown, beyond): (Vec<_>, Vec<_>) = samples
            .into_iter()
            .map(|(sample, row)| (deviation(sample), row))
            .partition(|(x, _)| (start..=end).contains(x));
        let style = ACCENT.mix(0.55).filled();
        chart.draw_series(shown.into_iter().map(|at| Circle::new(at, 5, style)))?;
        chart.draw_series(beyond.into_iter().map(|(x, y)| {
            let tip = if x > end { 12 } else { -12 };
            let triangle = Polygon::new(vec![(0, -7), (tip, 0), (0, 7)], style);
            EmptyElement::at((x.clamp(start, end), y)) + triangle
        }))?;
        chart.draw_series([line([(0.0, 0.08), (0.0, 0.92)], INK.stroke_width(5))])?;
        Ok(Vec::new())
    }
}

/// At most [`MAX_SAMPLES`] samples with their vertical positions: one row for each round.
fn samples(rounds: &[Vec<f64>]) -> Vec<(f64, f64)> {
    let count: usize = rounds.iter().map(Vec::len).sum();
    let step = count.div_ceil(MAX_SAMPLES).max(1);
    let position = |row: usize| 0.83 - 0.66 * (row as f64 + 0.5) / rounds.len() as f64;
    let rows = rounds.iter().enumerate();
    rows.flat_map(|(row, round)| {
        round.iter().step_by(step).map(move |sample| (*sample, position(row)))
    })
    .collect()
}

/// The text alternative of a plot.
fn describe(metrics: &Metrics) -> String {
    let text = |name: &str, value: Option<f64>| {
        value.map(|value| format!("{name} {}", FormattedValue::new(value, &metrics.unit).joined()))
    };
    let values = [
        text("minimum", metrics.min),
        text("median", metrics.p50),
        text("p95", metrics.p95),
        text("maximum", metrics.max),
    ];
    values.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
