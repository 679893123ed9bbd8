//! The vector interface of 16 lanes that every kernel is written over.

/// Lanes of a vector, and rows of a weight panel.
pub(crate) const LANES: usize = 16;

/// Vectors of 16 × f32 and 16 × i32 (or 64 bytes). A value of an implementing type proves that the
/// CPU has the instructions.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// 16 × f32.
    type F: Copy;
    /// 16 × i32, or 64 bytes.
    type I: Copy;

    /// Offset added to the unsigned side of a dot product of signed bytes: 128 where the
    /// instruction takes unsigned × signed, 0 where signed bytes multiply as they are.
    const BIAS: u8;

    /// Whether there are 32 registers of a whole vector each: register tiles are then larger.
    const WIDE: bool = false;

    /// Tokens whose sums with a panel fit into registers: as many share what is unpacked. 1, 4 or
    /// 8.
    const FEW_TOKENS: usize = 4;

    /// Whether products of bytes come in pairs of i16 first ([`Self::dot_pairs`]).
    const PAIRS: bool = false;

    /// Whether GEMM tiles pay off: they need registers.
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
    /// `acc + Σ w·x` over pairs of bytes, as i16, where there is such an instruction
    /// ([`Self::PAIRS`]); w is unsigned. [`Self::dot_i16`] joins the pairs.
    #[inline(always)]
    fn dot_pairs(self, _acc: Self::I, _w: Self::I, _x: Self::I) -> Self::I {
        unreachable!("asked for where PAIRS is true")
    }
    /// The same vector. The compiler does not see that: it keeps the order of what is summed, and
    /// so fewer sums at a time.
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

    /// Sum of the lanes, by halves: the same order on every ISA.
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
    /// The result of the kernel.
    type Output;

    /// Runs the kernel.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}
