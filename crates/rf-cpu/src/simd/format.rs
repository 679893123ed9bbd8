//! Block formats as vectors: conversion of the planes of a panel to codes, scales and minima.
//!
//! Every integer format computes the same sum with different constants:
//!
//! ```text
//! y = Σ_blocks [ d · Σ_j s_j · (Σ q·x − OFFSET · Σ x) − m · … ]
//! ```
//!
//! A [`Format`] defines `q`, `s`, `d` and `m`; the loops are in `matvec` and `gemm`.

use super::Simd;
use rf_graph::DType;

/// One field of a block, as stored in a panel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane {
    /// Byte offset of the field in a block of the file.
    pub(crate) offset: usize,
    /// Bytes of the field in a block.
    pub(crate) bytes: usize,
    /// Bytes of the interleaved unit: 4 for codes, the size of one scale for scales.
    pub(crate) unit: usize,
}

const fn plane(offset: usize, bytes: usize, unit: usize) -> Plane {
    Plane { offset, bytes, unit }
}

/// The planes of a format. Codes come first because they need the alignment.
pub(crate) fn planes(dtype: DType) -> &'static [Plane] {
    const F32: &[Plane] = &[plane(0, 4, 4)];
    const HALF: &[Plane] = &[plane(0, 2, 2)];
    let float = if dtype == DType::F32 { F32 } else { HALF };
    with_format!(dtype, Fm => {
        const { assert!(Fm::PLANES.len() <= MAX_PLANES) };
        Fm::PLANES
    })
    .unwrap_or(float)
}

/// Evaluates `$body` with `$fm` as the [`Format`] of `$dtype`, or returns `None` for floats. This
/// compiles kernels for each format.
macro_rules! with_format {
    ($dtype:expr, $fm:ident => $body:expr) => {
        rf_quant::for_each_format!(match_format, $dtype, $fm => $body)
    };
}

macro_rules! match_format {
    ([$dtype:expr, $fm:ident => $body:expr] $({
        $number:literal $variant:ident $name:literal $kernel:literal $family:ident $($rest:tt)*
    })*) => {
        match $dtype {
            $(rf_quant::DType::$variant => of_format!($family $variant $fm $body),)*
        }
    };
}

macro_rules! of_format {
    (Float $variant:ident $fm:ident $body:expr) => {
        None
    };
    ($family:ident $variant:ident $fm:ident $body:expr) => {{
        type $fm = $crate::simd::format::$variant;
        Some($body)
    }};
}

pub(crate) use match_format;
pub(crate) use of_format;
pub(crate) use with_format;

/// The maximum number of planes of a format.
const MAX_PLANES: usize = 5;

/// The planes of one panel.
#[derive(Clone, Copy)]
pub(super) struct Planes([*const u8; MAX_PLANES]);

/// The planes at one block. Each pointer is the first byte of the block's part of a plane.
#[derive(Clone, Copy)]
pub(super) struct BlockPlanes([*const u8; MAX_PLANES]);

impl Planes {
    /// The planes of a panel with `blocks` blocks per row.
    #[inline(always)]
    pub(super) fn new(table: &'static [Plane], panel: *const u8, blocks: usize) -> Self {
        let mut bases = [panel; MAX_PLANES];
        let mut offset = 0;
        for (base, plane) in bases.iter_mut().zip(table) {
            *base = panel.wrapping_add(offset);
            offset += blocks * plane.bytes * super::LANES;
        }
        Self(bases)
    }

    /// The planes at block `b`.
    #[inline(always)]
    pub(super) fn block(self, table: &'static [Plane], b: usize) -> BlockPlanes {
        let mut at = self.0;
        for (at, plane) in at.iter_mut().zip(table) {
            *at = at.wrapping_add(b * plane.bytes * super::LANES);
        }
        BlockPlanes(at)
    }
}

impl BlockPlanes {
    /// Word `i` of a plane, for all rows.
    ///
    /// # Safety
    /// The plane has that word.
    #[inline(always)]
    unsafe fn words<S: Simd>(self, s: S, plane: usize, i: usize) -> S::I {
        // SAFETY: by contract.
        unsafe { s.load_i(self.0[plane].add(i * 64)) }
    }

    /// The values of a plane of one f16 per row and block.
    ///
    /// # Safety
    /// The plane has one f16 per row and block.
    #[inline(always)]
    unsafe fn f16<S: Simd>(self, s: S, plane: usize) -> S::F {
        // SAFETY: by contract.
        unsafe { s.load_f16(self.0[plane]) }
    }
}

/// An integer format. All functions take a block of a panel of this format.
///
/// `codes(j)` returns the codes of elements `32j..32j + 32` in order: vector `g` holds elements
/// `4g..4g + 4` of each row.
pub(crate) trait Format {
    /// Elements per block: 32, 64, 128 or 256.
    const BLOCK: usize;
    /// True if activations have a scale per 32 elements, otherwise one per 256.
    const SMALL: bool = Self::BLOCK < 256;
    /// Elements per scale: 32 or 16.
    const SUB: usize;
    /// Bits of a code: at most 7 if unsigned, 8 if a signed byte.
    const BITS: u32;
    /// The offset added to each code; 0 for signed codes.
    const OFFSET: i32 = 0;
    /// True if codes are signed bytes.
    const SIGNED: bool = Self::BITS == 8;
    /// The number of vectors of codes whose dot products with bytes fit an i16
    /// ([`Simd::dot_pairs`]). Each vector adds two products to a sum.
    const PAIRED_CODES: usize = i16::MAX as usize / (2 * 127 * ((1 << Self::BITS) - 1));
    /// True if a minimum is added.
    const MIN: bool = false;
    /// True if values are `16 · high + low` with two sets of codes.
    const SPLIT: bool = false;
    /// ±1 if `±code · sub_scale` fits a signed byte, otherwise 0. The GEMM multiplies these bytes,
    /// and a super-block is one integer sum. The sum is below 2²⁴, so the float sums of the other
    /// kernels are equal to it.
    const FOLD: i32 = 0;
    /// The fields of a block, codes first.
    const PLANES: &'static [Plane];
    /// Bytes of a block in all planes.
    const BYTES: usize = {
        let (mut bytes, mut i) = (0, 0);
        while i < Self::PLANES.len() {
            bytes += Self::PLANES[i].bytes;
            i += 1;
        }
        bytes
    };

