//! AVX2 with FMA and F16C, optionally with the dot products of AVX-VNNI. A vector is two registers.

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256, __m256i, _MM_HINT_T0, _mm_loadu_si128, _mm_packs_epi16, _mm_prefetch,
    _mm_srli_si128, _mm_storeu_si128, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_add_ps, _mm256_and_si256, _mm256_andnot_ps, _mm256_broadcastsi128_si256,
    _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cvtepi8_epi16, _mm256_cvtepi8_epi32,
    _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
    _mm256_cvtps_epi32, _mm256_div_ps, _mm256_dpbusd_avx_epi32, _mm256_dpwssd_avx_epi32,
    _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_max_epi32, _mm256_max_ps, _mm256_min_ps,
    _mm256_mul_ps, _mm256_mullo_epi16, _mm256_or_si256, _mm256_packs_epi32,
    _mm256_permute4x64_epi64, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_shuffle_epi8, _mm256_sign_epi8, _mm256_slli_epi16, _mm256_sllv_epi32,
    _mm256_srav_epi32, _mm256_srli_epi16, _mm256_srlv_epi32, _mm256_storeu_ps, _mm256_storeu_si256,
    _mm256_sub_epi8, _mm256_sub_epi32, _mm256_sub_ps, _mm256_xor_si256,
};

use super::{Kernel, Simd};

/// Proof that the CPU supports AVX2, FMA and F16C, and, if `VNNI`, AVX-VNNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx2<const VNNI: bool>(());

impl Avx2<false> {
    /// Returns the proof if this CPU supports all of them.
    pub(super) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        all.then_some(Self(()))
    }
}

impl Avx2<true> {
    /// Returns the proof if this CPU supports all of them.
    pub(super) fn detect() -> Option<Self> {
        Avx2::<false>::detect()?;
        is_x86_feature_detected!("avxvnni").then_some(Self(()))
    }
}

/// For code that does not use AVX-VNNI.
impl From<Avx2<true>> for Avx2<false> {
    fn from(_: Avx2<true>) -> Self {
        Self(())
    }
}

/// Multiplies bytes by the low bytes of words. The low byte of a product of words depends only on
/// the low bytes of its factors.
#[inline]
#[target_feature(enable = "avx2")]
fn mul_bytes_half(a: __m256i, b: __m256i) -> __m256i {
    let even = _mm256_and_si256(_mm256_mullo_epi16(a, b), _mm256_set1_epi16(0xff));
    let odd = _mm256_mullo_epi16(_mm256_srli_epi16::<8>(a), b);
    _mm256_or_si256(even, _mm256_slli_epi16::<8>(odd))
}

#[target_feature(enable = "avx2,fma,f16c")]
fn enabled<const VNNI: bool, K: Kernel>(s: Avx2<VNNI>, kernel: K) -> K::Output {
    kernel.run(s)
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn enabled_with_vnni<const VNNI: bool, K: Kernel>(s: Avx2<VNNI>, kernel: K) -> K::Output {
    kernel.run(s)
}

/// Calls an intrinsic whose only precondition is the CPU feature.
macro_rules! proven {
    ($call:expr) => {
        // SAFETY: a value of `Avx2` proves that the CPU has the instruction.
        unsafe { $call }
    };
}

/// Applies an intrinsic to both halves.
macro_rules! halves {
    ($f:ident, $a:expr) => {{
        let a = $a;
        proven!([$f(a[0]), $f(a[1])])
    }};
    ($f:ident, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        proven!([$f(a[0], b[0]), $f(a[1], b[1])])
    }};
    ($f:ident, $a:expr, $b:expr, $c:expr) => {{
        let (a, b, c) = ($a, $b, $c);
        proven!([$f(a[0], b[0], c[0]), $f(a[1], b[1], c[1])])
    }};
}

/// `Σ w·x` over four bytes. w is unsigned and at most 128, so the i16 sums of vpmaddubsw do not
/// saturate.
#[inline]
#[target_feature(enable = "avx2")]
fn dot_half(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(w, x);
    _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn dot_pairs_half(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
    _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x))
}

