//! Muse Glimmer: most layers see a window of the size of the position grid, some all patches.

use rf_graph::layer::NormKind;
use rf_graph::{Activation, RopeAxis, RopeStyle};

use super::rope::rope;
use super::segments::{Segment, end_or_continue, segments};
use super::tower::{embedding, mlp, positions};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText, TokenLimits};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::positions::{PositionTable, Resampling};
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{block_order, gather, interleave, patches, windows};
use crate::sizing;

pub(super) static MUSE_GLIMMER: ProjectorKind = ProjectorKind {
    name: "muse-glimmer",
    merge: Merge::Spatial(Some(2)),
    limits: Some(TokenLimits { min: 1, max: 4096 }),
    plan: sizing::nearest_grid,
    kernel: Interpolation::Lanczos,
    around: ["<|image_start|>", "<|image_end|>"],
    tile_text: TileText::None,
    rows: RowRule::Merged,
    has_grid: false,
    non_causal: ProjectorKind::causal,
    build,
};

struct MuseGlimmer {
    settings: ProjectorSettings,
    positions: PositionTable,
    layers: Vec<Segment>,
    head: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let settings = b.settings.clone();
    let ProjectorSettings {
        merge,
        transformer: Transformer { hidden_size, head_dim, num_layers, norm_eps, .. },
        ..
    } = settings;
    let table = positions(b)?;
    let mut spec = b.layer_spec(NormKind::Layer);
    if let Some(attention) = spec.attention_mut() {
        let axes = [RopeAxis::Column, RopeAxis::Row];
        attention.rope = Some(rope(RopeStyle::Normal, head_dim, axes, 10_000.0, 1.0));
    }
    if let Some(dense) = &mut spec.dense {
        dense.activation = Activation::GeluErf;
    }
    let sees_all = |layer: usize| (layer + 1).is_multiple_of(4) || layer + 1 == num_layers;

    let x = embedding(b)?;
    let mut x = b.optional_norm("v.pre_ln", NormKind::Layer, norm_eps, x)?;
    let mut layers = Vec::new();
    for (range, sees_all) in segments(num_layers, sees_all) {
        let is_last = range.end == num_layers;
        x = b.layers(&spec, range, x)?;
        if is_last {
            x = b.optional_norm("v.post_ln", NormKind::Layer, norm_eps, x)?;
        }
        let (stage, next) = end_or_continue(b, x, is_last);
        layers.push(Segment { stage, sees_all });
        x = next;
    }
    let x = b.input(hidden_size * merge * merge);
    let x = mlp(b, &["mm.0", "mm.1", "mm.2"], Activation::GeluErf, x)?;
    let head = b.end(x);
    Ok(Box::new(MuseGlimmer { settings, positions: table, layers, head }))
}

impl Network for MuseGlimmer {
    fn width(&self) -> usize {
        self.head.width
    }

    fn max_spans(&self, patches: usize) -> usize {
        patches / self.positions.side() + patches.isqrt() + 2
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { merge, transformer: Transformer { hidden_size, .. }, .. } =
            self.settings;
        let grid = self.settings.patches(picture.size());
        let windows = windows(grid, self.positions.side());
        let in_windows: Vec<AttentionGroup> =
            windows.iter().map(|cells| AttentionGroup::at(cells)).collect();
        let cells = windows.concat();
        let all = [AttentionGroup::at(&cells)];
        let order: Vec<usize> = cells.iter().map(|[x, y]| y * grid[0] + x).collect();

        let positions = self.positions.resampled(grid, Resampling::HalfPixel);
        let mut inputs = vec![
            gather(&patches(&self.settings, picture), self.settings.patch_width(), &order),
            gather(&positions, hidden_size, &order),
        ];
        for Segment { stage, sees_all } in &self.layers {
            let slices: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
            inputs =
                vec![run.groups(*stage, &slices, if *sees_all { &all } else { &in_windows })?];
        }
        // From the order of windows to that of blocks.
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, cell)| places[*cell] = place);
        let order: Vec<usize> =
            block_order(grid, merge).into_iter().map(|cell| places[cell]).collect();
        let x = interleave(&gather(&inputs[0], hidden_size, &order), hidden_size, merge * merge);
        run.rows(self.head, &[&x], RowRule::Merged.count(grid, merge))
    }
}
