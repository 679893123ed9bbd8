//! The kernels that the executor calls. Each is a struct of its operands that runs on an [`Isa`].

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;

use super::activations::{ACT_BLOCK, ActBlock};
use super::format::{Format, match_format, of_format, with_format};
use super::gemm::{self, GemmScratch};
use super::matvec::{self, FloatFormat};
use super::tiles::{GEMM_BLOCK, GEMM_GROUP, GEMM_PANELS, GEMM_TOKENS, MatmulTarget, PanelSums};
use super::{Isa, Kernel, Simd};
use crate::panel::PackedMatrix;
use crate::stored::block_bytes;
use crate::team::Rows;
use rf_graph::DType;

/// The operand type of matmuls with a weight format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatmulOperand {
    /// f32 values.
    Float,
    /// int8 values with a scale per `group` elements.
    Int8 { group: usize },
}

impl MatmulOperand {
    /// The operand type of matmuls with `dtype`.
    pub(crate) fn of(dtype: DType) -> Self {
        let group = with_format!(dtype, Fm => if Fm::SMALL { 32 } else { 256 });
        group.map_or(Self::Float, |group| Self::Int8 { group })
    }
}

/// Returns true if [`Gemm`] or [`FloatGemm`](super::float_gemm::FloatGemm) supports a format.
/// [`MatVec`] runs the other formats for any number of tokens.
pub(crate) fn has_gemm(dtype: DType) -> bool {
    with_format!(dtype, Fm => !Fm::SPLIT).unwrap_or(true)
}

/// Multiplies panels of an integer matrix by few tokens.
pub(crate) struct MatVec<'a> {
    pub(crate) weight: &'a PackedMatrix,
    pub(crate) panels: Range<usize>,
    /// Activations `[columns / 256, stride]`, from the first token on.
    pub(crate) activations: &'a [ActBlock],
    pub(crate) stride: usize,
    pub(crate) tokens: usize,
    pub(crate) target: MatmulTarget<'a>,
}

impl MatVec<'_> {
    /// Runs the kernel.
    pub(crate) fn run(self, isa: Isa) {
        let done = with_format!(self.weight.dtype(), Fm => {
            isa.run(FormatMatVec::<Fm> { op: self, format: PhantomData });
        });
        debug_assert!(done.is_some(), "an integer format");
    }
}

struct FormatMatVec<'a, Fm> {
    op: MatVec<'a>,
    format: PhantomData<Fm>,
}

impl<Fm: Format> Kernel for FormatMatVec<'_, Fm> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let op = &self.op;
        let acts = op.weight.columns().div_ceil(ACT_BLOCK);
        assert_eq!(block_bytes(op.weight.dtype()), Fm::BYTES);
        assert!(op.tokens > 0 && op.tokens <= op.stride);
        assert!(op.activations.len() >= (acts - 1) * op.stride + op.tokens);
        for panel in op.panels.clone() {
            let mut token = 0;
            while token < op.tokens {
                let left = op.tokens - token;
                // The comparison with a constant comes first, so that an ISA does not compile
                // variants that it never runs.
                token += if S::FEW_TOKENS == 1 || left == 1 {
                    self.panel::<S, 1>(s, panel, token)
                } else if left == 2 {
                    self.panel::<S, 2>(s, panel, token)
                } else if S::FEW_TOKENS == 4 || left <= 4 {
                    self.panel::<S, 4>(s, panel, token)
                } else {
                    self.panel::<S, 8>(s, panel, token)
                };
            }
        }
    }
}

impl<Fm: Format> FormatMatVec<'_, Fm> {
    /// Computes `T` tokens. If fewer are left, the last one fills the remaining places.
    #[inline(always)]
    fn panel<S: Simd, const T: usize>(&self, s: S, panel: usize, token: usize) -> usize {
        let op = &self.op;
        let last = op.tokens - 1;
        let x: [*const ActBlock; T] =
            array!(ptr::null(), |t| op.activations[(token + t).min(last)..].as_ptr());
        let (bytes, blocks) = (op.weight.panel(panel).as_ptr(), op.weight.blocks());
        let ahead = bytes.wrapping_add(op.weight.panel(panel).len());
        // SAFETY: the panel is of this format, and `run` checked the number of blocks.
        let y = unsafe { matvec::panel_dot::<S, Fm, T>(s, bytes, blocks, x, op.stride, ahead) };
        for (token, y) in (token..op.tokens).zip(y) {
            op.target.store(s, token, panel, y);
        }
        T
    }
}

/// Multiplies panels of a float matrix by few tokens.
pub(crate) struct FloatMatMul<'a> {
    pub(crate) weight: &'a PackedMatrix,
    pub(crate) panels: Range<usize>,
    pub(crate) x: Rows<'a>,
    pub(crate) tokens: usize,
    pub(crate) target: MatmulTarget<'a>,
}

