//! NEON, with or without the dot products of Armv8.2. A vector is four registers.
//!
//! The matrix products of i8mm (`smmla`) do not fit this interface: they sum two rows with two
//! tokens into one register, but a lane of a vector is one row.
//!
//! This code has run under qemu only: its results are verified, its speed is not measured.

use std::arch::aarch64::{
    float32x4_t, int8x16_t, int32x4_t, uint8x16_t, uint16x8_t, vabsq_f32, vaddq_f32, vaddq_s32,
    vandq_s32, vandq_u16, vbslq_f32, vcgtq_f32, vcltq_f32, vcombine_s8, vcombine_s16, vcvt_f32_f16,
    vcvtnq_s32_f32, vcvtq_f32_s32, vdivq_f32, vdupq_n_f32, vdupq_n_s32, vdupq_n_u16, vfmaq_f32,
    vget_high_u16, vget_low_s8, vget_low_s16, vget_low_u8, vget_low_u16, vld1q_f32, vld1q_s8,
    vld1q_s32, vld1q_u8, vld1q_u16, vmaxq_s32, vmovl_high_s8, vmovl_high_s16, vmovl_high_u8,
    vmovl_high_u16, vmovl_s8, vmovl_s16, vmovl_u8, vmovl_u16, vmull_high_s8, vmull_high_s16,
    vmull_s8, vmull_s16, vmulq_f32, vmulq_u8, vorrq_s32, vpadalq_s16, vpaddq_s16, vpaddq_s32,
    vqmovn_s16, vqmovn_s32, vqtbl1q_u8, vreinterpret_f16_u16, vreinterpretq_f32_s32,
    vreinterpretq_s8_s32, vreinterpretq_s16_s32, vreinterpretq_s32_u8, vreinterpretq_s32_u32,
    vreinterpretq_u8_s32, vreinterpretq_u16_s16, vreinterpretq_u32_s32, vshll_high_n_s8,
    vshll_high_n_u16, vshll_n_s8, vshll_n_u16, vshlq_s32, vshlq_u32, vst1q_f32, vst1q_s8,
    vst1q_s32, vsubq_f32, vsubq_s32, vsubq_u8,
};
use std::arch::{asm, is_aarch64_feature_detected};

use super::{Kernel, Simd};

/// Proof that the CPU supports NEON, and, if `DOT`, FEAT_DotProd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neon<const DOT: bool>(());

impl Neon<false> {
    /// Returns the proof if this CPU supports NEON.
    pub(super) fn detect() -> Option<Self> {
        // The bytes of a lane are in the same order in memory and in a register only if the target
        // is little-endian.
        let all = cfg!(target_endian = "little") && is_aarch64_feature_detected!("neon");
        all.then_some(Self(()))
    }
}

impl Neon<true> {
    /// Returns the proof if this CPU supports both.
    pub(super) fn detect() -> Option<Self> {
        Neon::<false>::detect()?;
        is_aarch64_feature_detected!("dotprod").then_some(Self(()))
    }
}

/// For code that does not use FEAT_DotProd.
impl From<Neon<true>> for Neon<false> {
    fn from(_: Neon<true>) -> Self {
        Self(())
    }
}

#[target_feature(enable = "neon")]
fn enabled<const DOT: bool, K: Kernel>(s: Neon<DOT>, kernel: K) -> K::Output {
    kernel.run(s)
}

#[target_feature(enable = "neon,dotprod")]
fn enabled_with_dot<const DOT: bool, K: Kernel>(s: Neon<DOT>, kernel: K) -> K::Output {
    kernel.run(s)
}

/// Calls an intrinsic whose only precondition is the CPU feature.
macro_rules! proven {
    ($call:expr) => {
        // SAFETY: a value of `Neon` proves that the CPU has the instruction.
        unsafe { $call }
    };
}

/// Applies an intrinsic to all four registers.
macro_rules! quarters {
    ($f:ident, $a:expr) => {{
        let a = $a;
        proven!([$f(a[0]), $f(a[1]), $f(a[2]), $f(a[3])])
    }};
    ($f:ident, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        proven!([$f(a[0], b[0]), $f(a[1], b[1]), $f(a[2], b[2]), $f(a[3], b[3])])
    }};
    ($f:ident, $a:expr, $b:expr, $c:expr) => {{
        let (a, b, c) = ($a, $b, $c);
        proven!([
            $f(a[0], b[0], c[0]),
            $f(a[1], b[1], c[1]),
            $f(a[2], b[2], c[2]),
            $f(a[3], b[3], c[3])
        ])
    }};
}

