//! Sizes and operands that the matmul kernels share: register tiles, blocks of tokens, the
//! destination.

use std::ops::Range;

use super::matvec::FLOAT_CHUNK;
use super::{LANES, Simd};
use crate::team::Rows;

/// Tokens of a register tile: 6 × 2 panels fill 32 registers of 512 bits. ISAs with fewer registers
/// compute the tile in parts.
pub(crate) const GEMM_TOKENS: usize = 6;

/// Panels of a register tile.
pub(super) const GEMM_PANELS: usize = 2;

/// Panels per group of a GEMM. All panels of a group read 256 columns of a block of tokens from L2.
pub(crate) const GEMM_GROUP: usize = 4 * GEMM_PANELS;

/// Tokens of a block. Their 256 columns (194 KiB) and their sums with a group of panels
/// (258 KiB) stay in L2.
pub(super) const GEMM_BLOCK: usize = 43 * FLOAT_TOKENS;

/// Tokens of a register tile of the float GEMM.
pub(crate) const FLOAT_TOKENS: usize = 12;

/// 128 columns of two panels as f32.
#[repr(C, align(64))]
pub(super) struct FloatTile(pub(super) [[[f32; LANES]; GEMM_PANELS]; FLOAT_CHUNK]);

impl FloatTile {
    /// A tile of zeros.
    pub(super) const ZERO: Self = Self([[[0.0; LANES]; GEMM_PANELS]; FLOAT_CHUNK]);
}

/// The sums of one token with the panels of a register tile, on their own cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct PanelSums(pub(super) [[f32; LANES]; GEMM_PANELS]);

impl PanelSums {
    /// Sums of zero.
    pub(super) const ZERO: Self = Self([[0.0; LANES]; GEMM_PANELS]);
}

/// Destination of a matmul: `out = matmul + bias + residual`.
#[derive(Clone, Copy)]
pub(crate) struct MatmulTarget<'a> {
    pub(crate) out: Rows<'a>,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) residual: Option<Rows<'a>>,
    /// Output rows of the tokens.
    pub(crate) rows: TargetRows<'a>,
}

/// The rows of a [`MatmulTarget`] that a kernel writes.
#[derive(Clone, Copy)]
pub(crate) enum TargetRows<'a> {
    /// Consecutive rows from this one on.
    From(usize),
    /// Every `step`-th row from the first one on.
    Every { first: usize, step: usize },
    /// The row of each token.
    Each(&'a [u32]),
}

impl MatmulTarget<'_> {
    /// Writes 16 outputs of a token, or fewer at the end of the row.
    #[inline(always)]
    pub(super) fn store<S: Simd>(&self, s: S, token: usize, panel: usize, mut v: S::F) {
        let row = match self.rows {
            TargetRows::From(first) => first + token,
            TargetRows::Every { first, step } => first + token * step,
            TargetRows::Each(rows) => rows[token] as usize,
        };
        let first = panel * LANES;
        let last = self.out.width.min(first + LANES);
        // SAFETY: each panel belongs to one thread, so no other thread accesses these columns.
        let out = unsafe { self.out.row_mut(row, first..last) };
        // SAFETY: the residual was written in an earlier phase.
        let residual = self.residual.map(|r| unsafe { &r.row(row)[first..last] });
        if let Ok(out) = <&mut [f32; LANES]>::try_from(&mut *out) {
            if let Some(bias) = self.bias {
                // SAFETY: 16 values, as many as `out` has.
                v = s.add(v, unsafe { s.load_f(bias[first..last].as_ptr()) });
            }
            if let Some(residual) = residual {
                // SAFETY: 16 values, as many as `out` has.
                v = s.add(v, unsafe { s.load_f(residual.as_ptr()) });
            }
            // SAFETY: 16 values.
            unsafe { s.store_f(out.as_mut_ptr(), v) };
            return;
        }
        let v = s.to_array(v);
        for (i, out) in out.iter_mut().enumerate() {
            *out = v[i] + self.bias.map_or(0.0, |b| b[first + i]);
            *out += residual.map_or(0.0, |r| r[i]);
        }
    }

    /// Writes the outputs of the existing tokens and panels of a register tile.
    #[inline(always)]
    pub(super) fn store_tile<S: Simd>(
        &self,
        s: S,
        tokens: Range<usize>,
        panels: Range<usize>,
        sums: &[PanelSums],
    ) {
        for (token, sums) in tokens.zip(sums) {
            for (panel, sums) in panels.clone().zip(&sums.0) {
                // SAFETY: 16 values.
                let v = unsafe { s.load_f(sums.as_ptr()) };
                self.store(s, token, panel, v);
            }
        }
    }
}
