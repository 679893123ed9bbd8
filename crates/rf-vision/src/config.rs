//! The hyper-parameters of a projector file.

use rf_gguf::{Gguf, Metadata};
use rf_graph::Activation;

use crate::error::Error;

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
pub(crate) struct Settings {
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
    /// Width of a patch in the encoder.
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_layers: usize,
    pub(crate) num_heads: usize,
    pub(crate) num_kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) norm_eps: f32,
    pub(crate) activation: Activation,
}

/// The largest side in pixels, and the largest width of rows, that a file may state: sizes are
/// squared and multiplied by widths.
const MAX_SIDE: usize = 1 << 12;
const MAX_WIDTH: usize = 1 << 20;

impl Settings {
    /// Reads the settings of a type of projector, which says where the merged patches are stated,
    /// the limits on tokens and the text around tiles.
    pub(crate) fn read(
        merge: Merge,
        limits: Option<TokenLimits>,
        tile_text: TileText,
        metadata: &Metadata,
    ) -> Result<Self, Error> {
        let keys = Keys { metadata };
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
        // An encoder without layers has no heads.
        let num_layers = keys.number("block_count", 0..=1024)?;
        let least = usize::from(num_layers > 0);
        let hidden_size = keys.number("embedding_length", 1..=MAX_WIDTH)?;
        let num_heads = keys.number("attention.head_count", least..=MAX_WIDTH)?;
        let head_dim = keys.optional("attention.head_dim", 1..=MAX_WIDTH)?;
        let num_kv_heads = keys.optional("attention.head_count_kv", 1..=MAX_WIDTH)?;
        let num_kv_heads = num_kv_heads.unwrap_or(num_heads);
        if num_layers > 0 && !num_heads.is_multiple_of(num_kv_heads) {
            let reason = "it does not divide the number of heads";
            return Err(invalid("attention.head_count_kv", num_kv_heads, reason));
        }
        let std = keys.colours("image_std")?;
        if std.contains(&0.0) {
            return Err(invalid("image_std", 0, "it divides pixels"));
        }
        let [min_tiles, max_tiles] = ["preproc_min_tiles", "preproc_max_tiles"];
        Ok(Self {
            tile_text,
            image_size,
            patch_size,
            merge,
            mean: keys.colours("image_mean")?,
            std,
            limits,
            tiles: [
                keys.optional(min_tiles, 1..=64)?.unwrap_or(1),
                keys.optional(max_tiles, 1..=64)?.unwrap_or(12),
            ],
            longest_side: optional_side("preproc_image_size")?,
            hidden_size,
            intermediate_size: keys.number("feed_forward_length", least..=MAX_WIDTH)?,
            num_layers,
            num_heads,
            num_kv_heads,
            head_dim: head_dim.unwrap_or(hidden_size / num_heads.max(1)),
            norm_eps: metadata.required_f32("clip.vision.attention.layer_norm_epsilon")?,
            activation: keys.activation()?,
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

/// The type of the vision projector of a file.
///
/// # Errors
///
/// If the file is no projector, or encodes no pictures.
pub(crate) fn projector_type(gguf: &Gguf) -> Result<String, Error> {
    let metadata = gguf.metadata();
    let architecture = metadata.str("general.architecture")?.unwrap_or("none");
    if architecture != "clip" {
        return Err(Error::NotAProjector { architecture: architecture.to_owned() });
    }
    if metadata.bool("clip.has_vision_encoder")? != Some(true) {
        return Err(Error::NoVision);
    }
    let of_vision = metadata.str("clip.vision.projector_type")?;
    match of_vision {
        Some(name) => Ok(name.to_owned()),
        None => Ok(metadata.required_str("clip.projector_type")?.to_owned()),
    }
}

fn checked(key: &str, value: usize, allowed: &Allowed) -> Result<usize, Error> {
    if allowed.contains(&value) {
        return Ok(value);
    }
    Err(invalid(key, value, "it is 0 or too large"))
}

fn invalid(key: &str, value: usize, reason: &'static str) -> Error {
    Error::Setting { key: format!("clip.vision.{key}"), value: value.to_string(), reason }
}

/// Values below `clip.vision.`.
struct Keys<'a> {
    metadata: &'a Metadata,
}

type Allowed = std::ops::RangeInclusive<usize>;

impl Keys<'_> {
    fn number(&self, key: &str, allowed: Allowed) -> Result<usize, Error> {
        let value = self.metadata.required_u32(&format!("clip.vision.{key}"))? as usize;
        checked(key, value, &allowed)
    }

    fn optional(&self, key: &str, allowed: Allowed) -> Result<Option<usize>, Error> {
        let value = self.metadata.u32(&format!("clip.vision.{key}"))?;
        value.map(|value| checked(key, value as usize, &allowed)).transpose()
    }

    fn optional_or(
        &self,
        key: &str,
        allowed: Allowed,
        default: Option<usize>,
    ) -> Result<usize, Error> {
        match (self.optional(key, allowed.clone())?, default) {
            (Some(value), _) | (None, Some(value)) => Ok(value),
            (None, None) => self.number(key, allowed),
        }
    }

    fn colours(&self, key: &str) -> Result<[f32; 3], Error> {
        let name = format!("clip.vision.{key}");
        let values = self.metadata.required_f32s(&name)?;
        let is_finite = values.iter().all(|value| value.is_finite());
        let colours = <[f32; 3]>::try_from(&*values).ok().filter(|_| is_finite);
        colours.ok_or_else(|| Error::Setting {
            key: name.clone(),
            value: format!("{values:?}"),
            reason: "it must have three finite values",
        })
    }

    /// The activation of the feed-forward layers: without a key, `x · σ(1.702x)`.
    fn activation(&self) -> Result<Activation, Error> {
        let flag = |key: &str| self.metadata.bool(key).map(Option::unwrap_or_default);
        match (flag("clip.use_gelu")?, flag("clip.use_silu")?) {
            (true, false) => Ok(Activation::GeluTanh),
            (false, true) => Ok(Activation::Silu),
            (false, false) => Ok(Activation::ClampedSwiglu),
            (true, true) => Err(Error::Setting {
                key: "clip.use_gelu".to_owned(),
                value: "true".to_owned(),
                reason: "clip.use_silu is true, too",
            }),
        }
    }
}
