//! The ISA for any CPU: arrays without intrinsics, which the compiler vectorises.
//!
//! An operation that needs a call or several instructions per lane is a function that is not
//! inlined. Inlined into every kernel, these operations made the code of this ISA the largest.

use half::{bf16, f16};

use super::{Kernel, LANES, Simd};

/// The portable ISA, which every CPU supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Portable;

type F = [f32; LANES];
type I = [i32; LANES];

#[inline(always)]
fn dot4(a: i32, b: i32, a_byte: impl Fn(u8) -> i32) -> i32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    let products: [i32; 4] = array!(0, |i| a_byte(a[i]) * i32::from(b[i].cast_signed()));
    products[0] + products[1] + products[2] + products[3]
}

#[inline(never)]
fn f16_to_f32(bytes: [[u8; 2]; LANES]) -> F {
    array!(0.0, |i| f16::from_le_bytes(bytes[i]).to_f32())
}

#[inline(never)]
fn fp8_to_f32(bytes: [u8; LANES]) -> F {
    array!(0.0, |i| rf_quant::E4m3::from_bits(bytes[i]).to_f32())
}

#[inline(never)]
fn lookup(table: &[i8; 16], index: &I) -> I {
    array!(0, |i| {
        let bytes = index[i].to_le_bytes();
        let entries: [u8; 4] = array!(0, |j| table[usize::from(bytes[j] & 15)].cast_unsigned());
        i32::from_le_bytes(entries)
    })
}

/// `acc + Σ w·x` over the four bytes of each lane: w unsigned, x signed.
#[inline(never)]
fn dot_unsigned(acc: &I, w: &I, x: &I) -> I {
    array!(0, |i| acc[i] + dot4(w[i], x[i], i32::from))
}

/// `acc + Σ w·x` over the four signed bytes of each lane.
#[inline(never)]
fn dot_signed(acc: &I, w: &I, x: &I) -> I {
    array!(0, |i| acc[i] + dot4(w[i], x[i], |w| i32::from(w.cast_signed())))
}

#[inline(never)]
fn dot_i16(acc: &I, a: &I, b: &I) -> I {
    array!(0, |i| {
        let (low, high) = (|x: i32| i32::from(x as i16), |x: i32| x >> 16);
        acc[i] + low(a[i]) * low(b[i]) + high(a[i]) * high(b[i])
    })
}

#[inline(never)]
fn round_ties_even(a: &F) -> I {
    array!(0, |i| a[i].round_ties_even() as i32)
}

#[inline(never)]
fn fma(a: &F, b: &F, c: &F) -> F {
    array!(0.0, |i| a[i].mul_add(b[i], c[i]))
}

impl Simd for Portable {
    type F = F;
    type I = I;

    const FEW_TOKENS: usize = 1;
    const HAS_GEMM: bool = false;
    const BIAS: u8 = 0;

    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    unsafe fn load_i(self, p: *const u8) -> I {
        // SAFETY: the caller passes 64 readable bytes.
        let bytes = unsafe { p.cast::<[[u8; 4]; LANES]>().read_unaligned() };
        array!(0, |i| i32::from_le_bytes(bytes[i]))
    }

    #[inline(always)]
    unsafe fn store_i(self, p: *mut u8, v: I) {
        let bytes = array!([0; 4], |i| v[i].to_le_bytes());
        // SAFETY: the caller passes 64 writable bytes.
        unsafe { p.cast::<[[u8; 4]; LANES]>().write_unaligned(bytes) };
    }

