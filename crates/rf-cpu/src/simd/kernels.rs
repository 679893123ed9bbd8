//! The kernels that the executor calls: each a struct of its operands, run on a [`Tier`](super::Tier).

use std::ops::Range;

use super::activations::{ACT_BLOCK, ActBlock};
use super::format::{self, Format};
use super::gemm::{self, Tile};
use super::matvec::{self, FloatFormat};
use super::{Kernel, LANES, Simd};
use crate::panel::PackedMatrix;
use crate::team::Rows;
use rf_graph::DType;

/// Where a product goes: `out = product + bias + residual`.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) out: Rows<'a>,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) residual: Option<Rows<'a>>,
    /// Row of the first token.
    pub(crate) first_row: usize,
}

impl Target<'_> {
    /// Writes 16 outputs of a token, or those that exist.
    #[inline(always)]
    fn store<S: Simd>(&self, s: S, token: usize, panel: usize, mut v: S::F) {
        let (row, first) = (self.first_row + token, panel * LANES);
        let last = self.out.width.min(first + LANES);
        // SAFETY: panels are handed out to one thread each, so these columns are this thread's.
        let out = unsafe { self.out.row_mut(row, first..last) };
        // SAFETY: the residual was written before the last barrier.
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
}

/// Calls `$body` with `$fm` standing for the integer format of a matrix; `None` for floats.
macro_rules! with_format {
    ($dtype:expr, $fm:ident => $body:expr) => {
        match $dtype {
            DType::Q4_0 => {
                type $fm = format::Q4_0;
                Some($body)
            }
            DType::Q4_1 => {
                type $fm = format::Q4_1;
                Some($body)
            }
            DType::Q5_0 => {
                type $fm = format::Q5_0;
                Some($body)
            }
            DType::Q5_1 => {
                type $fm = format::Q5_1;
                Some($body)
            }
            DType::Q8_0 => {
                type $fm = format::Q8_0;
                Some($body)
            }
            DType::Q2K => {
                type $fm = format::Q2K;
                Some($body)
            }
            DType::Q3K => {
                type $fm = format::Q3K;
                Some($body)
            }
            DType::Q4K => {
                type $fm = format::Q4K;
                Some($body)
            }
            DType::Q5K => {
                type $fm = format::Q5K;
                Some($body)
            }
            DType::Q6K => {
                type $fm = format::Q6K;
                Some($body)
            }
            DType::Mxfp4 => {
                type $fm = format::Mxfp4;
                Some($body)
            }
            DType::Mxfp6E2M3 => {
                type $fm = format::Mxfp6E2M3;
                Some($body)
            }
            DType::Mxfp6E3M2 => {
                type $fm = format::Mxfp6E3M2;
                Some($body)
            }
            _ => None,
        }
    };
}

/// How a format wants its activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// f32.
    Float,
    /// int8 with a scale per so many elements.
    Int8 { group: usize },
}

impl Operand {
    /// The operand of products with a format.
    pub(crate) fn of(dtype: DType) -> Self {
        let group = with_format!(dtype, Fm => Fm::BLOCK);
        group.map_or(Self::Float, |group| Self::Int8 { group })
    }
}

/// Whether [`Gemm`] takes a format; the others go through [`MatVec`] for any number of tokens.
pub(crate) fn has_gemm(dtype: DType) -> bool {
    with_format!(dtype, Fm => !Fm::SPLIT).unwrap_or(false)
}

/// Panels of an integer matrix times tokens, four at a time.
pub(crate) struct MatVec<'a> {
    pub(crate) weight: &'a PackedMatrix,
    pub(crate) panels: Range<usize>,
    /// `[columns / 256, stride]`, from the first token on.
    pub(crate) activations: &'a [ActBlock],
    pub(crate) stride: usize,
    pub(crate) tokens: usize,
    pub(crate) target: Target<'a>,
}