#[inline]
#[target_feature(enable = "avx2")]
fn dot_signed_half(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
    dot_half(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
}

#[inline]
#[target_feature(enable = "avx2")]
fn pin([mut a, mut b]: [__m256i; 2]) -> [__m256i; 2] {
    // Not `pure`: the compiler may move pure assembly, and moved the steps of one token past those
    // of another, with all weights on the stack.
    // SAFETY: the assembly is empty.
    unsafe {
        asm!("/* {a} {b} */", a = inout(ymm_reg) a, b = inout(ymm_reg) b,
            options(nomem, nostack, preserves_flags));
    }
    [a, b]
}

#[inline]
#[target_feature(enable = "avx2")]
fn dot_i16_half(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn abs_half(a: __m256) -> __m256 {
    _mm256_andnot_ps(_mm256_set1_ps(-0.0), a)
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type F = [__m256; 2];
    type I = [__m256i; 2];

    const HAS_GEMM: bool = true;
    const PAIRS: bool = !VNNI;
    const BIAS: u8 = if VNNI { 128 } else { 0 }; // vpdpbusd takes unsigned × signed

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        if VNNI {
            return proven!(enabled_with_vnni(self, kernel));
        }
        proven!(enabled(self, kernel))
    }

    #[inline(always)]
    unsafe fn load_i(self, p: *const u8) -> Self::I {
        let p: *const __m256i = p.cast();
        // SAFETY: the caller passes 64 readable bytes, of which these are the first 32.
        let low = unsafe { _mm256_loadu_si256(p) };
        // SAFETY: these are the last 32.
        let high = unsafe { _mm256_loadu_si256(p.wrapping_add(1)) };
        [low, high]
    }

    #[inline(always)]
    unsafe fn store_i(self, p: *mut u8, v: Self::I) {
        let p: *mut __m256i = p.cast();
        // SAFETY: the caller passes 64 writable bytes, of which these are the first 32.
        unsafe { _mm256_storeu_si256(p, v[0]) };
        // SAFETY: these are the last 32.
        unsafe { _mm256_storeu_si256(p.wrapping_add(1), v[1]) };
    }

    #[inline(always)]
    unsafe fn load_f(self, p: *const f32) -> Self::F {
        // SAFETY: the caller passes 16 readable values, of which these are the first 8.
        let low = unsafe { _mm256_loadu_ps(p) };
        // SAFETY: these are the last 8.
        let high = unsafe { _mm256_loadu_ps(p.wrapping_add(8)) };
        [low, high]
    }

    #[inline(always)]
    unsafe fn store_f(self, p: *mut f32, v: Self::F) {
        // SAFETY: the caller passes 16 writable values, of which these are the first 8.
        unsafe { _mm256_storeu_ps(p, v[0]) };
        // SAFETY: these are the last 8.
        unsafe { _mm256_storeu_ps(p.wrapping_add(8), v[1]) };
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u8) -> Self::F {
        let p: *const __m128i = p.cast();
        // SAFETY: the caller passes 32 readable bytes, of which these are the first 16.
        let low = unsafe { _mm_loadu_si128(p) };
        // SAFETY: these are the last 16.
        let high = unsafe { _mm_loadu_si128(p.wrapping_add(1)) };
        halves!(_mm256_cvtph_ps, [low, high])
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u8) -> Self::F {
        let p: *const __m128i = p.cast();
        // SAFETY: the caller passes 32 readable bytes, of which these are the first 16.
        let low = unsafe { _mm_loadu_si128(p) };
        // SAFETY: these are the last 16.
        let high = unsafe { _mm_loadu_si128(p.wrapping_add(1)) };
        self.bits_to_f(self.shl(halves!(_mm256_cvtepu16_epi32, [low, high]), 16))
    }

    #[inline(always)]
    unsafe fn load_fp8(self, p: *const u8) -> Self::F {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { _mm_loadu_si128(p.cast()) };
        // The shift puts exponent and mantissa into the fields of an f16 that is 2⁻⁸ of the value.
        // This also converts subnormals, at no extra cost. Two copies of the sign are above them;
        // the mask removes one.
        let spread = proven!(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7));
        let half = proven!(_mm256_and_si256(spread, _mm256_set1_epi16(0xbf80_u16 as i16)));
        let halves = proven!([_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)]);
        self.mul(halves!(_mm256_cvtph_ps, halves), self.splat(256.0))
    }

    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> Self::I {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { _mm_loadu_si128(p.cast()) };
        let high = proven!(_mm_srli_si128(bytes, 8));
        halves!(_mm256_cvtepu8_epi32, [bytes, high])
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const u8) -> Self::I {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { _mm_loadu_si128(p.cast()) };
        let high = proven!(_mm_srli_si128(bytes, 8));
        halves!(_mm256_cvtepi8_epi32, [bytes, high])
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        proven!(_mm_prefetch::<_MM_HINT_T0>(p.cast()));
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        [proven!(_mm256_set1_epi32(x)); 2]
    }

    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_and_si256, a, b)
    }

    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_or_si256, a, b)
    }

    #[inline(always)]
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_add_epi32, a, b)
    }

    #[inline(always)]
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_sub_epi32, a, b)
    }

    #[inline(always)]
    fn sub_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        halves!(_mm256_sub_epi8, a, b)
    }

    #[inline(always)]
    fn mul_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        let b = self.or(self.and(b, self.splat_i(0xffff)), self.shl(b, 16));
        halves!(mul_bytes_half, a, b)
    }

    #[inline(always)]
    fn shr(self, a: Self::I, bits: u32) -> Self::I {
        halves!(_mm256_srlv_epi32, a, self.splat_i(bits as i32))
    }

    #[inline(always)]
    fn shl(self, a: Self::I, bits: u32) -> Self::I {
        halves!(_mm256_sllv_epi32, a, self.splat_i(bits as i32))
    }

    #[inline(always)]
    fn sar(self, a: Self::I, bits: u32) -> Self::I {
        halves!(_mm256_srav_epi32, a, self.splat_i(bits as i32))
    }

    #[inline(always)]
    fn lookup(self, table: &[i8; 16], index: Self::I) -> Self::I {
        // SAFETY: the table has 16 bytes.
        let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        let table = proven!(_mm256_broadcastsi128_si256(table));
        halves!(_mm256_shuffle_epi8, [table; 2], index)
    }

    #[inline(always)]
    fn dot_u7(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        if VNNI {
            return halves!(_mm256_dpbusd_avx_epi32, acc, w, x);
        }
        halves!(dot_half, acc, w, x)
    }

    #[inline(always)]
    fn dot_pairs(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        halves!(dot_pairs_half, acc, w, x)
    }

    #[inline(always)]
    fn pin(self, v: Self::I) -> Self::I {
        proven!(pin(v))
    }

    #[inline(always)]
    fn bias_bytes(self, w: Self::I) -> Self::I {
        if VNNI {
            // Adding 128 to a signed byte flips its top bit.
            return halves!(_mm256_xor_si256, w, [proven!(_mm256_set1_epi8(-128)); 2]);
        }
        w
    }

    #[inline(always)]
    fn dot_biased_weight(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        if VNNI {
            return halves!(_mm256_dpbusd_avx_epi32, acc, w, x);
        }
        halves!(dot_signed_half, acc, w, x)
    }

    #[inline(always)]
    fn dot_biased_activation(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        if VNNI {
            return halves!(_mm256_dpbusd_avx_epi32, acc, x, w);
        }
        halves!(dot_signed_half, acc, w, x)
    }

    #[inline(always)]
    fn dot_i16(self, acc: Self::I, a: Self::I, b: Self::I) -> Self::I {
        if VNNI {
            return halves!(_mm256_dpwssd_avx_epi32, acc, a, b);
        }
        halves!(dot_i16_half, acc, a, b)
    }

    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        halves!(_mm256_cvtepi32_ps, a)
    }

    #[inline(always)]
    fn to_i(self, a: Self::F) -> Self::I {
        halves!(_mm256_cvtps_epi32, a)
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::I) {
        let bounded = halves!(_mm256_max_epi32, v, [proven!(_mm256_set1_epi32(-127)); 2]);
        // Packing works within halves of 128 bits. The permutation 0 2 1 3 restores the order.
        let words = proven!(_mm256_packs_epi32(bounded[0], bounded[1]));
        let words = proven!(_mm256_permute4x64_epi64::<0b11_01_10_00>(words));
        let low = proven!(_mm256_castsi256_si128(words));
        let high = proven!(_mm256_extracti128_si256::<1>(words));
        let bytes = proven!(_mm_packs_epi16(low, high));
        // SAFETY: the caller passes 16 writable bytes.
        unsafe { _mm_storeu_si128(p.cast(), bytes) };
    }

    #[inline(always)]
    fn bits_to_f(self, a: Self::I) -> Self::F {
        halves!(_mm256_castsi256_ps, a)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [proven!(_mm256_set1_ps(x)); 2]
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_add_ps, a, b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_sub_ps, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_mul_ps, a, b)
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_div_ps, a, b)
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_max_ps, a, b)
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        halves!(_mm256_min_ps, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        halves!(_mm256_fmadd_ps, a, b, c)
    }

    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        halves!(abs_half, a)
    }
}