    /// The codes of elements `32j..32j + 32`; the low parts with [`Self::SPLIT`].
    ///
    /// # Safety
    /// See the trait; `j < BLOCK / 32`.
    unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8];
    /// The high parts of the codes, with [`Self::SPLIT`].
    ///
    /// # Safety
    /// See the trait; `j < BLOCK / 32`.
    #[inline(always)]
    unsafe fn high_codes<S: Simd>(s: S, block: BlockPlanes, j: usize) -> [S::I; 8] {
        // SAFETY: the same contract.
        unsafe { Self::codes(s, block, j) }
    }
    /// The scale of the block.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn scale<S: Simd>(s: S, block: BlockPlanes) -> S::F;
    /// The integer scale of sub-block `i`. Formats with one scale per block have none.
    ///
    /// # Safety
    /// See the trait; `i < BLOCK / SUB`.
    #[inline(always)]
    unsafe fn sub_scale<S: Simd>(s: S, _block: BlockPlanes, _i: usize) -> S::I {
        s.splat_i(1)
    }
    /// The scale of sub-block `i` as f32.
    ///
    /// # Safety
    /// See the trait; `i < BLOCK / SUB`.
    #[inline(always)]
    unsafe fn float_sub_scale<S: Simd>(s: S, block: BlockPlanes, i: usize) -> S::F {
        // SAFETY: the same contract.
        s.to_f(unsafe { Self::sub_scale(s, block, i) })
    }
    /// With [`Self::MIN`]: the value added to each element of the block ([`Self::SMALL`]), or the
    /// scale of the integer minima to subtract.
    ///
    /// # Safety
    /// See the trait.
    #[inline(always)]
    unsafe fn min<S: Simd>(s: S, _block: BlockPlanes) -> S::F {
        s.splat(0.0)
    }
    /// The integer minima of sub-blocks `2p` and `2p + 1` as two i16.
    ///
    /// # Safety
    /// See the trait; `2p + 1 < BLOCK / SUB`.
    #[inline(always)]
    unsafe fn sub_mins<S: Simd>(s: S, _block: BlockPlanes, _p: usize) -> S::I {
        s.splat_i(0)
    }
}

const NIBBLES: i32 = 0x0f0f_0f0f;
const PAIRS: i32 = 0x0303_0303;
const ONES: i32 = 0x0101_0101;

/// Unpacks 32 nibbles: low nibbles are elements 0..16, high nibbles 16..32.
///
/// # Safety
/// Plane 0 has 4 words.
#[inline(always)]
unsafe fn nibbles_of_32<S: Simd>(s: S, block: BlockPlanes) -> [S::I; 8] {
    // SAFETY: by contract.
    unsafe { nibbles_from(s, block, 0) }
}

/// Unpacks 32 nibbles as [`nibbles_of_32`], from word `first` on.
///
/// # Safety
/// Plane 0 has 4 words from `first` on.
#[inline(always)]
unsafe fn nibbles_from<S: Simd>(s: S, block: BlockPlanes, first: usize) -> [S::I; 8] {
    let mask = s.splat_i(NIBBLES);
    let mut codes = [mask; 8];
    for w in 0..4 {
        // SAFETY: by contract.
        let words = unsafe { block.words(s, 0, first + w) };
        codes[w] = s.and(words, mask);
        codes[w + 4] = s.and(s.shr(words, 4), mask);
    }
    codes
}

macro_rules! scale_plane {
    ($plane:literal) => {
        #[inline(always)]
        unsafe fn scale<S: Simd>(s: S, block: BlockPlanes) -> S::F {
            // SAFETY: the plane holds an f16 per row and block.
            unsafe { block.f16(s, $plane) }
        }
    };
}

macro_rules! min_plane {
    ($plane:literal) => {
        const MIN: bool = true;

        #[inline(always)]
        unsafe fn min<S: Simd>(s: S, block: BlockPlanes) -> S::F {
            // SAFETY: the plane holds an f16 per row and block.
            unsafe { block.f16(s, $plane) }
        }
    };
}

macro_rules! codes_by {
    ($f:ident) => {
        #[inline(always)]
        unsafe fn codes<S: Simd>(s: S, block: BlockPlanes, _j: usize) -> [S::I; 8] {
            // SAFETY: this format has the planes that it reads.
            unsafe { $f(s, block) }
        }
    };
}

// These modules follow the macros that they use.
mod block32;
mod codebook;
mod k_quants;
mod microscaling;

pub(crate) use block32::*;
pub(crate) use codebook::*;
pub(crate) use k_quants::*;
pub(crate) use microscaling::*;
