//! SIMD tiers behind one vector interface of 16 lanes.
//!
//! A kernel is written once, as a [`Kernel`] over [`Simd`], and runs on every [`Tier`]. All tiers
//! compute the same bits: integer dot products are exact, and float operations come in the same
//! order with the same fused multiply-adds.

#![expect(unsafe_code, reason = "intrinsics, and pointers into packed weights")]
#![expect(
    clippy::inline_always,
    reason = "intrinsics are only inlined into functions of their tier"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a pointer's offset and the load from it"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "rows, tokens and panels index several arrays at once"
)]

/// `[f(0), f(1), …]` of as many as the context wants. `std::array::from_fn` and closures are calls where they are not
/// inlined, and then the intrinsics in them are calls too.
macro_rules! array {
    ($any:expr, |$i:ident| $value:expr) => {{
        let mut out = [$any; _];
        for $i in 0..out.len() {
            out[$i] = $value;
        }
        out
    }};
}

pub(crate) mod activations;
pub(crate) mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod float_gemm;
mod format;
mod gemm;
pub(crate) mod kernels;
mod math;
mod matvec;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
pub(crate) mod rope;

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

pub(crate) use matvec::FLOAT_CHUNK;

/// Lanes of a vector, and rows of a weight panel.
pub(crate) const LANES: usize = 16;

/// Vectors of 16 × f32 and 16 × i32 (or 64 bytes). A value of an implementing type proves that the
/// CPU has the instructions.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// 16 × f32.
    type F: Copy;
    /// 16 × i32, or 64 bytes.
    type I: Copy;

    /// What the unsigned side of a dot product of signed bytes has added: 128 where the instruction
    /// takes unsigned × signed, 0 where signed bytes multiply as they are.
    const BIAS: u8;

    /// Whether there are 32 registers of a whole vector each: register tiles are then larger.
    const WIDE: bool = false;

    /// Tokens whose sums with a panel fit into registers: as many share what is unpacked. 1, 4 or 8.
    const FEW_TOKENS: usize = 4;

    /// Whether products of bytes come in pairs of i16 first ([`Self::dot_pairs`]).
    const PAIRS: bool = false;

    /// Whether the blocked product pays: it needs registers for its tiles.
    const HAS_GEMM: bool;

    /// Runs a kernel in a function compiled for this instruction set.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output;

    /// 64 bytes.
    ///
    /// # Safety
    /// 64 bytes at `p` are readable.
    unsafe fn load_i(self, p: *const u8) -> Self::I;
    /// 64 bytes.
    ///
    /// # Safety
    /// 64 bytes at `p` are writable.
    unsafe fn store_i(self, p: *mut u8, v: Self::I);
    /// 16 × f32.
    ///
    /// # Safety
    /// 16 values at `p` are readable; any alignment.
    unsafe fn load_f(self, p: *const f32) -> Self::F;
    /// 16 × f32.
    ///
    /// # Safety
    /// 16 values at `p` are writable; any alignment.
    unsafe fn store_f(self, p: *mut f32, v: Self::F);
    /// 16 × f16, widened.
    ///
    /// # Safety
    /// 32 bytes at `p` are readable.
    unsafe fn load_f16(self, p: *const u8) -> Self::F;
    /// 16 × bf16, widened.
    ///
    /// # Safety
    /// 32 bytes at `p` are readable.
    unsafe fn load_bf16(self, p: *const u8) -> Self::F;
    /// 16 × [`rf_quant::E4m3`], widened.
    ///
    /// # Safety
    /// 16 bytes at `p` are readable.
    unsafe fn load_fp8(self, p: *const u8) -> Self::F;
    /// 16 × u8, widened.
    ///
    /// # Safety
    /// 16 bytes at `p` are readable.
    unsafe fn load_u8(self, p: *const u8) -> Self::I;
    /// 16 × i8, widened.
    ///
    /// # Safety
    /// 16 bytes at `p` are readable.
    unsafe fn load_i8(self, p: *const u8) -> Self::I;

    /// Asks for a cache line, whatever is there.
    #[inline(always)]
    fn prefetch(self, _p: *const u8) {}

    fn splat_i(self, x: i32) -> Self::I;
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Byte by byte, wrapping.
    fn sub_bytes(self, a: Self::I, b: Self::I) -> Self::I;
    /// Each byte times the lowest byte of its 32-bit lane of `b`, wrapping.
    fn mul_bytes(self, a: Self::I, b: Self::I) -> Self::I;
    /// Logical, per 32-bit lane.
    fn shr(self, a: Self::I, bits: u32) -> Self::I;
    /// Per 32-bit lane.
    fn shl(self, a: Self::I, bits: u32) -> Self::I;
    /// Arithmetic, per 32-bit lane.
    fn sar(self, a: Self::I, bits: u32) -> Self::I;
    /// Each byte (0..=15) picks from a table of 16 bytes.
    fn lookup(self, table: &[i8; 16], index: Self::I) -> Self::I;

    /// `acc + Σ w·x` over the four bytes of each lane: w unsigned and at most 127, x signed.
    fn dot_u7(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// `acc + Σ w·x` over pairs of bytes, as i16, where there is such an instruction ([`Self::PAIRS`]); w is unsigned.
    /// [`Self::dot_i16`] joins the pairs.
    #[inline(always)]
    fn dot_pairs(self, _acc: Self::I, _w: Self::I, _x: Self::I) -> Self::I {
        unreachable!("asked for where PAIRS is true")
    }
    /// The same vector. The compiler does not see that: it keeps the order of what is summed, and so fewer sums at a
    /// time.
    #[inline(always)]
    fn pin(self, v: Self::I) -> Self::I {
        v
    }
    /// Adds [`Self::BIAS`] to 64 signed bytes.
    fn bias_bytes(self, w: Self::I) -> Self::I;
    /// `acc + Σ (w + BIAS)·x`: `w` went through [`Self::bias_bytes`]; x is signed, at least −127.
    fn dot_biased_weight(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// `acc + Σ w·(x + BIAS)`: w is signed; x was stored with [`Self::BIAS`] added.
    fn dot_biased_activation(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// `acc + Σ a·b` over the two i16 of each lane.
    fn dot_i16(self, acc: Self::I, a: Self::I, b: Self::I) -> Self::I;

    fn to_f(self, a: Self::I) -> Self::F;
    /// Rounded to nearest, ties to even.
    fn to_i(self, a: Self::F) -> Self::I;
    fn bits_to_f(self, a: Self::I) -> Self::F;
    /// 16 integers as bytes, bounded to −127..=127.
    ///
    /// # Safety
    /// 16 bytes at `p` are writable.
    unsafe fn store_i8(self, p: *mut i8, v: Self::I);

    fn splat(self, x: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;

    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;

    /// The lanes as an array.
    #[inline(always)]
    fn to_array(self, a: Self::F) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: `out` has 16 values.
        unsafe { self.store_f(out.as_mut_ptr(), a) };
        out
    }

    /// Sum of the lanes, by halves: the same order on every tier.
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        let mut v = self.to_array(a);
        let mut n = LANES / 2;
        while n > 0 {
            for i in 0..n {
                v[i] += v[i + n];
            }
            n /= 2;
        }
        v[0]
    }

    /// Largest lane.
    #[inline(always)]
    fn max_lane(self, a: Self::F) -> f32 {
        let mut v = self.to_array(a);
        let mut n = LANES / 2;
        while n > 0 {
            for i in 0..n {
                v[i] = if v[i] > v[i + n] { v[i] } else { v[i + n] };
            }
            n /= 2;
        }
        v[0]
    }
}

/// Work that is generic over the instruction set. `run` and all that it calls must be
/// `#[inline(always)]`, or the intrinsics are not inlined.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;

    /// The work.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// An instruction set that this CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier(TierKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TierKind {
    Portable(portable::Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2<false>),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(avx2::Avx2<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon<false>),
    #[cfg(target_arch = "aarch64")]
    NeonDotprod(neon::Neon<true>),
}

