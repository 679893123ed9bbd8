//! Llama 4: a tower with a row for the whole picture, on square tiles.

use rf_graph::layer::NormKind;
use rf_graph::{Activation, RopeAxis, RopeStyle};

use super::internvl::positions_and_class;
use super::rope::rope;
use super::tower::{mlp, tower};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{cells, gather, patches, unshuffle};
use crate::sizing;

pub(super) static LLAMA4: ProjectorKind = ProjectorKind {
    name: "llama4",
    merge: Merge::Scale(Some(2)),
    limits: None,
    plan: sizing::up_to_three_tiles,
    kernel: Interpolation::Bicubic,
    around: ["<|image_start|>", "<|image_end|>"],
    tile_text: TileText::None,
    rows: RowRule::Merged,
    has_grid: false,
    non_causal: ProjectorKind::causal,
    build,
};

struct Llama4 {
    settings: ProjectorSettings,
    /// What is added to each patch, and after them to a patch of zeros.
    positions: Vec<f32>,
    tower: Stage,
    head: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let settings = b.settings.clone();
    let positions = positions_and_class(b)?;
    let mut spec = b.layer_spec(NormKind::Layer);
    if let Some(attention) = spec.attention_mut() {
        let axes = [RopeAxis::Column, RopeAxis::Row];
        attention.rope =
            Some(rope(RopeStyle::Normal, settings.transformer.head_dim, axes, 10_000.0, 1.0));
    }
    let tower = tower(b, &spec)?;
    let x = b.input(settings.transformer.hidden_size * settings.merge * settings.merge);
    let names = ["mm.model.mlp.1", "mm.model.mlp.2"];
    let x = mlp(b, &names, Activation::GeluTanh, x)?;
    let x = b.activation(x, Activation::GeluTanh);
    let x = b.linear("mm.model.fc", x)?;
    let head = b.end(x);
    Ok(Box::new(Llama4 { settings, positions, tower, head }))
}

impl Network for Llama4 {
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
        // The row for the whole picture is at (0, 0), the patches begin at (1, 1).
        let mut places: Vec<[usize; 2]> =
            cells(grid).into_iter().map(|cell| cell.map(|n| n + 1)).collect();
        places.push([0, 0]);
        let inputs = [&*patches, &self.positions];
        let x = run.groups(self.tower, &inputs, &[AttentionGroup::at(&places)])?;
        let x = unshuffle(&x[..count * hidden_size], hidden_size, grid, merge);
        // Rows come out column by column.
        let [columns, rows] = grid.map(|n| n / merge);
        let order: Vec<usize> =
            (0..columns).flat_map(|x| (0..rows).map(move |y| y * columns + x)).collect();
        let x = gather(&x, hidden_size * merge * merge, &order);
        run.rows(self.head, &[&x], order.len())
    }
}
