//! A type of projector as data: sizes, tiles, text around its rows, and its network.

use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText, TokenLimits};
use crate::error::Error;
use crate::network::Network;
use crate::plan::TilePlan;
use crate::resample::Interpolation;

/// A type of projector.
pub(crate) struct ProjectorKind {
    /// The type in files.
    pub(crate) name: &'static str,
    pub(crate) merge: Merge,
    /// The default limits on tokens; `None` if they do not apply.
    pub(crate) limits: Option<TokenLimits>,
    pub(crate) plan: fn(&ProjectorSettings, [usize; 2]) -> TilePlan,
    pub(crate) kernel: Interpolation,
    /// Text before and after the picture.
    pub(crate) around: [&'static str; 2],
    pub(crate) tile_text: TileText,
    pub(crate) rows: RowRule,
    /// True if the text model has a position per axis.
    pub(crate) has_grid: bool,
    /// True if the rows of a picture see each other in both directions, for a width of the rows.
    pub(crate) non_causal: fn(usize) -> bool,
    pub(crate) build: fn(&mut Builder<'_>) -> Result<Box<dyn Network>, Error>,
}

/// The rows of a picture or tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowRule {
    /// A row per square of merged patches.
    Merged,
    /// The same, also for incomplete squares at the right and the bottom.
    MergedUp,
    /// The same as `Merged`, with a row between the rows of the grid.
    WithBreaks,
}

impl ProjectorKind {
    /// Causal attention whatever the width.
    pub(crate) fn causal(_width: usize) -> bool {
        false
    }

    /// Attention in both directions whatever the width.
    pub(crate) fn non_causal(_width: usize) -> bool {
        true
    }
}

impl RowRule {
    /// The rows of a grid of patches, each `merge` patches wide and high.
    pub(crate) fn count(self, [columns, rows]: [usize; 2], merge: usize) -> usize {
        match self {
            Self::Merged => (columns / merge) * (rows / merge),
            Self::MergedUp => columns.div_ceil(merge) * rows.div_ceil(merge),
            Self::WithBreaks => (columns / merge + 1) * (rows / merge) - 1,
        }
    }
}
