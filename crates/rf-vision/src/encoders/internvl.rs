//! `InternVL`: a tower with a row for the whole picture, on square tiles.

use rf_graph::Activation;
use rf_graph::layer::NormKind;

use super::tower::{mlp, positions_of_picture, tower};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{patches, unshuffle};
use crate::sizing;

pub(super) static INTERNVL: ProjectorKind = ProjectorKind {
    name: "internvl",
    merge: Merge::Scale(Some(2)),
    limits: None,
    plan: sizing::tile_counts,
    kernel: Interpolation::Bicubic,
    around: ["<img>", "</img>"],
    tile_text: TileText::None,
    rows: RowRule::Merged,
    has_grid: false,
    non_causal: ProjectorKind::causal,
    build,
};

/// `InternViT` 6B, the only one with `RMSNorm`, has these sizes.
const LARGE: (usize, usize) = (3200, 45);

struct InternVl {
    settings: ProjectorSettings,
    /// What is added to each patch, and after them to a patch of zeros.
    positions: Vec<f32>,
    tower: Stage,
    head: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let settings = b.settings.clone();
    let positions = positions_and_class(b)?;
    let norm = if (settings.transformer.hidden_size, settings.transformer.num_layers) == LARGE {
        NormKind::Rms
    } else {
        NormKind::Layer
    };
    let spec = b.layer_spec(norm);
    let tower = tower(b, &spec)?;

    let x = b.input(settings.transformer.hidden_size * settings.merge * settings.merge);
    let x = b.norm("mm.model.mlp.0", NormKind::Layer, 1e-5, x)?;
    let x = mlp(b, &["mm.model.mlp.1", "mm.model.mlp.3"], Activation::GeluTanh, x)?;
    let head = b.end(x);
    Ok(Box::new(InternVl { settings, positions, tower, head }))
}

/// Positions with the row for the whole picture at the end. The embedding of a patch of zeros is
/// the bias of the patches, so that row begins without it.
pub(super) fn positions_and_class(b: &mut Builder<'_>) -> Result<Vec<f32>, Error> {
    let width = b.settings.transformer.hidden_size;
    let mut positions = positions_of_picture(b, 1)?.into_rows();
    let class = b.weights.values("v.class_embd", 1, width)?;
    let bias = if b.weights.has("v.patch_embd.bias") {
        b.weights.values("v.patch_embd.bias", 1, width)?
    } else {
        vec![0.0; width]
    };
    let start = positions.len() - width;
    for ((value, class), bias) in positions[start..].iter_mut().zip(class).zip(bias) {
        *value += class - bias;
    }
    Ok(positions)
}

impl Network for InternVl {
    fn width(&self) -> usize {
        self.head.width
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { merge, transformer: Transformer { hidden_size, .. }, .. } =
            self.settings;
        let grid = self.settings.patches(picture.size());
        let count = grid[0] * grid[1];
        let mut patches = patches(&self.settings, picture);
        patches.resize(patches.len() + self.settings.patch_width(), 0.0);
        let x =
            run.groups(self.tower, &[&patches, &self.positions], &AttentionGroup::all(count + 1))?;
        let x = unshuffle(&x[..count * hidden_size], hidden_size, grid, merge);
        run.rows(self.head, &[&x], RowRule::Merged.count(grid, merge))
    }
}
