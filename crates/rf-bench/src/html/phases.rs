//! What the time to first token is spent on: a bar in parts.

use std::fmt::Write;

use super::figures::{in_words, percent};
use super::{put, text};
use crate::results::PhaseTime;

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 10.0;

/// Shades that there are; later parts share the last one.
const SHADES: usize = 6;

/// The bar, and its parts in words: colours alone say too little. Nothing without parts.
pub(super) fn bar(out: &mut String, phases: &[PhaseTime]) {
    let total: f64 = phases.iter().map(|phase| phase.ms).sum();
    if total <= 0.0 || !total.is_finite() {
        return;
    }
    put!(
        out,
        "<div class=\"phases\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
    );
    let mut x = 0.0;
    for (place, phase) in phases.iter().enumerate() {
        let width = WIDTH * phase.ms / total;
        put!(
            out,
            "<rect class=\"part-{}\" x=\"{x:.2}\" y=\"0\" width=\"{width:.2}\" height=\"{HEIGHT}\"/>",
            place.min(SHADES - 1)
        );
        x += width;
    }
    put!(out, "</svg><span class=\"parts\">");
    for (place, phase) in phases.iter().enumerate() {
        put!(
            out,
            "<span class=\"part\"><i class=\"part-{}\"></i>{} {} ({})</span> ",
            place.min(SHADES - 1),
            text(&phase.name),
            in_words(phase.ms, "ms"),
            percent(phase.ms / total)
        );
    }
    put!(out, "</span></div>");
}
