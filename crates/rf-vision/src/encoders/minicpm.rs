//! `MiniCPM-V` 4.6: squares of patches are joined within the tower, and again after it.

use rf_graph::Activation;
use rf_graph::layer::NormKind;

use super::tower::{embedding, mlp, positions};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::positions::PositionTable;
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{block_order, cells, gather, mean_of_each, patches, unshuffle};
use crate::sizing;

pub(super) static MINICPM: ProjectorKind = ProjectorKind {
    name: "minicpmv4_6",
    merge: Merge::Scale(Some(4)),
    limits: None,
    plan: sizing::slices,
    kernel: Interpolation::Bicubic,
    around: ["", ""],
    tile_text: TileText::MiniCpm,
    rows: RowRule::Merged,
    has_grid: false,
    non_causal: ProjectorKind::causal,
    build,
};

/// Patches per side that are joined at once.
const SIDE: usize = 2;

struct MiniCpm {
    settings: ProjectorSettings,
    positions: PositionTable,
    /// The first layers, and attention within each square of patches.
    first: Stage,
    squares: Stage,
    /// Joins a square.
    join: Stage,
    rest: Stage,
    head: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let settings = b.settings.clone();
    let ProjectorSettings {
        merge,
        transformer: Transformer { hidden_size, num_layers, norm_eps, .. },
        ..
    } = settings;
    let setting = |key: &str, value: String, reason| Error::Setting {
        key: format!("clip.vision.{key}"),
        value,
        reason,
    };
    if merge != SIDE * SIDE {
        let reason = "only 4 is supported";
        return Err(setting("projector.scale_factor", merge.to_string(), reason));
    }
    let layers = b.weights.metadata().required_u32s("clip.vision.wa_layer_indexes")?;
    let split = layers.first().map_or(num_layers, |layer| *layer as usize + 1);
    if layers.len() != 1 || split > num_layers {
        let reason = "it must be one layer";
        return Err(setting("wa_layer_indexes", format!("{layers:?}"), reason));
    }
    let table = positions(b)?;
    let spec = b.layer_spec(NormKind::Layer);

    let x = embedding(b)?;
    let x = b.layers(&spec, 0..split, x)?;
    let first = b.end(x);

    let x = b.input(hidden_size);
    let mut attention = spec.clone();
    attention.dense = None;
    let x = b.layer("v.vit_merger", &attention, x)?;
    let squares = b.end(x);

    let x = b.input(hidden_size * SIDE * SIDE);
    let mean = b.input(hidden_size);
    let x = b.norm("v.vit_merger.ds_ln", NormKind::Layer, norm_eps, x)?;
    let names = ["v.vit_merger.ds_ffn_up", "v.vit_merger.ds_ffn_down"];
    let x = mlp(b, &names, Activation::GeluTanh, x)?;
    let x = b.add(x, mean);
    let join = b.end(x);

    let x = b.input(hidden_size);
    let x = b.layers(&spec, split..num_layers, x)?;
    let x = b.norm("v.post_ln", NormKind::Layer, norm_eps, x)?;
    let rest = b.end(x);

    let x = b.input(hidden_size * SIDE * SIDE);
    let x = b.norm("mm.input_norm", NormKind::Layer, norm_eps, x)?;
    let x = mlp(b, &["mm.up", "mm.down"], Activation::GeluErf, x)?;
    let head = b.end(x);
    Ok(Box::new(MiniCpm { settings, positions: table, first, squares, join, rest, head }))
}

impl MiniCpm {
    /// The position of each cell: that of its bucket in the square table.
    fn positions(&self, [columns, rows]: [usize; 2]) -> Vec<f32> {
        let side = self.positions.side();
        let cells = cells([columns, rows]).into_iter();
        let buckets = cells.map(|[x, y]| side * y / rows * side + side * x / columns);
        buckets.flat_map(|bucket| self.positions.row(bucket)).copied().collect()
    }
}

impl Network for MiniCpm {
    fn width(&self) -> usize {
        self.head.width
    }

    fn max_spans(&self, patches: usize) -> usize {
        patches / (SIDE * SIDE) + 1
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { transformer: Transformer { hidden_size, .. }, .. } = self.settings;
        let grid = self.settings.patches(picture.size());
        let count = grid[0] * grid[1];
        let square = SIDE * SIDE;
        // The patches of a square lie one after the other, which joins them without another step.
        let order = block_order(grid, SIDE);
        let positions = gather(&self.positions(grid), hidden_size, &order);
        let patches = patches(&self.settings, picture);
        let patches = gather(&patches, self.settings.patch_width(), &order);
        let x = run.groups(self.first, &[&patches, &positions], &AttentionGroup::all(count))?;
        let x = run.groups(self.squares, &[&x], &AttentionGroup::of_each(count, square))?;
        let mean = mean_of_each(&x, hidden_size, square);
        let x = run.rows(self.join, &[&x, &mean], count / square)?;
        let x = run.groups(self.rest, &[&x], &AttentionGroup::all(count / square))?;
        let x = unshuffle(&x, hidden_size, grid.map(|n| n / SIDE), SIDE);
        run.rows(self.head, &[&x], count / (square * square))
    }
}