impl Kernel for FloatMatMul<'_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

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
        // A constant: such an ISA does not compile larger tiles.
        if S::FEW_TOKENS == 1 {
            for panel in self.panels.clone() {
                for token in 0..self.tokens {
                    self.tile::<S, Fm, 1, 1>(s, panel, token);
                }
            }
            return;
        }
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            // Several panels at once hide the latency of the additions.
            panel += match (self.panels.end - panel, self.tokens) {
                (4.., 1) => self.tile::<S, Fm, 4, 1>(s, panel, 0) * 4,
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
        let bytes: [*const u8; P] = array!(ptr::null(), |p| self.weight.panel(panel + p).as_ptr());
        // SAFETY: the operand was written in an earlier phase.
        let x: [*const f32; T] = array!(ptr::null(), |t| unsafe { self.x.row(token + t) }.as_ptr());
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

/// Multiplies panels of an integer matrix by many tokens.
pub(crate) struct Gemm<'a> {
    pub(crate) weight: &'a PackedMatrix,
    pub(crate) panels: Range<usize>,
    /// Activations `[columns / 256, stride]`, stored with [`Simd::BIAS`]. `stride` is `tokens`
    /// rounded up to [`GEMM_TOKENS`].
    pub(crate) activations: &'a [ActBlock],
    pub(crate) stride: usize,
    pub(crate) tokens: usize,
    pub(crate) target: MatmulTarget<'a>,
    pub(crate) scratch: &'a mut GemmScratch,
}

/// The maximum number of tokens for which reading the weights dominates the time.
const FEW_TOKENS: usize = 24;

impl Gemm<'_> {
    /// Runs the kernel.
    pub(crate) fn run(self, isa: Isa) {
        let done = with_format!(self.weight.dtype(), Fm => {
            isa.run(FormatGemm::<Fm> { op: self, format: PhantomData });
        });
        debug_assert!(done.is_some(), "an integer format");
    }
}

struct FormatGemm<'a, Fm> {
    op: Gemm<'a>,
    format: PhantomData<Fm>,
}

impl<Fm: Format> Kernel for FormatGemm<'_, Fm> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        assert!(S::HAS_GEMM); // a constant: other ISAs compile nothing below
        let mut op = self.op;
        let acts = op.weight.columns().div_ceil(ACT_BLOCK);
        assert_eq!(block_bytes(op.weight.dtype()), Fm::BYTES);
        assert!(op.tokens <= op.stride && op.activations.len() >= acts * op.stride);
        // Few tokens stay in L1 in any case, and sequential reads of the weights are fastest.
        let group = if op.tokens <= FEW_TOKENS { GEMM_PANELS } else { GEMM_GROUP };
        for first in op.panels.clone().step_by(group) {
            let panels = first..op.panels.end.min(first + group);
            for token in (0..op.tokens).step_by(GEMM_BLOCK) {
                let tokens = token..op.stride.min(token + GEMM_BLOCK);
                op.block::<S, Fm>(s, panels.clone(), tokens);
            }
        }
    }
}

impl Gemm<'_> {
    /// Multiplies a group of panels by a block of tokens.
    #[inline(always)]
    fn block<S: Simd, Fm: Format>(&mut self, s: S, panels: Range<usize>, tokens: Range<usize>) {
        let (blocks, target, num_tokens) = (self.weight.blocks(), self.target, self.tokens);
        let pairs = panels.len().div_ceil(GEMM_PANELS);
        let sums = &mut self.scratch.sums[..pairs * tokens.len()];
        sums.fill(PanelSums::ZERO);
        let acts = self.weight.columns().div_ceil(ACT_BLOCK);
        for kb in 0..acts {
            let x = &self.activations[kb * self.stride..][tokens.clone()];
            let x = x.as_chunks::<GEMM_TOKENS>().0;
            let first_panels = panels.clone().step_by(GEMM_PANELS);
            for (first, sums) in first_panels.zip(sums.chunks_exact_mut(tokens.len())) {
                let mut subs = 0;
                for (p, tile) in self.scratch.tiles.iter_mut().enumerate() {
                    // A single last panel is computed twice. The second result is not stored.
                    let panel = self.weight.panel((first + p).min(panels.end - 1));
                    let ahead = panel.as_ptr().wrapping_add(GEMM_PANELS * panel.len());
                    let panel = panel.as_ptr();
                    // SAFETY: the panel is of this format and has these columns.
                    subs = unsafe { gemm::unpack::<S, Fm>(s, panel, blocks, kb, ahead, tile) };
                }
                let tiles = &*self.scratch.tiles;
                let groups = x.iter().zip(sums.as_chunks_mut::<GEMM_TOKENS>().0);
                for (token, (x, sums)) in tokens.clone().step_by(GEMM_TOKENS).zip(groups) {
                    gemm::tile_dot::<S, Fm>(s, tiles, subs, x, sums);
                    if kb + 1 == acts {
                        // The store is here and not at the end, so that its cache lines are fetched
                        // while the next tokens are summed.
                        target.store_tile(s, token..num_tokens, first..panels.end, sums);
                    }
                }
            }
        }
    }
}