impl Kernel for MatVec<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let done = with_format!(self.weight.dtype(), Fm => self.format::<S, Fm>(s));
        debug_assert!(done.is_some(), "an integer format");
    }
}

impl MatVec<'_> {
    #[inline(always)]
    fn format<S: Simd, Fm: Format>(&self, s: S) {
        let acts = self.weight.columns().div_ceil(ACT_BLOCK);
        assert!(self.tokens > 0 && self.tokens <= self.stride);
        assert!(self.activations.len() >= (acts - 1) * self.stride + self.tokens);
        for panel in self.panels.clone() {
            let mut token = 0;
            while token < self.tokens {
                token += match self.tokens - token {
                    1 => self.panel::<S, Fm, 1>(s, panel, token),
                    2 => self.panel::<S, Fm, 2>(s, panel, token),
                    3 => self.panel::<S, Fm, 3>(s, panel, token),
                    _ => self.panel::<S, Fm, 4>(s, panel, token),
                };
            }
        }
    }

    #[inline(always)]
    fn panel<S: Simd, Fm: Format, const T: usize>(
        &self,
        s: S,
        panel: usize,
        token: usize,
    ) -> usize {
        let x: [*const ActBlock; T] =
            std::array::from_fn(|t| self.activations[token + t..].as_ptr());
        let bytes = self.weight.panel(panel).as_ptr();
        // SAFETY: the panel is of this format, and `format` checked that the blocks are there.
        let y = unsafe {
            matvec::panel_dot::<S, Fm, T>(s, bytes, self.weight.blocks(), x, self.stride)
        };
        for (t, y) in y.into_iter().enumerate() {
            self.target.store(s, token + t, panel, y);
        }
        T
    }
}

/// Panels of a float matrix times tokens.
pub(crate) struct FloatMatMul<'a> {
    pub(crate) weight: &'a PackedMatrix,
    pub(crate) panels: Range<usize>,
    pub(crate) x: Rows<'a>,
    pub(crate) tokens: usize,
    pub(crate) target: Target<'a>,
}

impl Kernel for FloatMatMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.weight.dtype() {
            DType::F32 => self.format::<S, matvec::F32>(s),
            DType::F16 => self.format::<S, matvec::F16>(s),
            _ => self.format::<S, matvec::Bf16>(s),
        }
    }
}

impl FloatMatMul<'_> {
    #[inline(always)]
    fn format<S: Simd, Fm: FloatFormat>(&self, s: S) {
        assert_eq!(self.weight.dtype(), Fm::DTYPE);
        assert_eq!(self.weight.columns(), self.x.width);
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            // Several panels at once hide the latency of the additions.
            panel += match (self.panels.end - panel, self.tokens) {
                (4.., 1) => self.panels::<S, Fm, 4>(s, panel),
                (2.., _) => self.panels::<S, Fm, 2>(s, panel),
                _ => self.panels::<S, Fm, 1>(s, panel),
            };
        }
    }

    #[inline(always)]
    fn panels<S: Simd, Fm: FloatFormat, const P: usize>(&self, s: S, panel: usize) -> usize {
        let mut token = 0;
        while token < self.tokens {
            token += match self.tokens - token {
                1 => self.tile::<S, Fm, P, 1>(s, panel, token),
                2 | 3 => self.tile::<S, Fm, P, 2>(s, panel, token),
                4 | 5 => self.tile::<S, Fm, P, 4>(s, panel, token),
                _ if P <= 2 => self.tile::<S, Fm, P, 6>(s, panel, token),
                _ => self.tile::<S, Fm, P, 4>(s, panel, token),
            };
        }
        P
    }

    #[inline(always)]
    fn tile<S: Simd, Fm: FloatFormat, const P: usize, const T: usize>(
        &self,
        s: S,
        panel: usize,
        token: usize,
    ) -> usize {
        let bytes: [*const u8; P] = std::array::from_fn(|p| self.weight.panel(panel + p).as_ptr());
        // SAFETY: the operand was written before the last barrier.
        let x: [*const f32; T] = std::array::from_fn(|t| unsafe { self.x.row(token + t) }.as_ptr());
        // SAFETY: the panels are of this format and width, and so are the rows.
        let y =
            unsafe { matvec::panel_dot_float::<S, Fm, P, T>(s, bytes, self.weight.columns(), x) };
        for (p, y) in y.into_iter().enumerate() {
            for (t, y) in y.into_iter().enumerate() {
                self.target.store(s, token + t, panel + p, y);
            }
        }
        T
    }
}