/// `Σ w·x` over four signed bytes. Assembly, because `vdotq_s32` is stable only from Rust 1.98 on.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot_quarter(mut acc: int32x4_t, w: int32x4_t, x: int32x4_t) -> int32x4_t {
    // SAFETY: one instruction on registers, which the features of this function include.
    unsafe {
        asm!(
            "sdot {acc:v}.4s, {w:v}.16b, {x:v}.16b",
            acc = inout(vreg) acc,
            w = in(vreg) w,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    acc
}

/// `Σ w·x` over four signed bytes without FEAT_DotProd. x is at least −127, so a sum of two
/// products fits an i16.
#[inline]
#[target_feature(enable = "neon")]
fn dot_in_steps_quarter(acc: int32x4_t, w: int32x4_t, x: int32x4_t) -> int32x4_t {
    let (w, x) = (vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
    let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    vpadalq_s16(acc, vpaddq_s16(low, vmull_high_s8(w, x)))
}

#[inline]
#[target_feature(enable = "neon")]
fn dot_i16_quarter(acc: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    let (a, b) = (vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
    let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
    vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(a, b)))
}

#[inline]
#[target_feature(enable = "neon")]
fn sub_bytes_quarter(a: int32x4_t, b: int32x4_t) -> int32x4_t {
    vreinterpretq_s32_u8(vsubq_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b)))
}

#[inline]
#[target_feature(enable = "neon")]
fn mul_bytes_quarter(a: int32x4_t, b: int32x4_t) -> int32x4_t {
    const LOW_BYTES: [u8; 16] = [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12];
    // SAFETY: the array has 16 bytes.
    let low_bytes = unsafe { vld1q_u8(LOW_BYTES.as_ptr()) };
    let factors = vqtbl1q_u8(vreinterpretq_u8_s32(b), low_bytes);
    vreinterpretq_s32_u8(vmulq_u8(vreinterpretq_u8_s32(a), factors))
}

#[inline]
#[target_feature(enable = "neon")]
fn shift_unsigned_quarter(a: int32x4_t, bits: int32x4_t) -> int32x4_t {
    vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), bits))
}

/// The maximum with the semantics of x86 and of [`super::portable`], which differ from `fmax` for
/// NaN and −0.
#[inline]
#[target_feature(enable = "neon")]
fn max_quarter(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcgtq_f32(a, b), a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn min_quarter(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcltq_f32(a, b), a, b)
}

/// Widens 16 × f16 to f32.
#[inline]
#[target_feature(enable = "neon")]
fn widen_f16([low, high]: [uint16x8_t; 2]) -> [float32x4_t; 4] {
    [
        vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(low))),
        vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(low))),
        vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(high))),
        vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(high))),
    ]
}

#[inline]
#[target_feature(enable = "neon")]
fn lookup_quarter(table: uint8x16_t, index: int32x4_t) -> int32x4_t {
    vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(index)))
}

/// Loads 32 bytes.
///
/// # Safety
/// 32 bytes at `p` are readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load_halves(p: *const u8) -> [uint16x8_t; 2] {
    let p: *const u16 = p.cast();
    // SAFETY: by contract.
    unsafe { [vld1q_u16(p), vld1q_u16(p.add(8))] }
}

