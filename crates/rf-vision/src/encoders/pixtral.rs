//! Pixtral and Mistral 3: a tower with rotary embedding by row and column, and a row that ends each
//! row of patches.

use rf_graph::layer::NormKind;
use rf_graph::{Activation, RopeAxis, RopeStyle};

use super::rope::rope;
use super::tower::mlp;
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText, TokenLimits};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{block_order, cells, gather, interleave, patches};
use crate::sizing;

pub(super) static PIXTRAL: ProjectorKind = ProjectorKind {
    name: "pixtral",
    merge: Merge::Spatial(Some(1)),
    limits: Some(TokenLimits { min: 8, max: 1024 }),
    plan: sizing::smart,
    kernel: Interpolation::Bicubic,
    around: ["", "[IMG_END]"],
    tile_text: TileText::None,
    rows: RowRule::WithBreaks,
    has_grid: false,
    non_causal: ProjectorKind::causal,
    build,
};

struct Pixtral {
    settings: ProjectorSettings,
    tower: Stage,
    head: Stage,
    /// The row between rows of patches.
    row_end: Vec<f32>,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let settings = b.settings.clone();
    let ProjectorSettings {
        merge,
        transformer: Transformer { hidden_size, head_dim, norm_eps, .. },
        ..
    } = settings;
    let base = b.weights.metadata().f32("clip.vision.rope.freq_base")?;
    let base = f64::from(base.unwrap_or(10_000.0));
    let mut spec = b.layer_spec(NormKind::Rms);
    if let Some(attention) = spec.attention_mut() {
        let axes = [RopeAxis::Row, RopeAxis::Column];
        let factor = base.powf(-2.0 / head_dim as f64);
        attention.rope = Some(rope(RopeStyle::Normal, head_dim, axes, base, factor));
    }
    let x = b.input(settings.patch_width());
    let x = b.patch_embedding(x)?;
    let x = b.norm("v.pre_ln", NormKind::Rms, norm_eps, x)?;
    let x = b.layers(&spec, 0..settings.transformer.num_layers, x)?;
    let x = if merge > 1 { b.norm("mm.input_norm", NormKind::Rms, norm_eps, x)? } else { x };
    let tower = b.end(x);

    let mut x = b.input(hidden_size * merge * merge);
    if merge > 1 {
        x = b.linear("mm.patch_merger", x)?;
    }
    let x = mlp(b, &["mm.1", "mm.2"], Activation::GeluTanh, x)?;
    let head = b.end(x);
    let row_end = b.weights.values("v.token_embd.img_break", 1, head.width)?;
    Ok(Box::new(Pixtral { settings, tower, head, row_end }))
}

impl Network for Pixtral {
    fn width(&self) -> usize {
        self.head.width
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { merge, transformer: Transformer { hidden_size, .. }, .. } =
            self.settings;
        let grid = self.settings.patches(picture.size());
        let patches = patches(&self.settings, picture);
        let x = run.groups(self.tower, &[&patches], &[AttentionGroup::at(&cells(grid))])?;
        let x = gather(&x, hidden_size, &block_order(grid, merge));
        let x = interleave(&x, hidden_size, merge * merge);
        let [columns, rows] = grid.map(|n| n / merge);
        let x = run.rows(self.head, &[&x], columns * rows)?;
        let rows: Vec<&[f32]> = x.chunks_exact(columns * self.head.width).collect();
        Ok(rows.join(&*self.row_end))
    }
}
