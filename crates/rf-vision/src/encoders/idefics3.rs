//! Idefics 3 and `SmolVLM`: `SigLIP` on square tiles, squares of whose patches become a row.

use rf_graph::layer::NormKind;

use super::tower::{positions_of_picture, tower};
use crate::build::Builder;
use crate::config::{Merge, ProjectorSettings, TileText};
use crate::error::Error;
use crate::kind::{ProjectorKind, RowRule};
use crate::modality::Transformer;
use crate::network::{AttentionGroup, Network, Stage, StageRunner};
use crate::positions::PositionTable;
use crate::resample::Interpolation;
use crate::rgb::Rgb;
use crate::rows::{patches, unshuffle};
use crate::sizing;

pub(super) static IDEFICS3: ProjectorKind = ProjectorKind {
    name: "idefics3",
    merge: Merge::Scale(None),
    limits: None,
    plan: sizing::longest_side,
    kernel: Interpolation::Lanczos,
    around: ["", ""],
    tile_text: TileText::Idefics3,
    rows: RowRule::Merged,
    has_grid: false,
    non_causal: ProjectorKind::causal,
    build,
};

struct Idefics3 {
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
    let x = b.input(settings.transformer.hidden_size * settings.merge * settings.merge);
    let x = b.linear("mm.model.fc", x)?;
    let head = b.end(x);
    Ok(Box::new(Idefics3 { settings, positions, tower, head }))
}

impl Network for Idefics3 {
    fn width(&self) -> usize {
        self.head.width
    }

    fn encode(&self, picture: &Rgb, run: &mut StageRunner<'_>) -> Result<Vec<f32>, Error> {
        let ProjectorSettings { merge, transformer: Transformer { hidden_size, .. }, .. } =
            self.settings;
        let grid = self.settings.patches(picture.size());
        let inputs = [&*patches(&self.settings, picture), self.positions.rows()];
        let x = run.groups(self.tower, &inputs, &AttentionGroup::all(grid[0] * grid[1]))?;
        let x = unshuffle(&x, hidden_size, grid, merge);
        run.rows(self.head, &[&x], RowRule::Merged.count(grid, merge))
    }
}
