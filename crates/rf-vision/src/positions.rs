//! Learned positions: tables of vectors on a square grid, resampled to the grid of a picture.

/// A table of learned positions, a row per place.
#[derive(Clone, Debug)]
pub(crate) struct PositionTable {
    values: Vec<f32>,
    width: usize,
}

/// How a table of a square grid is resampled to another grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resampling {
    /// Bilinear between the corners of both grids.
    AlignedCorners,
    /// Bilinear between the centres of cells.
    HalfPixel,
    /// As `HalfPixel`, averaging where the new grid is coarser.
    AntiAliased,
}

impl PositionTable {
    pub(crate) fn new(values: Vec<f32>, width: usize) -> Self {
        Self { values, width }
    }

    /// Places of the table.
    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Side of the table as a square grid.
    pub(crate) fn side(&self) -> usize {
        self.len().isqrt()
    }

    pub(crate) fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.width..(index + 1) * self.width]
    }

    /// All rows.
    pub(crate) fn rows(&self) -> &[f32] {
        &self.values
    }

    /// All rows, to change.
    pub(crate) fn into_rows(self) -> Vec<f32> {
        self.values
    }

    /// Vectors for a grid `[columns, rows]`, of a table that is a square grid.
    pub(crate) fn resampled(&self, grid: [usize; 2], resampling: Resampling) -> Vec<f32> {
        let side = self.side();
        let [columns, rows] = grid.map(|n| taps(side, n, resampling));
        let mut out = vec![0.0; grid[0] * grid[1] * self.width];
        let cells = rows.iter().flat_map(|y| columns.iter().map(move |x| (x, y)));
        for (cell, (x, y)) in out.chunks_exact_mut(self.width).zip(cells) {
            for (row, wy) in y {
                for (column, wx) in x {
                    let values = self.row(row * side + column);
                    let weight = wx * wy;
                    cell.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
                }
            }
        }
        out
    }
}

/// The places and weights of each of `output` points along a side of `input` places.
fn taps(input: usize, output: usize, resampling: Resampling) -> Vec<Vec<(usize, f32)>> {
    let last = input - 1;
    let between = |at: f32| {
        let at = at.clamp(0.0, last as f32);
        let first = at as usize;
        let weight = at - first as f32;
        vec![(first, 1.0 - weight), ((first + 1).min(last), weight)]
    };
    let scale = input as f32 / output as f32;
    let points = (0..output).map(|i| match resampling {
        Resampling::AlignedCorners => {
            let step = if output > 1 { last as f32 / (output - 1) as f32 } else { 0.0 };
            between(i as f32 * step)
        }
        Resampling::HalfPixel => between((i as f32 + 0.5) * scale - 0.5),
        Resampling::AntiAliased => {
            let support = scale.max(1.0);
            let centre = (i as f32 + 0.5) * scale;
            let first = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(input);
            let weight = |at: usize| (1.0 - ((at as f32 - centre + 0.5) / support).abs()).max(0.0);
            let sum: f32 = (first..end).map(weight).sum();
            (first..end).map(|at| (at, weight(at) / sum)).collect()
        }
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_grid_is_the_table() {
        let table = PositionTable::new((0..18_u8).map(f32::from).collect(), 2);
        for resampling in
            [Resampling::AlignedCorners, Resampling::HalfPixel, Resampling::AntiAliased]
        {
            assert_eq!(table.resampled([3, 3], resampling), table.rows(), "{resampling:?}");
        }
    }

    #[test]
    fn corners_stay_where_they_are_aligned() {
        let table = PositionTable::new(vec![0.0, 1.0, 2.0, 3.0], 1);
        let wide = table.resampled([3, 2], Resampling::AlignedCorners);
        assert_eq!(wide, [0.0, 0.5, 1.0, 2.0, 2.5, 3.0]);
    }
}
