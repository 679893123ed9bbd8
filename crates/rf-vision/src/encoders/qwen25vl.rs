//! Qwen 2.5-VL: most layers see a window of the picture, some all of it.

use rf_graph::layer::NormKind;
use rf_graph::{Activation, RopeAxis, RopeStyle};

use super::rope::rope;
use super::segments::{Segment, end_or_continue, segments};
use super::tower::{mlp, two_frames};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText, TokenLimits};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{gather, patches, windows};
use crate::sizing;

pub(super) static QWEN25VL: ProjectorKind = ProjectorKind {
    name: "qwen2.5vl_merger",
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

/// Side of a window in pixels.
const WINDOW: usize = 112;

struct Qwen25Vl {
    settings: ProjectorSettings,
    layers: Vec<Segment>,
    merger: Stage,
}

fn build(b: &mut Builder<'_>) -> Result<Box<dyn Network>, Error> {
    let settings = b.settings.clone();
    let pattern = b.weights.metadata().required_u32("clip.vision.n_wa_pattern")?;
    if settings.unit() > WINDOW {
        return Err(Error::Setting {
            key: "clip.vision.patch_size".to_owned(),
            value: settings.patch_size.to_string(),
            reason: "a window has 112 pixels",
        });
    }
    let mut spec = b.layer_spec(NormKind::Rms);
    let axes = [RopeAxis::Row, RopeAxis::Column];
    if let Some(attention) = spec.attention_mut() {
        attention.rope =
            Some(rope(RopeStyle::Neox, settings.transformer.head_dim, axes, 10_000.0, 1.0));
    }
    let sees_all = |layer: usize| pattern > 0 && (layer + 1).is_multiple_of(pattern as usize);

    let patches = b.input(settings.patch_width());
    let mut x = two_frames(b, patches)?;
    let mut layers = Vec::new();
    for (range, sees_all) in segments(settings.transformer.num_layers, sees_all) {
        x = b.layers(&spec, range.clone(), x)?;
        let is_last = range.end == settings.transformer.num_layers;
        if is_last {
            x = b.norm("v.post_ln", NormKind::Rms, settings.transformer.norm_eps, x)?;
        }
        let (stage, next) = end_or_continue(b, x, is_last);
        layers.push(Segment { stage, sees_all });
        x = next;
    }
    let x = b.input(settings.transformer.hidden_size * settings.merge * settings.merge);
    let x = mlp(b, &["mm.0", "mm.2"], Activation::GeluTanh, x)?;
    let merger = b.end(x);
    Ok(Box::new(Qwen25Vl { settings, layers, merger }))
}

impl Qwen25Vl {
    /// Side of a window in merged patches.
    fn window(&self) -> usize {
        WINDOW / self.settings.unit()
    }
}

impl Network for Qwen25Vl {
    fn width(&self) -> usize {
        self.merger.width
    }

    fn max_spans(&self, patches: usize) -> usize {
        // A window in the middle has `window²` merged patches, one at an edge at least one.
        let merged = patches / (self.settings.merge * self.settings.merge) + 1;
        merged / self.window() + merged.isqrt() + 2
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { merge, .. } = self.settings;
        let grid = self.settings.patches(picture.size());
        let merged_grid = grid.map(|n| n / merge);
        let windows = windows(merged_grid, self.window());
        let patches_of = |cell: &[usize; 2]| {
            let [x, y] = cell.map(|n| n * merge);
            (0..merge).flat_map(move |dy| (0..merge).map(move |dx| [x + dx, y + dy]))
        };
        let cells: Vec<Vec<[usize; 2]>> =
            windows.iter().map(|cells| cells.iter().flat_map(patches_of).collect()).collect();
        let in_windows: Vec<AttentionGroup> =
            cells.iter().map(|cells| AttentionGroup::at(cells)).collect();
        let cells = cells.concat();
        let all = [AttentionGroup::at(&cells)];

        let order: Vec<usize> = cells.iter().map(|[x, y]| y * grid[0] + x).collect();
        let patches = patches(&self.settings, picture);
        let mut x = gather(&patches, self.settings.patch_width(), &order);
        for Segment { stage, sees_all } in &self.layers {
            x = run.groups(*stage, &[&x], if *sees_all { &all } else { &in_windows })?;
        }
        let count = merged_grid[0] * merged_grid[1];
        let x = run.rows(self.merger, &[&x], count)?;
        // Back to the order of the grid.
        let mut places = vec![0; count];
        for (place, [x, y]) in windows.concat().into_iter().enumerate() {
            places[y * merged_grid[0] + x] = place;
        }
        Ok(gather(&x, self.merger.width, &places))
    }
}
