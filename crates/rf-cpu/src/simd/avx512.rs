//! AVX-512 with VNNI. A vector is one register.

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_storeu_si128,
    _mm256_and_si256, _mm256_cvtepi8_epi16, _mm256_loadu_si256, _mm256_set1_epi16,
    _mm256_slli_epi16, _mm512_abs_ps, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_castsi512_ps, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps,
    _mm512_cvtepu8_epi32, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_epi32,
    _mm512_cvtsepi32_epi8, _mm512_div_ps, _mm512_dpbusd_epi32, _mm512_dpwssd_epi32,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_max_epi32, _mm512_max_ps,
    _mm512_min_ps, _mm512_mul_ps, _mm512_mullo_epi16, _mm512_or_si512, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_shuffle_epi8, _mm512_slli_epi16, _mm512_sllv_epi32,
    _mm512_srav_epi32, _mm512_srli_epi16, _mm512_srlv_epi32, _mm512_storeu_ps, _mm512_storeu_si512,
    _mm512_sub_epi8, _mm512_sub_epi32, _mm512_sub_ps, _mm512_xor_si512,
};

use super::{Kernel, Simd};

/// Proof that the CPU supports AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx512(());

impl Avx512 {
    /// Returns the proof if this CPU supports all of them.
    pub(super) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        all.then_some(Self(()))
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn enabled<K: Kernel>(s: Avx512, kernel: K) -> K::Output {
    kernel.run(s)
}

/// Calls an intrinsic whose only precondition is the CPU feature.
macro_rules! proven {
    ($call:expr) => {
        // SAFETY: a value of `Avx512` proves that the CPU has the instruction.
        unsafe { $call }
    };
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;

    const WIDE: bool = true;
    const FEW_TOKENS: usize = 8;
    const HAS_GEMM: bool = true;
    const BIAS: u8 = 128; // vpdpbusd takes unsigned × signed

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        proven!(enabled(self, kernel))
    }

