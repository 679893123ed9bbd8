//! The hyper-parameters of a projector file.

use rf_gguf::Metadata;

use crate::error::Error;
use crate::modality::{Keys, Modality, Transformer};

/// The limits on the tokens of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLimits {
    /// Smaller pictures are enlarged.
    pub min: usize,
    /// Larger pictures are reduced.
    pub max: usize,
}

/// The key of the number of patches per side that become one row, and its default.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Merge {
    /// `spatial_merge_size`.
    Spatial(Option<usize>),
    /// `projector.scale_factor`.
    Scale(Option<usize>),
    /// `projector.scale_factor`: they are one patch from the start.
    Patches(usize),
}

/// The text around tiles and the overview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TileText {
    /// None; the overview is last.
    None,
    /// The row and column of each tile; the overview is last.
    Lfm2,
    /// The number of the picture, the overview, and slices.
    MiniCpm,
    /// The row and column of each tile; the overview is last.
    Idefics3,
}

/// Side of a tile of LFM2 in pixels.
pub(crate) const LFM2_TILE: usize = 512;

/// What sizes, tiles and layers follow from.
#[derive(Clone)]
pub(crate) struct ProjectorSettings {
    pub(crate) tile_text: TileText,
    /// Side of the model's picture in pixels.
    pub(crate) image_size: usize,
    /// Side of a patch in pixels.
    pub(crate) patch_size: usize,
    /// Patches per side that become one row.
    pub(crate) merge: usize,
    pub(crate) mean: [f32; 3],
    pub(crate) std: [f32; 3],
    pub(crate) limits: Option<TokenLimits>,
    /// Fewest and most tiles.
    pub(crate) tiles: [usize; 2],
    /// Length of the longer side before tiling, in pixels.
    pub(crate) longest_side: Option<usize>,
    pub(crate) transformer: Transformer,
}

/// The largest side in pixels that a file may state: sizes are squared and multiplied by widths.
const MAX_SIDE: usize = 1 << 12;

impl ProjectorSettings {
    /// Reads the settings of a type of projector, which says where the merged patches are stated,
    /// the limits on tokens and the text around tiles.
    pub(crate) fn read(
        merge: Merge,
        limits: Option<TokenLimits>,
        tile_text: TileText,
        metadata: &Metadata,
    ) -> Result<Self, Error> {
        let keys = Keys { metadata, modality: Modality::Vision };
        let side = |key: &str| keys.number(key, 1..=MAX_SIDE);
        let optional_side = |key: &str| keys.optional(key, 1..=MAX_SIDE);
        let (mut patch_size, image_size) = (side("patch_size")?, side("image_size")?);
        let factor =
            |key: &'static str, default: Option<usize>| keys.optional_or(key, 1..=64, default);
        let merge = match merge {
            Merge::Spatial(default) => factor("spatial_merge_size", default)?,
            Merge::Scale(default) => factor("projector.scale_factor", default)?,
            Merge::Patches(default) => {
                patch_size *= factor("projector.scale_factor", Some(default))?;
                1
            }
        };
        let transformer = Transformer::read(&keys)?;
        let std = colours(&keys, "image_std")?;
        if std.contains(&0.0) {
            return Err(keys.invalid("image_std", 0, "it divides pixels"));
        }
        let [min_tiles, max_tiles] = ["preproc_min_tiles", "preproc_max_tiles"];
        Ok(Self {
            tile_text,
            image_size,
            patch_size,
            merge,
            mean: colours(&keys, "image_mean")?,
            std,
            limits,
            tiles: [
                keys.optional(min_tiles, 1..=64)?.unwrap_or(1),
                keys.optional(max_tiles, 1..=64)?.unwrap_or(12),
            ],
            longest_side: optional_side("preproc_image_size")?,
            transformer,
        })
    }

    /// Side of the pixels that become one row.
    pub(crate) fn unit(&self) -> usize {
        self.patch_size * self.merge
    }

    fn pixels_of(&self, tokens: usize) -> usize {
        tokens.saturating_mul(self.unit() * self.unit())
    }

    /// Pixels of the smallest picture.
    pub(crate) fn min_pixels(&self) -> usize {
        self.limits.map_or(0, |limits| self.pixels_of(limits.min))
    }

    /// Pixels of the largest picture.
    pub(crate) fn max_pixels(&self) -> usize {
        self.limits.map_or(usize::MAX, |limits| self.pixels_of(limits.max))
    }

    /// Values of a patch: three colours of each pixel.
    pub(crate) fn patch_width(&self) -> usize {
        3 * self.patch_size * self.patch_size
    }

    /// Patches of a picture, `[columns, rows]`.
    pub(crate) fn patches(&self, size: [usize; 2]) -> [usize; 2] {
        size.map(|n| n / self.patch_size)
    }

    /// The most patches of a picture or tile.
    pub(crate) fn max_patches(&self) -> usize {
        let side = self.image_size.div_ceil(self.patch_size);
        match (self.limits, self.tile_text) {
            (Some(limits), tiles) => {
                let side = if tiles == TileText::Lfm2 { LFM2_TILE / self.patch_size } else { 0 };
                limits.max.saturating_mul(self.merge * self.merge).max(side * side)
            }
            // Long and narrow slices have more patches than square ones.
            (None, TileText::MiniCpm) => 2 * side * side,
            (None, _) => side * side,
        }
    }
}

/// The values of a key for the three colours.
fn colours(keys: &Keys<'_>, key: &str) -> Result<[f32; 3], Error> {
    let values = keys.metadata.required_f32s(&keys.name(key))?;
    let is_finite = values.iter().all(|value| value.is_finite());
    let colours = <[f32; 3]>::try_from(&*values).ok().filter(|_| is_finite);
    colours.ok_or_else(|| Error::Setting {
        key: keys.name(key),
        value: format!("{values:?}"),
        reason: "it must have three finite values",
    })
}
