//! Successive layers that see the same rows: each run of them is a stage.

use std::ops::Range;

use crate::build::{Builder, Rows};
use crate::network::Stage;

/// A stage of layers.
pub(super) struct Segment {
    pub(super) stage: Stage,
    /// True if rows see all others, not only those of their window.
    pub(super) sees_all: bool,
}

/// The runs of layers that see the same rows.
pub(super) fn segments(
    num_layers: usize,
    sees_all: impl Fn(usize) -> bool,
) -> Vec<(Range<usize>, bool)> {
    let mut segments: Vec<(Range<usize>, bool)> = Vec::new();
    for layer in 0..num_layers {
        match segments.last_mut() {
            Some((range, all)) if *all == sees_all(layer) => range.end = layer + 1,
            _ => segments.push((Range { start: layer, end: layer + 1 }, sees_all(layer))),
        }
    }
    segments
}

/// Ends a stage, and begins the next one with its rows unless it is the last.
pub(super) fn end_or_continue(b: &mut Builder<'_>, x: Rows, is_last: bool) -> (Stage, Rows) {
    let stage = b.end(x);
    (stage, if is_last { x } else { b.input(x.width) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_layers_are_joined() {
        let segments = segments(5, |layer| layer % 3 == 2);
        assert_eq!(segments, [(0..2, false), (2..3, true), (3..5, false)]);
    }
}
