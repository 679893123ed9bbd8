//! Causal convolution of columns over the tokens of one sequence.

use std::ops::Range;

use super::activations::{load, store};
use super::math::SimdMath;
use super::{Kernel, LANES, Simd};
use crate::team::Rows;

/// Convolves some columns; see `rf_oracle::reference::causal_conv`. A lane is a column.
pub(crate) struct Convolve<'a> {
    pub(crate) x: Rows<'a>,
    pub(crate) out: Rows<'a>,
    pub(crate) tokens: Range<usize>,
    pub(crate) columns: Range<usize>,
    /// `[taps, width]`.
    pub(crate) filter: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) silu: bool,
    /// The columns of the rows before the first token, which become those before the next one.
    pub(crate) tail: Vec<&'a mut [f32]>,
}

impl Kernel for Convolve<'_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let width = self.x.width;
        for token in 0..self.tokens.len() {
            // SAFETY: these columns of the sequence's tokens belong to this item.
            let y = unsafe { self.out.row_mut(self.tokens.start + token, self.columns.clone()) };
            match self.bias {
                Some(bias) => y.copy_from_slice(&bias[self.columns.clone()]),
                None => y.fill(0.0),
            }
            for tap in 0..=self.tail.len() {
                let x = self.row(token + tap);
                let filter = &self.filter[tap * width..][self.columns.clone()];
                for (i, y) in y.chunks_mut(LANES).enumerate() {
                    let (at, sum) = (i * LANES, load(s, y, 0));
                    store(s, y, s.fma(load(s, x, at), load(s, filter, at), sum));
                }
            }
            if self.silu {
                for y in y.chunks_mut(LANES) {
                    store(s, y, s.silu(load(s, y, 0)));
                }
            }
        }
        for i in 0..self.tail.len() {
            let next = self.tokens.len() + i;
            if next < self.tail.len() {
                let (before, after) = self.tail.split_at_mut(next);
                before[i].copy_from_slice(after[0]);
            } else {
                let token = self.tokens.start + next - self.tail.len();
                // SAFETY: written in an earlier phase.
                self.tail[i].copy_from_slice(unsafe { &self.x.row(token)[self.columns.clone()] });
            }
        }
    }
}

impl Convolve<'_> {
    /// The columns of a row, counted from the first one of the tail.
    #[inline(always)]
    fn row(&self, index: usize) -> &[f32] {
        match index.checked_sub(self.tail.len()) {
            None => self.tail[index],
            Some(token) => {
                // SAFETY: written in an earlier phase.
                unsafe { &self.x.row(self.tokens.start + token)[self.columns.clone()] }
            }
        }
    }
}
