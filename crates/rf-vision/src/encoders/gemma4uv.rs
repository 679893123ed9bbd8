//! Gemma 4 unified: patches go to the text model without a tower.

use rf_graph::layer::NormKind;

use super::tower::{AxisPositions, projection};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText, TokenLimits};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::network::{Network, Stage, StageRunner};
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::patches;
use crate::sizing;

pub(super) static GEMMA4UV: ProjectorKind = ProjectorKind {
    name: "gemma4uv",
    merge: Merge::Patches(3),
    limits: Some(TokenLimits { min: 70, max: 1120 }),
    plan: sizing::smart,
    kernel: Interpolation::Bicubic,
    around: ["<|image>", "<image|>"],
    tile_text: TileText::None,
    rows: RowRule::Merged,
    has_grid: false,
    non_causal: ProjectorKind::non_causal,
    build,
};

struct Gemma4Uv {
    settings: ProjectorSettings,
    positions: AxisPositions,
    stage: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    const EPS: f32 = 1e-5;
    let settings = b.settings.clone();
    let table = AxisPositions::new(b)?;
    let x = b.input(settings.patch_width());
    let positions = b.input(settings.transformer.hidden_size);
    let x = b.norm("v.patch_norm.1", NormKind::Layer, EPS, x)?;
    let x = b.patch_embedding(x)?;
    let x = b.norm("v.patch_norm.2", NormKind::Layer, EPS, x)?;
    let x = b.add(x, positions);
    let x = b.norm("v.patch_norm.3", NormKind::Layer, EPS, x)?;
    let x = projection(b, x)?;
    let stage = b.end(x);
    Ok(Box::new(Gemma4Uv { settings, positions: table, stage }))
}

impl Network for Gemma4Uv {
    fn width(&self) -> usize {
        self.stage.width
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let grid = self.settings.patches(picture.size());
        let patches = patches(&self.settings, picture);
        run.rows(self.stage, &[&patches, &self.positions.of_grid(grid)], grid[0] * grid[1])
    }
}
