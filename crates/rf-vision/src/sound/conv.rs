//! Convolutions as matmuls: the host gathers windows, which are the rows of a stage.

use std::ops::Range;

use crate::build::Rows;
use crate::error::Error;
use crate::network::{Stage, StageRunner};

use super::kind::SoundBuilder;

/// The windows of a convolution. Each side has a fast and a slow axis, in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conv {
    /// Odd sides of a window.
    pub(super) window: [usize; 2],
    pub(super) stride: [usize; 2],
}

/// Rows of channels on a grid, the fast axis first.
#[derive(Debug)]
pub(super) struct Plane {
    pub(super) values: Vec<f32>,
    pub(super) channels: usize,
    pub(super) size: [usize; 2],
}

impl Conv {
    /// Windows of three rows along one axis.
    pub(super) const fn line(stride: usize) -> Self {
        Self { window: [3, 1], stride: [stride, 1] }
    }

    /// Windows of three by three rows, at every second place.
    pub(super) const SQUARE: Self = Self { window: [3, 3], stride: [2, 2] };

    /// The size of the output. The input has zeros around it, half a window wide.
    pub(super) fn output(self, size: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|axis| (size[axis] - 1) / self.stride[axis] + 1)
    }

    /// Values of the windows at some places of the output: for each channel the window, the fast
    /// axis first.
    pub(super) fn windows(self, x: &Plane, places: Range<usize>) -> Vec<f32> {
        let [fast, slow] = self.window;
        let columns = self.output(x.size)[0];
        let mut out = vec![0.0; places.len() * x.channels * fast * slow];
        let rows = out.chunks_exact_mut(x.channels * fast * slow);
        for (row, place) in rows.zip(places) {
            let corner = [place % columns * self.stride[0], place / columns * self.stride[1]];
            for dy in 0..slow {
                // Places are counted from the zeros before the input.
                let Some(y) = (corner[1] + dy).checked_sub(slow / 2) else { continue };
                for dx in 0..fast {
                    let Some(x_place) = (corner[0] + dx).checked_sub(fast / 2) else { continue };
                    if x_place >= x.size[0] || y >= x.size[1] {
                        continue;
                    }
                    let values = &x.values[(y * x.size[0] + x_place) * x.channels..][..x.channels];
                    let column = row[dy * fast + dx..].iter_mut().step_by(fast * slow);
                    column.zip(values).for_each(|(out, value)| *out = *value);
                }
            }
        }
        out
    }

    /// Runs a stage on all windows, in batches of so many.
    pub(super) fn run(
        self,
        stage: Stage,
        x: &Plane,
        batch: usize,
        run: &mut StageRunner<'_>,
    ) -> Result<Plane, Error> {
        let size = self.output(x.size);
        let all = size[0] * size[1];
        let mut values = Vec::with_capacity(all * stage.width);
        for start in (0..all).step_by(batch) {
            let places = start..all.min(start + batch);
            let count = places.len();
            values.extend(run.rows(stage, &[&self.windows(x, places)], count)?);
        }
        Ok(Plane { values, channels: stage.width, size })
    }

    /// The matmul with windows, of the tensors `NAME.weight` and `NAME.bias`.
    pub(super) fn linear(
        self,
        b: &mut SoundBuilder<'_>,
        name: &str,
        channels: usize,
    ) -> Result<Rows, Error> {
        let window = b.input(channels * self.window[0] * self.window[1]);
        self.linear_of(b, name, window)
    }

    /// [`Self::linear`] of rows that are windows.
    pub(super) fn linear_of(
        self,
        b: &mut SoundBuilder<'_>,
        name: &str,
        window: Rows,
    ) -> Result<Rows, Error> {
        // The file's tensor has an axis per side that is longer than 1, then one of channels.
        let sides = self.window.iter().filter(|side| **side > 1).count();
        let width = b.weights.axis(&format!("{name}.weight"), sides + 1)?;
        b.linear_to(name, window, width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_zeros_around_the_input() {
        let line =
            Plane { values: vec![1.0, 10.0, 2.0, 20.0, 3.0, 30.0], channels: 2, size: [3, 1] };
        let windows = Conv::line(2).windows(&line, 0..2);
        assert_eq!(Conv::line(2).output(line.size), [2, 1]);
        assert_eq!(windows[..6], [0.0, 1.0, 2.0, 0.0, 10.0, 20.0]);
        assert_eq!(windows[6..], [2.0, 3.0, 0.0, 20.0, 30.0, 0.0]);

        let square = Plane { values: vec![1.0, 2.0, 3.0, 4.0], channels: 1, size: [2, 2] };
        assert_eq!(Conv::SQUARE.output(square.size), [1, 1]);
        let window = Conv::SQUARE.windows(&square, 0..1);
        assert_eq!(window, [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 3.0, 4.0]);
    }
}
