//! LFM2-VL: `SigLIP` 2 on a picture of any shape, or on tiles of a large one.

use rf_graph::Activation;
use rf_graph::layer::NormKind;

use super::tower::{mlp, positions, tower};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText, TokenLimits};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::positions::{PositionTable, Resampling};
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{patches, unshuffle};
use crate::sizing;

pub(super) static LFM2: ProjectorKind = ProjectorKind {
    name: "lfm2",
    merge: Merge::Scale(Some(2)),
    limits: Some(TokenLimits { min: 64, max: 256 }),
    plan: sizing::tiles_of_512,
    kernel: Interpolation::Bilinear,
    around: ["<|image_start|>", "<|image_end|>"],
    tile_text: TileText::Lfm2,
    rows: RowRule::MergedUp,
    has_grid: false,
    non_causal: ProjectorKind::causal,
    build,
};

struct Lfm2 {
    settings: ProjectorSettings,
    positions: PositionTable,
    tower: Stage,
    head: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let settings = b.settings.clone();
    let positions = positions(b)?;
    let spec = b.layer_spec(NormKind::Layer);
    let tower = tower(b, &spec)?;
    let x = b.input(settings.transformer.hidden_size * settings.merge * settings.merge);
    let x = b.optional_norm("mm.input_norm", NormKind::Layer, 1e-5, x)?;
    let x = mlp(b, &["mm.1", "mm.2"], Activation::GeluTanh, x)?;
    let head = b.end(x);
    Ok(Box::new(Lfm2 { settings, positions, tower, head }))
}

impl Network for Lfm2 {
    fn width(&self) -> usize {
        self.head.width
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { merge, transformer: Transformer { hidden_size, .. }, .. } =
            self.settings;
        let grid = self.settings.patches(picture.size());
        let positions = self.positions.resampled(grid, Resampling::AntiAliased);
        let inputs = [&*patches(&self.settings, picture), &positions];
        let x = run.groups(self.tower, &inputs, &AttentionGroup::all(grid[0] * grid[1]))?;
        let x = unshuffle(&x, hidden_size, grid, merge);
        run.rows(self.head, &[&x], RowRule::MergedUp.count(grid, merge))
    }
}
