//! Gemma 3: `SigLIP` on a square picture, whose patches are averaged in squares.

use rf_graph::layer::NormKind;

use super::tower::{positions_of_picture, tower};
use crate::build::{Builder, Rows};
use crate::config::{Merge, ProjectorSettings, TileText};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::positions::PositionTable;
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{block_order, gather, mean_of_each, patches};
use crate::sizing;

pub(super) static GEMMA3: ProjectorKind = ProjectorKind {
    name: "gemma3",
    merge: Merge::Scale(Some(4)),
    limits: None,
    plan: sizing::square,
    kernel: Interpolation::Bilinear,
    around: ["<start_of_image>", "<end_of_image>"],
    tile_text: TileText::None,
    rows: RowRule::Merged,
    has_grid: false,
    non_causal: ProjectorKind::non_causal,
    build,
};

struct Gemma3 {
    settings: ProjectorSettings,
    positions: PositionTable,
    tower: Stage,
    head: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let settings = b.settings.clone();
    let positions = positions_of_picture(b, 0)?;
    let spec = b.layer_spec(NormKind::Layer);
    let tower = tower(b, &spec)?;

    let x = b.input(settings.transformer.hidden_size);
    let x = b.norm("mm.soft_emb_norm", NormKind::Rms, settings.transformer.norm_eps, x)?;
    let name = "mm.input_projection.weight";
    let width = b.weights.axis(name, 0)?;
    let weight = b.weights.transposed(name, width, x.width)?;
    let id = b.weights.graph.matmul(x.id, weight);
    let head = b.end(Rows { id, width });
    Ok(Box::new(Gemma3 { settings, positions, tower, head }))
}

impl Network for Gemma3 {
    fn width(&self) -> usize {
        self.head.width
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { merge, transformer: Transformer { hidden_size, .. }, .. } =
            self.settings;
        let grid = self.settings.patches(picture.size());
        let inputs = [&*patches(&self.settings, picture), self.positions.rows()];
        let x = run.groups(self.tower, &inputs, &AttentionGroup::all(grid[0] * grid[1]))?;
        let x = gather(&x, hidden_size, &block_order(grid, merge));
        let x = mean_of_each(&x, hidden_size, merge * merge);
        run.rows(self.head, &[&x], x.len() / hidden_size)
    }
}
