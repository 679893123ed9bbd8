//! GEMM of float panels with many tokens, for prefill. It is bound by multiply-adds.
//!
//! Per 128 columns, two panels are widened once into a tile of f32 (16 KiB, half of L1). Then 12
//! tokens × 2 panels are summed in 24 registers, with 24 multiply-adds per 14 loads. ISAs with 16
//! registers of half the width sum 6 × 1. The order of a sum is that of
//! [`panel_dot_float`](super::matvec::panel_dot_float).

use std::ops::Range;

use super::activations::{ActivationRow, RowKernel, RowSource};
use super::gemm::GemmScratch;
use super::matvec::{Bf16, F16, F32, FLOAT_CHUNK, FloatFormat};
use super::tiles::{FLOAT_TOKENS, GEMM_BLOCK, GEMM_GROUP, GEMM_PANELS, MatmulTarget, PanelSums};
use super::{Kernel, LANES, Simd};
use crate::panel::PackedMatrix;
use rf_graph::DType;

/// Number of f32 per token in the operand of [`FloatGemm`].
pub(crate) fn operand_floats(columns: usize) -> usize {
    columns.next_multiple_of(FLOAT_CHUNK)
}

/// Evaluates the operand of one token into its blocks: `out[i · stride · 128..]` holds columns
/// `128i..128i + 128`, with zeros past the end.
pub(crate) struct PackFloats<'a> {
    pub(crate) source: RowSource<'a>,
    /// The output from the token's first block on.
    pub(crate) out: &'a mut [f32],
    /// Number of tokens, rounded up to [`FLOAT_TOKENS`].
    pub(crate) stride: usize,
}

impl Kernel for PackFloats<'_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.source.run(s, self);
    }
}

impl RowKernel for PackFloats<'_> {
    #[inline(always)]
    fn run<S: Simd, R: ActivationRow>(self, s: S, row: R) {
        for (i, column) in (0..self.source.len()).step_by(FLOAT_CHUNK).enumerate() {
            let block = &mut self.out[i * self.stride * FLOAT_CHUNK..][..FLOAT_CHUNK];
            for (j, out) in block.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let v = row.load(s, column + j * LANES);
                // SAFETY: 16 values.
                unsafe { s.store_f(out.as_mut_ptr(), v) };
            }
        }
    }
}

/// Multiplies panels of a float matrix by many tokens.
pub(crate) struct FloatGemm<'a> {
    pub(crate) weight: &'a PackedMatrix,
    pub(crate) panels: Range<usize>,
    /// `[columns / 128, stride, 128]`; `stride` is `tokens` rounded up to [`FLOAT_TOKENS`].
    pub(crate) x: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) tokens: usize,
    pub(crate) target: MatmulTarget<'a>,
    pub(crate) scratch: &'a mut GemmScratch,
}

impl Kernel for FloatGemm<'_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.weight.dtype() {
            DType::F32 => self.format::<S, F32>(s),
            DType::F16 => self.format::<S, F16>(s),
            _ => self.format::<S, Bf16>(s),
        }
    }
}

