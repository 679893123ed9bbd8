//! Qwen 3-VL, 3.5 and later: a tower over squares of patches, with parts of its rows from within
//! (deepstack).

use std::ops::Range;

use rf_graph::layer::NormKind;
use rf_graph::{Activation, RopeAxis, RopeStyle};

use super::rope::rope;
use super::tower::{mlp, positions, two_frames};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText, TokenLimits};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::positions::{PositionTable, Resampling};
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{block_order, cells, gather, patches};
use crate::sizing;

pub(super) static QWEN3VL: ProjectorKind = ProjectorKind {
    name: "qwen3vl_merger",
    merge: Merge::Spatial(Some(2)),
    limits: Some(TokenLimits { min: 8, max: 4096 }),
    plan: sizing::smart,
    kernel: Interpolation::Bicubic,
    around: ["<|vision_start|>", "<|vision_end|>"],
    tile_text: TileText::None,
    rows: RowRule::Merged,
    has_grid: true,
    non_causal: ProjectorKind::causal,
    build,
};

struct Qwen3Vl {
    settings: ProjectorSettings,
    positions: PositionTable,
    /// Layers after each of which rows are taken to a merger of their own, and the others.
    layers: Vec<Stage>,
    /// The mergers after all but the last stage of layers.
    deepstack: Vec<Stage>,
    merger: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let settings = b.settings.clone();
    let table = positions(b)?;
    let mut spec = b.layer_spec(NormKind::Layer);
    let axes = [RopeAxis::Row, RopeAxis::Column];
    if let Some(attention) = spec.attention_mut() {
        attention.rope =
            Some(rope(RopeStyle::Neox, settings.transformer.head_dim, axes, 10_000.0, 1.0));
    }

    let (mut layers, mut deepstack) = (Vec::new(), Vec::new());
    let width = settings.transformer.hidden_size * settings.merge * settings.merge;
    let patches = b.input(settings.patch_width());
    let positions = b.input(settings.transformer.hidden_size);
    let x = two_frames(b, patches)?;
    let mut x = b.add(x, positions);
    for segment in segments(b) {
        let last = segment.end - 1;
        x = b.layers(&spec, segment, x)?;
        layers.push(b.end(x));
        let name = format!("v.deepstack.{last}");
        let y = b.input(width);
        let y =
            b.norm(&format!("{name}.norm"), NormKind::Layer, settings.transformer.norm_eps, y)?;
        let names = ["fc1", "fc2"].map(|part| format!("{name}.{part}"));
        let y = mlp(b, &names.each_ref().map(String::as_str), Activation::GeluTanh, y)?;
        deepstack.push(b.end(y));
        x = b.input(settings.transformer.hidden_size);
    }
    let first = segments(b).last().map_or(0, |segment| segment.end);
    x = b.layers(&spec, first..settings.transformer.num_layers, x)?;
    x = b.norm("v.post_ln", NormKind::Layer, settings.transformer.norm_eps, x)?;
    layers.push(b.end(x));

    let x = b.input(width);
    let x = mlp(b, &["mm.0", "mm.2"], Activation::GeluTanh, x)?;
    let merger = b.end(x);
    Ok(Box::new(Qwen3Vl { settings, positions: table, layers, deepstack, merger }))
}

/// The layers up to each that has a merger of its own.
fn segments(b: &Builder<'_>) -> Vec<Range<usize>> {
    let has_merger = |layer: &usize| b.weights.has(&format!("v.deepstack.{layer}.fc1.weight"));
    let mut first = 0;
    let ends = (0..b.settings.transformer.num_layers).filter(has_merger).map(|layer| layer + 1);
    ends.map(|end| std::mem::replace(&mut first, end)..end).collect()
}

impl Network for Qwen3Vl {
    fn width(&self) -> usize {
        self.merger.width + self.deepstack.iter().map(|stage| stage.width).sum::<usize>()
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { merge, transformer: Transformer { hidden_size, .. }, .. } =
            self.settings;
        let grid = self.settings.patches(picture.size());
        let order = block_order(grid, merge);
        let cells = cells(grid);
        let cells: Vec<[usize; 2]> = order.iter().map(|index| cells[*index]).collect();
        let group = [AttentionGroup::at(&cells)];
        let positions = self.positions.resampled(grid, Resampling::AlignedCorners);
        let positions = gather(&positions, hidden_size, &order);
        let patches = patches(&self.settings, picture);
        let patches = gather(&patches, self.settings.patch_width(), &order);

        let count = RowRule::Merged.count(grid, merge);
        let mut x = run.groups(self.layers[0], &[&patches, &positions], &group)?;
        let mut parts = Vec::new();
        for (layers, merger) in self.layers[1..].iter().zip(&self.deepstack) {
            parts.push((run.rows(*merger, &[&x], count)?, merger.width));
            x = run.groups(*layers, &[&x], &group)?;
        }
        parts.insert(0, (run.rows(self.merger, &[&x], count)?, self.merger.width));
        let row = |row: usize| {
            parts.iter().flat_map(move |(x, width)| &x[row * width..(row + 1) * width])
        };
        Ok((0..count).flat_map(row).copied().collect())
    }
}