    #[inline(always)]
    unsafe fn load_f(self, p: *const f32) -> F {
        // SAFETY: the caller passes 16 readable values.
        unsafe { p.cast::<F>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_f(self, p: *mut f32, v: F) {
        // SAFETY: the caller passes 16 writable values.
        unsafe { p.cast::<F>().write_unaligned(v) };
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u8) -> F {
        // SAFETY: the caller passes 32 readable bytes.
        f16_to_f32(unsafe { p.cast::<[[u8; 2]; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u8) -> F {
        // SAFETY: the caller passes 32 readable bytes.
        let bytes = unsafe { p.cast::<[[u8; 2]; LANES]>().read_unaligned() };
        array!(0.0, |i| bf16::from_le_bytes(bytes[i]).to_f32())
    }

    #[inline(always)]
    unsafe fn load_fp8(self, p: *const u8) -> F {
        // SAFETY: the caller passes 16 readable bytes.
        fp8_to_f32(unsafe { p.cast::<[u8; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> I {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { p.cast::<[u8; LANES]>().read_unaligned() };
        array!(0, |i| i32::from(bytes[i]))
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const u8) -> I {
        // SAFETY: the caller passes 16 readable bytes.
        let bytes = unsafe { p.cast::<[i8; LANES]>().read_unaligned() };
        array!(0, |i| i32::from(bytes[i]))
    }

    #[inline(always)]
    fn splat_i(self, x: i32) -> I {
        [x; LANES]
    }

    #[inline(always)]
    fn and(self, a: I, b: I) -> I {
        array!(0, |i| a[i] & b[i])
    }

    #[inline(always)]
    fn or(self, a: I, b: I) -> I {
        array!(0, |i| a[i] | b[i])
    }

    #[inline(always)]
    fn add_i(self, a: I, b: I) -> I {
        array!(0, |i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn sub_i(self, a: I, b: I) -> I {
        array!(0, |i| a[i].wrapping_sub(b[i]))
    }

    #[inline(always)]
    fn sub_bytes(self, a: I, b: I) -> I {
        array!(0, |i| {
            let (a, b) = (a[i].to_le_bytes(), b[i].to_le_bytes());
            i32::from_le_bytes(array!(0, |j| a[j].wrapping_sub(b[j])))
        })
    }

    #[inline(always)]
    fn mul_bytes(self, a: I, b: I) -> I {
        array!(0, |i| {
            let (a, [factor, ..]) = (a[i].to_le_bytes(), b[i].to_le_bytes());
            i32::from_le_bytes(array!(0, |j| a[j].wrapping_mul(factor)))
        })
    }

    #[inline(always)]
    fn shr(self, a: I, bits: u32) -> I {
        array!(0, |i| (a[i].cast_unsigned() >> bits).cast_signed())
    }

    #[inline(always)]
    fn shl(self, a: I, bits: u32) -> I {
        array!(0, |i| a[i] << bits)
    }

    #[inline(always)]
    fn sar(self, a: I, bits: u32) -> I {
        array!(0, |i| a[i] >> bits)
    }

    #[inline(always)]
    fn lookup(self, table: &[i8; 16], index: I) -> I {
        lookup(table, &index)
    }

    #[inline(always)]
    fn dot_u7(self, acc: I, w: I, x: I) -> I {
        dot_unsigned(&acc, &w, &x)
    }

    #[inline(always)]
    fn bias_bytes(self, w: I) -> I {
        w
    }

    #[inline(always)]
    fn dot_biased_weight(self, acc: I, w: I, x: I) -> I {
        dot_signed(&acc, &w, &x)
    }

    #[inline(always)]
    fn dot_biased_activation(self, acc: I, w: I, x: I) -> I {
        self.dot_biased_weight(acc, w, x)
    }

    #[inline(always)]
    fn dot_i16(self, acc: I, a: I, b: I) -> I {
        dot_i16(&acc, &a, &b)
    }

    #[inline(always)]
    fn to_f(self, a: I) -> F {
        array!(0.0, |i| a[i] as f32)
    }

    #[inline(always)]
    fn to_i(self, a: F) -> I {
        round_ties_even(&a)
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: I) {
        let bytes = array!(0, |i| v[i].clamp(-127, 127) as i8);
        // SAFETY: the caller passes 16 writable bytes.
        unsafe { p.cast::<[i8; LANES]>().write(bytes) };
    }

    #[inline(always)]
    fn bits_to_f(self, a: I) -> F {
        array!(0.0, |i| f32::from_bits(a[i].cast_unsigned()))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; LANES]
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        array!(0.0, |i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        array!(0.0, |i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        array!(0.0, |i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        array!(0.0, |i| a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        fma(&a, &b, &c)
    }

    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        array!(0.0, |i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        array!(0.0, |i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn abs(self, a: F) -> F {
        array!(0.0, |i| a[i].abs())
    }
}