impl FloatGemm<'_> {
    #[inline(always)]
    fn format<S: Simd, Fm: FloatFormat>(mut self, s: S) {
        assert!(S::HAS_GEMM); // a constant: other ISAs compile nothing below
        assert_eq!(self.weight.dtype(), Fm::DTYPE);
        assert!(self.tokens <= self.stride && self.stride.is_multiple_of(FLOAT_TOKENS));
        assert!(self.x.len() >= operand_floats(self.weight.columns()) * self.stride);
        for first in self.panels.clone().step_by(GEMM_GROUP) {
            let panels = first..self.panels.end.min(first + GEMM_GROUP);
            for token in (0..self.tokens).step_by(GEMM_BLOCK) {
                let tokens = token..self.stride.min(token + GEMM_BLOCK);
                self.block::<S, Fm>(s, panels.clone(), tokens);
            }
        }
    }

    /// Multiplies a group of panels by a block of tokens.
    #[inline(always)]
    fn block<S: Simd, Fm: FloatFormat>(
        &mut self,
        s: S,
        panels: Range<usize>,
        tokens: Range<usize>,
    ) {
        let (weight, target, num_tokens) = (self.weight, self.target, self.tokens);
        let (tile, sums) = self.scratch.for_floats();
        let sums = &mut sums[..panels.len().div_ceil(GEMM_PANELS) * tokens.len()];
        sums.fill(PanelSums::ZERO);
        let chunks = weight.columns().div_ceil(FLOAT_CHUNK);
        for chunk in 0..chunks {
            let first_column = chunk * FLOAT_CHUNK;
            let columns = first_column..weight.columns().min(first_column + FLOAT_CHUNK);
            let x = &self.x[(chunk * self.stride + tokens.start) * FLOAT_CHUNK..];
            let x = x.as_chunks::<FLOAT_CHUNK>().0.as_chunks::<FLOAT_TOKENS>().0;
            let first_panels = panels.clone().step_by(GEMM_PANELS);
            for (first, sums) in first_panels.zip(sums.chunks_exact_mut(tokens.len())) {
                for p in 0..GEMM_PANELS {
                    // A single last panel is computed twice. The second result is not stored.
                    let panel = weight.panel((first + p).min(panels.end - 1)).as_ptr();
                    for (w, k) in tile.0.iter_mut().zip(columns.clone()) {
                        // SAFETY: the panel is of this format and has this column.
                        let v = unsafe { Fm::load(s, panel.add(k * LANES * Fm::BYTES)) };
                        // SAFETY: 16 values.
                        unsafe { s.store_f(w[p].as_mut_ptr(), v) };
                    }
                }
                let groups = x.iter().zip(sums.as_chunks_mut::<FLOAT_TOKENS>().0);
                for (token, (x, sums)) in tokens.clone().step_by(FLOAT_TOKENS).zip(groups) {
                    let tile = &tile.0[..columns.len()];
                    if S::WIDE {
                        tile_dot::<S, GEMM_PANELS, FLOAT_TOKENS>(s, tile, 0, x, sums);
                    } else {
                        for p in 0..GEMM_PANELS {
                            for t in (0..FLOAT_TOKENS).step_by(6) {
                                let (x, sums) = (&x[t..], &mut sums[t..]);
                                tile_dot::<S, 1, 6>(s, tile, p, x, sums);
                            }
                        }
                    }
                    if chunk + 1 == chunks {
                        target.store_tile(s, token..num_tokens, first..panels.end, sums);
                    }
                }
            }
        }
    }
}

/// Adds the products of column `k`.
#[inline(always)]
fn add_column<S: Simd, const P: usize, const T: usize>(
    s: S,
    column: &[[f32; LANES]; GEMM_PANELS],
    first: usize,
    x: &[[f32; FLOAT_CHUNK]; T],
    k: usize,
    acc: &mut [[S::F; P]; T],
) {
    // SAFETY: 16 values.
    let w: [S::F; P] = array!(s.splat(0.0), |p| unsafe { s.load_f(column[first + p].as_ptr()) });
    for t in 0..T {
        let x = s.splat(x[t][k]);
        for p in 0..P {
            acc[t][p] = s.fma(w[p], x, acc[t][p]);
        }
    }
}

/// Adds up to 128 columns to the sums of `P` panels, from panel `first` of the tile on, and the
/// first `T` tokens.
#[inline(always)]
fn tile_dot<S: Simd, const P: usize, const T: usize>(
    s: S,
    tile: &[[[f32; LANES]; GEMM_PANELS]],
    first: usize,
    x: &[[f32; FLOAT_CHUNK]],
    sums: &mut [PanelSums],
) {
    let x: &[[f32; FLOAT_CHUNK]; T] = x.first_chunk().expect("T tokens");
    let mut acc = [[s.splat(0.0); P]; T];
    // Unrolled, because the loop overhead is a third of the instructions of a column.
    let (fours, rest) = tile.as_chunks::<4>();
    for (i, columns) in fours.iter().enumerate().take(FLOAT_CHUNK / 4) {
        add_column::<S, P, T>(s, &columns[0], first, x, 4 * i, &mut acc);
        add_column::<S, P, T>(s, &columns[1], first, x, 4 * i + 1, &mut acc);
        add_column::<S, P, T>(s, &columns[2], first, x, 4 * i + 2, &mut acc);
        add_column::<S, P, T>(s, &columns[3], first, x, 4 * i + 3, &mut acc);
    }
    for (i, column) in rest.iter().enumerate() {
        add_column::<S, P, T>(s, column, first, x, 4 * fours.len() + i, &mut acc);
    }
    for (sums, acc) in sums.iter_mut().zip(acc) {
        for (sum, acc) in sums.0[first..].iter_mut().zip(acc) {
            // SAFETY: 16 values.
            let total = s.add(unsafe { s.load_f(sum.as_ptr()) }, acc);
            // SAFETY: 16 values.
            unsafe { s.store_f(sum.as_mut_ptr(), total) };
        }
    }
}