/// Up to `P` panels of an integer matrix times many tokens.
pub(crate) struct Gemm<'a, const P: usize> {
    pub(crate) weight: &'a PackedMatrix,
    pub(crate) first_panel: usize,
    /// `[columns / 256, tokens]`, stored with [`Simd::BIAS`].
    pub(crate) activations: &'a [ActBlock],
    pub(crate) tokens: usize,
    pub(crate) target: Target<'a>,
    pub(crate) scratch: &'a mut GemmScratch,
}

/// What a thread needs for [`Gemm`].
pub(crate) struct GemmScratch {
    tiles: Box<[Tile]>,
    /// `[tokens][P][16]`.
    sums: Vec<[f32; LANES]>,
}

impl GemmScratch {
    pub(crate) fn new(tokens: usize) -> Self {
        let tiles = (0..MAX_PANELS).map(|_| Tile::ZERO).collect();
        Self { tiles, sums: vec![[0.0; LANES]; tokens * MAX_PANELS] }
    }
}

/// Panels that a tile has at most.
pub(crate) const MAX_PANELS: usize = 2;

impl<const P: usize> Kernel for Gemm<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let done = with_format!(self.weight.dtype(), Fm => self.format::<S, Fm>(s));
        debug_assert!(done.is_some(), "an integer format");
    }
}

impl<const P: usize> Gemm<'_, P> {
    #[inline(always)]
    fn format<S: Simd, Fm: Format>(&mut self, s: S) {
        let acts = self.weight.columns().div_ceil(ACT_BLOCK);
        assert!(self.activations.len() >= acts * self.tokens);
        let sums = &mut self.scratch.sums.as_chunks_mut::<P>().0[..self.tokens];
        let tiles: &mut [Tile; P] = self.scratch.tiles.first_chunk_mut().expect("room for P tiles");
        sums.fill([[0.0; LANES]; P]);
        for kb in 0..acts {
            let mut subs = 0;
            for (p, tile) in tiles.iter_mut().enumerate() {
                let panel = self.weight.panel(self.first_panel + p).as_ptr();
                // SAFETY: the panel is of this format and has these columns.
                subs = unsafe { gemm::unpack::<S, Fm>(s, panel, self.weight.blocks(), kb, tile) };
            }
            let mut x = &self.activations[kb * self.tokens..][..self.tokens];
            let mut sums = &mut *sums;
            // Tiles of 6 tokens × 2 panels fill 32 registers, 3 × 1 fill 16.
            while let Some((here, rest)) = x.split_first_chunk::<6>() {
                let (sums_here, sums_rest) = sums.split_first_chunk_mut().expect("as many tokens");
                gemm::tile_dot::<S, Fm, P, 6>(s, tiles, subs, here, sums_here);
                (x, sums) = (rest, sums_rest);
            }
            while let Some((here, rest)) = x.split_first_chunk::<1>() {
                let (sums_here, sums_rest) = sums.split_first_chunk_mut().expect("as many tokens");
                gemm::tile_dot::<S, Fm, P, 1>(s, tiles, subs, here, sums_here);
                (x, sums) = (rest, sums_rest);
            }
        }
        for (token, sums) in sums.iter().enumerate() {
            for (p, sums) in sums.iter().enumerate() {
                // SAFETY: 16 values.
                let v = unsafe { s.load_f(sums.as_ptr()) };
                self.target.store(s, token, self.first_panel + p, v);
            }
        }
    }
}
