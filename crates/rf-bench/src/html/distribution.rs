//! How the samples of a benchmark lie: a strip per benchmark, relative to its median, with one scale per suite.

use std::fmt::Write;
use std::ops::Range;

use rf_profile::baseline::Metrics;

use super::figures::percent;
use super::scale::Linear;
use super::{put, text};
use crate::results::Measured;

const WIDTH: f64 = 200.0;
const HEIGHT: f64 = 24.0;
/// On either side, for what lies beyond.
const EDGE: f64 = 7.0;

/// Samples drawn at most: a strip of two hundred points holds no more.
const SAMPLES: usize = 400;

/// The deviations from the median that the strips of a suite show.
#[derive(Clone, Debug)]
pub(super) struct Strips {
    shown: Range<f64>,
}

impl Strips {
    /// A scale on which the best sample and the 95th percentile of each benchmark have room, within reason: one that jumps would
    /// make points of all the others.
    pub(super) fn of<'a>(measured: impl Iterator<Item = &'a Measured>) -> Self {
        let mut shown = -0.02..0.02;
        for Metrics { p50, min, max, p95, .. } in measured.map(|measured| &measured.metrics) {
            let Some(median) = p50.filter(|median| *median > 0.0) else { continue };
            let deviation = |value: Option<f64>| value.map_or(0.0, |value| value / median - 1.0);
            shown.start = deviation(*min).min(shown.start);
            shown.end = deviation(p95.or(*max)).max(shown.end);
        }
        Self { shown: shown.start.max(-0.3)..shown.end.min(0.6) }
    }

    /// What the scale spans, for the head of the column.
    pub(super) fn span(&self) -> String {
        format!("−{} … +{}", percent(-self.shown.start), percent(self.shown.end))
    }

    /// The strip of a benchmark; nothing without a median.
    pub(super) fn draw(&self, out: &mut String, measured: &Measured) {
        let metrics = &measured.metrics;
        let Some(median) = metrics.p50.filter(|median| *median > 0.0) else { return };
        let axis = Linear { from: self.shown.clone(), to: EDGE..WIDTH - EDGE };
        let place = |value: f64| axis.at(value / median - 1.0);
        let label = describe(metrics);
        put!(
            out,
            "<svg class=\"strip\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\"><title>{}</title>",
            text(&label),
            text(&label)
        );
        let middle = HEIGHT / 2.0;
        put!(
            out,
            "<line class=\"axis\" x1=\"{EDGE}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>",
            WIDTH - EDGE
        );
        if measured.rounds.iter().all(Vec::is_empty) {
            if let (Some(min), Some(max)) = (metrics.min, metrics.p95.or(metrics.max)) {
                let (left, right) = (place(min), place(max));
                put!(
                    out,
                    "<line class=\"range\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>"
                );
            }
        } else {
            self.samples(out, &measured.rounds, median, &axis);
        }
        let x = place(median);
        put!(
            out,
            "<line class=\"median\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"2\" y2=\"{:.1}\"/></svg>",
            HEIGHT - 2.0
        );
    }

    /// A dot for each, a line of its own for each round, so that drift between rounds shows.
    fn samples(&self, out: &mut String, rounds: &[Vec<f64>], median: f64, axis: &Linear) {
        let all: usize = rounds.iter().map(Vec::len).sum();
        let every = all.div_ceil(SAMPLES).max(1);
        for (row, round) in rounds.iter().enumerate() {
            let y = 4.0 + (HEIGHT - 8.0) * (row as f64 + 0.5) / rounds.len() as f64;
            for sample in round.iter().step_by(every) {
                let deviation = sample / median - 1.0;
                let x = axis.at(deviation);
                if (self.shown.start..=self.shown.end).contains(&deviation) {
                    put!(out, "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.6\"/>");
                } else {
                    // Beyond the scale: an arrow that points there.
                    let tip = if deviation > 0.0 { 4.0 } else { -4.0 };
                    let (top, bottom) = (y - 2.2, y + 2.2);
                    put!(
                        out,
                        "<path class=\"beyond\" d=\"M{x:.1} {top:.1}L{:.1} {y:.1}L{x:.1} {bottom:.1}Z\"/>",
                        x + tip
                    );
                }
            }
        }
    }
}

/// For those who do not see it.
fn describe(metrics: &Metrics) -> String {
    let figure = |name: &str, value: Option<f64>| {
        value.map(|value| format!("{name} {}", super::figures::in_words(value, &metrics.unit)))
    };
    let figures = [
        figure("least", metrics.min),
        figure("median", metrics.p50),
        figure("p95", metrics.p95),
        figure("greatest", metrics.max),
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    figures.join(", ")
}
