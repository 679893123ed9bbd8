//! Gemma 4: a tower with rotary embedding by column and row, whose patches are averaged in squares.

use rf_graph::layer::{NormKind, QkNormGroup, QkNormSpec};
use rf_graph::{RopeAxis, RopeStyle};

use super::rope::rope;
use super::tower::{AxisPositions, embedding, projection};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText, TokenLimits};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{block_order, cells, gather, mean_of_each, patches};
use crate::sizing;

pub(super) static GEMMA4V: ProjectorKind = ProjectorKind {
    name: "gemma4v",
    merge: Merge::Scale(Some(3)),
    limits: Some(TokenLimits { min: 70, max: 1120 }),
    plan: sizing::smart,
    kernel: Interpolation::Bicubic,
    around: ["<|image>", "<image|>"],
    tile_text: TileText::None,
    rows: RowRule::Merged,
    has_grid: false,
    non_causal: |width| !matches!(width, 1536 | 2560),
    build,
};

struct Gemma4V {
    settings: ProjectorSettings,
    positions: AxisPositions,
    tower: Stage,
    /// What is subtracted from the columns of averages, and what they are multiplied by then.
    standard: Option<[Vec<f32>; 2]>,
    head: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let mut settings = b.settings.clone();
    // Pixels become 2x − 1 after the normalisation.
    for (mean, std) in settings.mean.iter_mut().zip(&mut settings.std) {
        *std *= 0.5;
        *mean += *std;
    }
    let ProjectorSettings { transformer: Transformer { hidden_size, head_dim, .. }, .. } = settings;
    let positions = AxisPositions::new(b)?;
    let mut spec = b.layer_spec(NormKind::Rms);
    if let Some(attention) = spec.attention_mut() {
        let axes = [RopeAxis::Column, RopeAxis::Row];
        attention.rope = Some(rope(RopeStyle::Neox, head_dim, axes, 100.0, 1.0));
        attention.qk_norm = Some(QkNormSpec { group: QkNormGroup::Head, after_rope: false });
        attention.normalizes_values = true;
        attention.scale = 1.0;
    }
    // The elements of a pair lie in the same half of the head in the file, but in different halves
    // for `RopeStyle::Neox`.
    let quarter = head_dim / 4;
    let quarters = [0, 2, 1, 3].map(|part| part * quarter..(part + 1) * quarter);
    b.weights.order_heads(quarters.into_iter().flatten().collect());

    let x = embedding(b)?;
    let x = b.layers(&spec, 0..settings.transformer.num_layers, x)?;
    let tower = b.end(x);
    let has_standard = b.weights.has("v.std_bias");
    let mut vector = |name: &str| b.weights.values(name, 1, hidden_size);
    let standard =
        if has_standard { Some([vector("v.std_bias")?, vector("v.std_scale")?]) } else { None };
    let x = b.input(hidden_size);
    let x = projection(b, x)?;
    let head = b.end(x);
    Ok(Box::new(Gemma4V { settings, positions, tower, standard, head }))
}

impl Network for Gemma4V {
    fn width(&self) -> usize {
        self.head.width
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { merge, transformer: Transformer { hidden_size, .. }, .. } =
            self.settings;
        let grid = self.settings.patches(picture.size());
        let patches = patches(&self.settings, picture);
        let positions = self.positions.of_grid(grid);
        let group = [AttentionGroup::at(&cells(grid))];
        let x = run.groups(self.tower, &[&patches, &positions], &group)?;

        let x = gather(&x, hidden_size, &block_order(grid, merge));
        let mut x = mean_of_each(&x, hidden_size, merge * merge);
        let scale = (hidden_size as f32).sqrt();
        for value in &mut x {
            *value *= scale;
        }
        if let Some([bias, scale]) = &self.standard {
            for row in x.chunks_exact_mut(hidden_size) {
                for ((value, bias), scale) in row.iter_mut().zip(bias).zip(scale) {
                    *value = (*value - bias) * scale;
                }
            }
        }
        run.rows(self.head, &[&x], x.len() / hidden_size)
    }
}