impl<const DOT: bool> Simd for Neon<DOT> {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];

    const HAS_GEMM: bool = true;
    const BIAS: u8 = 0; // both sides are signed

    #[inline]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        if DOT {
            return proven!(enabled_with_dot(self, kernel));
        }
        proven!(enabled(self, kernel))
    }

    #[inline(always)]
    unsafe fn load_i(self, p: *const u8) -> Self::I {
        let p: *const i32 = p.cast();
        // SAFETY: the caller passes 64 readable bytes.
        unsafe { [vld1q_s32(p), vld1q_s32(p.add(4)), vld1q_s32(p.add(8)), vld1q_s32(p.add(12))] }
    }

    #[inline(always)]
    unsafe fn store_i(self, p: *mut u8, v: Self::I) {
        let p: *mut i32 = p.cast();
        for (i, v) in v.into_iter().enumerate() {
            // SAFETY: the caller passes 64 writable bytes.
            unsafe { vst1q_s32(p.add(4 * i), v) };
        }
    }

    #[inline(always)]
    unsafe fn load_f(self, p: *const f32) -> Self::F {
        // SAFETY: the caller passes 16 readable values.
        unsafe { [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))] }
    }

    #[inline(always)]
    unsafe fn store_f(self, p: *mut f32, v: Self::F) {
        for (i, v) in v.into_iter().enumerate() {
            // SAFETY: the caller passes 16 writable values.
            unsafe { vst1q_f32(p.add(4 * i), v) };
        }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u8) -> Self::F {
        // SAFETY: the caller passes 32 readable bytes.
        unsafe { widen_f16(load_halves(p)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u8) -> Self::F {
        // SAFETY: the caller passes 32 readable bytes.
        let [low, high] = unsafe { load_halves(p) };
        let wide = proven!([
            vshll_n_u16::<16>(vget_low_u16(low)),
            vshll_high_n_u16::<16>(low),
            vshll_n_u16::<16>(vget_low_u16(high)),
            vshll_high_n_u16::<16>(high),
        ]);
        self.bits_to_f(quarters!(vreinterpretq_s32_u32, wide))
    }

    #[inline(always)]
    unsafe fn load_fp8(self, p: *const u8) -> Self::F {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { vld1q_s8(p.cast()) };
        // The conversion is described in `avx2.rs`.
        let spread = proven!([vshll_n_s8::<7>(vget_low_s8(bytes)), vshll_high_n_s8::<7>(bytes)]);
        let (mask, [low, high]) = (proven!(vdupq_n_u16(0xbf80)), spread);
        let low = proven!(vandq_u16(vreinterpretq_u16_s16(low), mask));
        let high = proven!(vandq_u16(vreinterpretq_u16_s16(high), mask));
        self.mul(proven!(widen_f16([low, high])), self.splat(256.0))
    }

    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> Self::I {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { vld1q_u8(p) };
        let (low, high) = proven!((vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)));
        let wide = proven!([
            vmovl_u16(vget_low_u16(low)),
            vmovl_high_u16(low),
            vmovl_u16(vget_low_u16(high)),
            vmovl_high_u16(high),
        ]);
        quarters!(vreinterpretq_s32_u32, wide)
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const u8) -> Self::I {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { vld1q_s8(p.cast()) };
        let (low, high) = proven!((vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)));
        proven!([
            vmovl_s16(vget_low_s16(low)),
            vmovl_high_s16(low),
            vmovl_s16(vget_low_s16(high)),
            vmovl_high_s16(high),
        ])
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        // SAFETY: a prefetch is a hint and never faults.
        unsafe {
            asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(nomem, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        [proven!(vdupq_n_s32(x)); 4]
    }

    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        quarters!(vandq_s32, a, b)
    }

    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        quarters!(vorrq_s32, a, b)
    }

    #[inline(always)]
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I {
        quarters!(vaddq_s32, a, b)
    }

    #[inline(always)]
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I {
        quarters!(vsubq_s32, a, b)
    }

    #[inline(always)]
    fn sub_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        quarters!(sub_bytes_quarter, a, b)
    }

    #[inline(always)]
    fn mul_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        quarters!(mul_bytes_quarter, a, b)
    }

    #[inline(always)]
    fn shr(self, a: Self::I, bits: u32) -> Self::I {
        quarters!(shift_unsigned_quarter, a, self.splat_i(-bits.cast_signed()))
    }

    #[inline(always)]
    fn shl(self, a: Self::I, bits: u32) -> Self::I {
        quarters!(vshlq_s32, a, self.splat_i(bits.cast_signed()))
    }

    #[inline(always)]
    fn sar(self, a: Self::I, bits: u32) -> Self::I {
        quarters!(vshlq_s32, a, self.splat_i(-bits.cast_signed()))
    }

    #[inline(always)]
    fn lookup(self, table: &[i8; 16], index: Self::I) -> Self::I {
        // SAFETY: the table has 16 bytes.
        let table = unsafe { vld1q_u8(table.as_ptr().cast()) };
        quarters!(lookup_quarter, [table; 4], index)
    }

    #[inline(always)]
    fn dot_u7(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        // Bytes up to 127 are equal as signed bytes.
        self.dot_biased_weight(acc, w, x)
    }

    #[inline(always)]
    fn bias_bytes(self, w: Self::I) -> Self::I {
        w
    }

    #[inline(always)]
    fn dot_biased_weight(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        if DOT {
            return quarters!(dot_quarter, acc, w, x);
        }
        quarters!(dot_in_steps_quarter, acc, w, x)
    }

    #[inline(always)]
    fn dot_biased_activation(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        self.dot_biased_weight(acc, w, x)
    }

    #[inline(always)]
    fn dot_i16(self, acc: Self::I, a: Self::I, b: Self::I) -> Self::I {
        quarters!(dot_i16_quarter, acc, a, b)
    }

    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        quarters!(vcvtq_f32_s32, a)
    }

    #[inline(always)]
    fn to_i(self, a: Self::F) -> Self::I {
        quarters!(vcvtnq_s32_f32, a)
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::I) {
        let words = quarters!(vqmovn_s32, quarters!(vmaxq_s32, v, self.splat_i(-127)));
        let low = proven!(vqmovn_s16(vcombine_s16(words[0], words[1])));
        let high = proven!(vqmovn_s16(vcombine_s16(words[2], words[3])));
        let bytes: int8x16_t = proven!(vcombine_s8(low, high));
        // SAFETY: the caller passes 16 writable bytes.
        unsafe { vst1q_s8(p, bytes) };
    }

    #[inline(always)]
    fn bits_to_f(self, a: Self::I) -> Self::F {
        quarters!(vreinterpretq_f32_s32, a)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [proven!(vdupq_n_f32(x)); 4]
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(vaddq_f32, a, b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(vsubq_f32, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(vmulq_f32, a, b)
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(vdivq_f32, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        quarters!(vfmaq_f32, c, a, b)
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(max_quarter, a, b)
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        quarters!(min_quarter, a, b)
    }

    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        quarters!(vabsq_f32, a)
    }
}
