//! The vision transformer that most projectors share.

use rf_graph::Activation;
use rf_graph::layer::{LayerSpec, LayerWeights};

use crate::build::{Builder, Rows};
use crate::error::Error;
use crate::network::Stage;
use crate::positions::PositionTable;
use crate::rows::cells;

/// One stage: the embedding of patches, plus positions from the host, the layers and the norms
/// around them, as far as the file has them. Its inputs are the patches and the positions.
pub(super) fn tower(b: &mut Builder<'_>, spec: &LayerSpec) -> Result<Stage, Error> {
    let x = embedding(b)?;
    let x = norm_and_layers(b, spec, x)?;
    Ok(b.end(x))
}

/// The embedding of patches, plus positions from the host.
pub(super) fn embedding(b: &mut Builder<'_>) -> Result<Rows, Error> {
    let patches = b.input(b.settings.patch_width());
    let positions = b.input(b.settings.transformer.hidden_size);
    let x = b.patch_embedding(patches)?;
    Ok(b.add(x, positions))
}

/// The embedding of patches by two matrices, one for each of two frames that are the same picture.
pub(super) fn two_frames(b: &mut Builder<'_>, patches: Rows) -> Result<Rows, Error> {
    let width = b.settings.transformer.hidden_size;
    let first = b.patch_embedding(patches)?;
    let weight = b.weights.matrix("v.patch_embd.weight.1", width, patches.width)?;
    let id = b.weights.graph.matmul(patches.id, weight);
    Ok(b.add(first, Rows { id, width }))
}

/// `RMSNorm` without a weight, then the only matrix to the text model.
pub(super) fn projection(b: &mut Builder<'_>, x: Rows) -> Result<Rows, Error> {
    let ones = b.weights.constant(x.width, 1.0);
    let id = b.weights.graph.rms_norm(x.id, ones, b.settings.transformer.norm_eps);
    b.linear("mm.input_projection", Rows { id, ..x })
}

/// A learned position per column and one per row, which are added.
pub(super) struct AxisPositions {
    columns: PositionTable,
    rows: PositionTable,
}

impl AxisPositions {
    pub(super) fn new(b: &mut Builder<'_>) -> Result<Self, Error> {
        let (name, width) = ("v.position_embd.weight", b.settings.transformer.hidden_size);
        let places = b.weights.axis(name, 1)?;
        let mut columns = b.weights.values(name, 2 * places, width)?;
        let rows = columns.split_off(places * width);
        Ok(Self {
            columns: PositionTable::new(columns, width),
            rows: PositionTable::new(rows, width),
        })
    }

    /// The positions of a grid. Cells beyond the tables have the last ones.
    pub(super) fn of_grid(&self, grid: [usize; 2]) -> Vec<f32> {
        let sums = cells(grid).into_iter().flat_map(|[x, y]| {
            let column = self.columns.row(x.min(self.columns.len() - 1));
            let row = self.rows.row(y.min(self.rows.len() - 1));
            column.iter().zip(row).map(|(a, b)| a + b)
        });
        sums.collect()
    }
}

/// All layers, and the norms around them as far as the file has them.
pub(super) fn norm_and_layers(
    b: &mut Builder<'_>,
    spec: &LayerSpec,
    x: Rows,
) -> Result<Rows, Error> {
    let x = b.optional_norm("v.pre_ln", spec.norm, spec.norm_eps, x)?;
    let x = b.layers(spec, 0..b.settings.transformer.num_layers, x)?;
    b.optional_norm("v.post_ln", spec.norm, spec.norm_eps, x)
}

/// The table of learned positions, of as many places as the file has.
pub(super) fn positions(b: &mut Builder<'_>) -> Result<PositionTable, Error> {
    let name = "v.position_embd.weight";
    let places = b.weights.axis(name, 1)?;
    table(b, places)
}

/// The table of learned positions for the patches of a picture of the model's size, and for `more`
/// rows.
pub(super) fn positions_of_picture(
    b: &mut Builder<'_>,
    more: usize,
) -> Result<PositionTable, Error> {
    let side = b.settings.image_size / b.settings.patch_size;
    table(b, side * side + more)
}

fn table(b: &mut Builder<'_>, places: usize) -> Result<PositionTable, Error> {
    let width = b.settings.transformer.hidden_size;
    let values = b.weights.values("v.position_embd.weight", places, width)?;
    Ok(PositionTable::new(values, width))
}

/// Matrices with an activation between them.
pub(super) fn mlp(
    b: &mut Builder<'_>,
    names: &[&str],
    activation: Activation,
    mut x: Rows,
) -> Result<Rows, Error> {
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            x = b.activation(x, activation);
        }
        x = b.linear(name, x)?;
    }
    Ok(x)
}