    #[inline(always)]
    unsafe fn load_i(self, p: *const u8) -> __m512i {
        // SAFETY: the caller passes 64 readable bytes.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }

    #[inline(always)]
    unsafe fn store_i(self, p: *mut u8, v: __m512i) {
        // SAFETY: the caller passes 64 writable bytes.
        unsafe { _mm512_storeu_si512(p.cast(), v) };
    }

    #[inline(always)]
    unsafe fn load_f(self, p: *const f32) -> __m512 {
        // SAFETY: the caller passes 16 readable values.
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store_f(self, p: *mut f32, v: __m512) {
        // SAFETY: the caller passes 16 writable values.
        unsafe { _mm512_storeu_ps(p, v) };
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u8) -> __m512 {
        // SAFETY: the caller passes 32 readable bytes.
        let half = unsafe { _mm256_loadu_si256(p.cast()) };
        proven!(_mm512_cvtph_ps(half))
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u8) -> __m512 {
        // SAFETY: the caller passes 32 readable bytes.
        let half = unsafe { _mm256_loadu_si256(p.cast()) };
        let wide = proven!(_mm512_cvtepu16_epi32(half));
        self.bits_to_f(self.shl(wide, 16))
    }

    #[inline(always)]
    unsafe fn load_fp8(self, p: *const u8) -> __m512 {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { _mm_loadu_si128(p.cast()) };
        // The conversion is described in `avx2.rs`.
        let spread = proven!(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7));
        let half = proven!(_mm256_and_si256(spread, _mm256_set1_epi16(0xbf80_u16 as i16)));
        self.mul(proven!(_mm512_cvtph_ps(half)), self.splat(256.0))
    }

    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> __m512i {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { _mm_loadu_si128(p.cast()) };
        proven!(_mm512_cvtepu8_epi32(bytes))
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const u8) -> __m512i {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { _mm_loadu_si128(p.cast()) };
        proven!(_mm512_cvtepi8_epi32(bytes))
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        proven!(_mm_prefetch::<_MM_HINT_T0>(p.cast()));
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> __m512i {
        proven!(_mm512_set1_epi32(x))
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        proven!(_mm512_and_si512(a, b))
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        proven!(_mm512_or_si512(a, b))
    }

    #[inline(always)]
    fn add_i(self, a: __m512i, b: __m512i) -> __m512i {
        proven!(_mm512_add_epi32(a, b))
    }

    #[inline(always)]
    fn sub_i(self, a: __m512i, b: __m512i) -> __m512i {
        proven!(_mm512_sub_epi32(a, b))
    }

    #[inline(always)]
    fn sub_bytes(self, a: __m512i, b: __m512i) -> __m512i {
        proven!(_mm512_sub_epi8(a, b))
    }

    #[inline(always)]
    fn mul_bytes(self, a: __m512i, b: __m512i) -> __m512i {
        // The low byte of a product of words depends only on the low bytes of its factors.
        let b = self.or(self.and(b, self.splat_i(0xffff)), self.shl(b, 16));
        let even = self.and(proven!(_mm512_mullo_epi16(a, b)), self.splat_i(0x00ff_00ff));
        let odd = proven!(_mm512_mullo_epi16(_mm512_srli_epi16::<8>(a), b));
        self.or(even, proven!(_mm512_slli_epi16::<8>(odd)))
    }

    #[inline(always)]
    fn shr(self, a: __m512i, bits: u32) -> __m512i {
        proven!(_mm512_srlv_epi32(a, _mm512_set1_epi32(bits as i32)))
    }

    #[inline(always)]
    fn shl(self, a: __m512i, bits: u32) -> __m512i {
        proven!(_mm512_sllv_epi32(a, _mm512_set1_epi32(bits as i32)))
    }

    #[inline(always)]
    fn sar(self, a: __m512i, bits: u32) -> __m512i {
        proven!(_mm512_srav_epi32(a, _mm512_set1_epi32(bits as i32)))
    }

    #[inline(always)]
    fn lookup(self, table: &[i8; 16], index: __m512i) -> __m512i {
        // SAFETY: the table has 16 bytes.
        let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        proven!(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), index))
    }

    #[inline(always)]
    fn dot_u7(self, acc: __m512i, w: __m512i, x: __m512i) -> __m512i {
        proven!(_mm512_dpbusd_epi32(acc, w, x))
    }

    #[inline(always)]
    fn bias_bytes(self, w: __m512i) -> __m512i {
        // Adding 128 to a signed byte flips its top bit.
        proven!(_mm512_xor_si512(w, _mm512_set1_epi8(-128)))
    }

    #[inline(always)]
    fn dot_biased_weight(self, acc: __m512i, w: __m512i, x: __m512i) -> __m512i {
        proven!(_mm512_dpbusd_epi32(acc, w, x))
    }

    #[inline(always)]
    fn dot_biased_activation(self, acc: __m512i, w: __m512i, x: __m512i) -> __m512i {
        proven!(_mm512_dpbusd_epi32(acc, x, w))
    }

    #[inline(always)]
    fn dot_i16(self, acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
        proven!(_mm512_dpwssd_epi32(acc, a, b))
    }

    #[inline(always)]
    fn to_f(self, a: __m512i) -> __m512 {
        proven!(_mm512_cvtepi32_ps(a))
    }

    #[inline(always)]
    fn to_i(self, a: __m512) -> __m512i {
        proven!(_mm512_cvtps_epi32(a))
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: __m512i) {
        let bytes = proven!(_mm512_cvtsepi32_epi8(_mm512_max_epi32(v, _mm512_set1_epi32(-127))));
        // SAFETY: the caller passes 16 writable bytes.
        unsafe { _mm_storeu_si128(p.cast(), bytes) };
    }

    #[inline(always)]
    fn bits_to_f(self, a: __m512i) -> __m512 {
        proven!(_mm512_castsi512_ps(a))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        proven!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        proven!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        proven!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        proven!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        proven!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        proven!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        proven!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        proven!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        proven!(_mm512_abs_ps(a))
    }
}