impl Tier {
    /// Every tier that this CPU can run, slowest first.
    pub fn available() -> Vec<Self> {
        let mut tiers = vec![Self(TierKind::Portable(portable::Portable))];
        #[cfg(target_arch = "x86_64")]
        {
            tiers.extend(avx2::Avx2::<false>::detect().map(|t| Self(TierKind::Avx2(t))));
            tiers.extend(avx2::Avx2::<true>::detect().map(|t| Self(TierKind::AvxVnni(t))));
            tiers.extend(avx512::Avx512::detect().map(|t| Self(TierKind::Avx512(t))));
        }
        #[cfg(target_arch = "aarch64")]
        {
            tiers.extend(neon::Neon::<false>::detect().map(|t| Self(TierKind::Neon(t))));
            tiers.extend(neon::Neon::<true>::detect().map(|t| Self(TierKind::NeonDotprod(t))));
        }
        tiers
    }

    /// The fastest tier of this CPU.
    pub fn best() -> Self {
        static BEST: LazyLock<Tier> =
            LazyLock::new(|| *Tier::available().last().expect("portable is always there"));
        *BEST
    }

    /// The name that [`FromStr`] reads.
    pub fn name(self) -> &'static str {
        match self.0 {
            TierKind::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            TierKind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            TierKind::AvxVnni(_) => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            TierKind::Avx512(_) => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            TierKind::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            TierKind::NeonDotprod(_) => "neon-dotprod",
        }
    }

    /// [`Simd::HAS_GEMM`].
    pub(crate) fn has_gemm(self) -> bool {
        match self.0 {
            TierKind::Portable(_) => portable::Portable::HAS_GEMM,
            #[cfg(target_arch = "x86_64")]
            TierKind::Avx2(_) => avx2::Avx2::<false>::HAS_GEMM,
            #[cfg(target_arch = "x86_64")]
            TierKind::AvxVnni(_) => avx2::Avx2::<true>::HAS_GEMM,
            #[cfg(target_arch = "x86_64")]
            TierKind::Avx512(_) => avx512::Avx512::HAS_GEMM,
            #[cfg(target_arch = "aarch64")]
            TierKind::Neon(_) => neon::Neon::<false>::HAS_GEMM,
            #[cfg(target_arch = "aarch64")]
            TierKind::NeonDotprod(_) => neon::Neon::<true>::HAS_GEMM,
        }
    }

    /// Runs a kernel on this tier.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            TierKind::Portable(s) => s.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            TierKind::Avx2(s) => s.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            TierKind::AvxVnni(s) => s.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            TierKind::Avx512(s) => s.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            TierKind::Neon(s) => s.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            TierKind::NeonDotprod(s) => s.vectorize(kernel),
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Tier {
    type Err = UnknownTier;

    fn from_str(name: &str) -> Result<Self, UnknownTier> {
        let available = Self::available();
        let found = available.iter().find(|tier| tier.name() == name).copied();
        found.ok_or_else(|| UnknownTier {
            name: name.into(),
            available: available.iter().map(|t| t.name()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// A tier that does not exist or that this CPU has not got.
#[derive(Debug, thiserror::Error)]
#[error("no SIMD tier '{name}' on this CPU; it has {available}")]
pub struct UnknownTier {
    name: String,
    available: String,
}
