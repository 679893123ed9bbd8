//! Rearrangement of rows on the host. Rows lie on a grid `[columns, rows]`, row by row.

use crate::config::ProjectorSettings;
use crate::rgb::Rgb;

/// The normalised pixels of each patch, row by row over the grid: `[patches, 3 · side²]`, in a row
/// first all red values, then green, then blue.
pub(crate) fn patches(settings: &ProjectorSettings, picture: &Rgb) -> Vec<f32> {
    let side = settings.patch_size;
    let [columns, rows] = settings.patches(picture.size());
    let width = settings.patch_width();
    let mut out = vec![0.0; columns * rows * width];
    // The values of a byte, by colour.
    let tables: Vec<[f32; 256]> = (0..3)
        .map(|colour| {
            let (mean, std) = (settings.mean[colour], settings.std[colour]);
            std::array::from_fn(|byte| (byte as f32 / 255.0 - mean) / std)
        })
        .collect();
    for (index, patch) in out.chunks_exact_mut(width).enumerate() {
        let (x, y) = (index % columns * side, index / columns * side);
        for (colour, plane) in patch.chunks_exact_mut(side * side).enumerate() {
            for (dy, row) in plane.chunks_exact_mut(side).enumerate() {
                let pixels = &picture.row(y + dy)[x * 3..];
                for (value, pixel) in row.iter_mut().zip(pixels.chunks_exact(3)) {
                    *value = tables[colour][usize::from(pixel[colour])];
                }
            }
        }
    }
    out
}

/// The rows with these indices.
pub(crate) fn gather(x: &[f32], width: usize, order: &[usize]) -> Vec<f32> {
    order.iter().flat_map(|row| &x[row * width..(row + 1) * width]).copied().collect()
}

/// The order that puts the rows of each block of `side²` one after the other, blocks row by row.
/// Incomplete blocks are left out.
pub(crate) fn block_order([columns, rows]: [usize; 2], side: usize) -> Vec<usize> {
    let mut order = Vec::with_capacity(columns * rows);
    for y in 0..rows / side {
        for x in 0..columns / side {
            for dy in 0..side {
                order.extend((0..side).map(|dx| (y * side + dy) * columns + x * side + dx));
            }
        }
    }
    order
}

/// The rows of each block of `side²` side by side, blocks row by row; zeros beyond the grid.
pub(crate) fn unshuffle(
    x: &[f32],
    width: usize,
    [columns, rows]: [usize; 2],
    side: usize,
) -> Vec<f32> {
    let blocks = [columns.div_ceil(side), rows.div_ceil(side)];
    let mut out = vec![0.0; blocks[0] * blocks[1] * side * side * width];
    for y in 0..rows {
        for column in 0..columns {
            let block = y / side * blocks[0] + column / side;
            let place = block * side * side + y % side * side + column % side;
            let from = (y * columns + column) * width;
            out[place * width..(place + 1) * width].copy_from_slice(&x[from..from + width]);
        }
    }
    out
}

/// The cells `[x, y]` of a grid, row by row.
pub(crate) fn cells([columns, rows]: [usize; 2]) -> Vec<[usize; 2]> {
    (0..rows).flat_map(|y| (0..columns).map(move |x| [x, y])).collect()
}

/// The cells of each window of at most `side²`, window by window; a window is itself row by row.
pub(crate) fn windows([columns, rows]: [usize; 2], side: usize) -> Vec<Vec<[usize; 2]>> {
    let mut windows = Vec::new();
    for y in (0..rows).step_by(side) {
        for x in (0..columns).step_by(side) {
            let cells = (y..rows.min(y + side))
                .flat_map(|y| (x..columns.min(x + side)).map(move |x| [x, y]));
            windows.push(cells.collect());
        }
    }
    windows
}

/// Rows in which the values of `count` successive rows of `width` lie side by side, changed from
/// row after row to column after column.
pub(crate) fn interleave(x: &[f32], width: usize, count: usize) -> Vec<f32> {
    let blocks = x.chunks_exact(width * count);
    let values = blocks
        .flat_map(|block| (0..width).flat_map(move |column| block[column..].iter().step_by(width)));
    values.copied().collect()
}

/// The mean of every `count` successive rows.
pub(crate) fn mean_of_each(x: &[f32], width: usize, count: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len() / count);
    for rows in x.chunks_exact(width * count) {
        out.extend((0..width).map(|column| {
            let values = rows[column..].iter().step_by(width);
            (values.map(|value| f64::from(*value)).sum::<f64>() / count as f64) as f32
        }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_windows_cover_a_grid() {
        assert_eq!(block_order([4, 2], 2), [0, 1, 4, 5, 2, 3, 6, 7]);
        let windows = windows([3, 3], 2);
        assert_eq!(windows[1], [[2, 0], [2, 1]]);
        assert_eq!(windows.concat().len(), 9);
        assert_eq!(cells([2, 2]), [[0, 0], [1, 0], [0, 1], [1, 1]]);
    }

    #[test]
    fn incomplete_blocks_are_filled_with_zeros() {
        let x = [1.0, 2.0, 3.0];
        assert_eq!(unshuffle(&x, 1, [3, 1], 2), [1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn rows_are_averaged_and_interleaved() {
        let x = [1.0, 2.0, 3.0, 6.0];
        assert_eq!(mean_of_each(&x, 2, 2), [2.0, 4.0]);
        assert_eq!(interleave(&x, 2, 2), [1.0, 3.0, 2.0, 6.0]);
    }
}
