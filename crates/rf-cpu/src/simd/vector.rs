//! The vector interface of 16 lanes that all kernels use.

/// Number of lanes of a vector, and of rows of a weight panel.
pub(crate) const LANES: usize = 16;

/// Vectors of 16 × f32 and of 16 × i32 (or 64 bytes). A value of an implementing type proves that
/// the CPU supports its instructions.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// A vector of 16 × f32.
    type F: Copy;
    /// A vector of 16 × i32, or of 64 bytes.
    type I: Copy;

    /// Offset added to the unsigned side of a dot product of signed bytes: 128 if the
    /// instruction takes unsigned × signed, 0 if it takes signed × signed.
    const BIAS: u8;

    /// True if the ISA has 32 registers of a whole vector, which allow larger register tiles.
    const WIDE: bool = false;

    /// Number of tokens whose sums with a panel fit into registers, and which share the unpacked
    /// weights: 1, 4 or 8.
    const FEW_TOKENS: usize = 4;

    /// True if dot products of bytes first sum pairs in i16 ([`Self::dot_pairs`]).
    const PAIRS: bool = false;

    /// True if the ISA has enough registers for GEMM tiles.
    const HAS_GEMM: bool;

    /// Runs a kernel in a function compiled for this instruction set.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output;

    /// Loads 64 bytes.
    ///
    /// # Safety
    /// 64 bytes at `p` are readable.
    unsafe fn load_i(self, p: *const u8) -> Self::I;
    /// Stores 64 bytes.
    ///
    /// # Safety
    /// 64 bytes at `p` are writable.
    unsafe fn store_i(self, p: *mut u8, v: Self::I);
    /// Loads 16 × f32.
    ///
    /// # Safety
    /// 16 values at `p` are readable; any alignment.
    unsafe fn load_f(self, p: *const f32) -> Self::F;
    /// Stores 16 × f32.
    ///
    /// # Safety
    /// 16 values at `p` are writable; any alignment.
    unsafe fn store_f(self, p: *mut f32, v: Self::F);
    /// Loads 16 × f16 and widens them to f32.
    ///
    /// # Safety
    /// 32 bytes at `p` are readable.
    unsafe fn load_f16(self, p: *const u8) -> Self::F;
    /// Loads 16 × bf16 and widens them to f32.
    ///
    /// # Safety
    /// 32 bytes at `p` are readable.
    unsafe fn load_bf16(self, p: *const u8) -> Self::F;
    /// Loads 16 × [`rf_quant::E4m3`] and widens them to f32.
    ///
    /// # Safety
    /// 16 bytes at `p` are readable.
    unsafe fn load_fp8(self, p: *const u8) -> Self::F;
    /// Loads 16 × u8 and widens them to i32.
    ///
    /// # Safety
    /// 16 bytes at `p` are readable.
    unsafe fn load_u8(self, p: *const u8) -> Self::I;
    /// Loads 16 × i8 and widens them to i32.
    ///
    /// # Safety
    /// 16 bytes at `p` are readable.
    unsafe fn load_i8(self, p: *const u8) -> Self::I;

    /// Prefetches a cache line. Any address is allowed.
    #[inline(always)]
    fn prefetch(self, _p: *const u8) {}

    fn splat_i(self, x: i32) -> Self::I;
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a − b` per byte, wrapping.
    fn sub_bytes(self, a: Self::I, b: Self::I) -> Self::I;
    /// Multiplies each byte by the lowest byte of its 32-bit lane of `b`, wrapping.
    fn mul_bytes(self, a: Self::I, b: Self::I) -> Self::I;
    /// Logical right shift per 32-bit lane.
    fn shr(self, a: Self::I, bits: u32) -> Self::I;
    /// Left shift per 32-bit lane.
    fn shl(self, a: Self::I, bits: u32) -> Self::I;
    /// Arithmetic right shift per 32-bit lane.
    fn sar(self, a: Self::I, bits: u32) -> Self::I;
    /// Replaces each byte (0..=15) by its entry in a table of 16 bytes.
    fn lookup(self, table: &[i8; 16], index: Self::I) -> Self::I;

    /// `acc + Σ w·x` over the four bytes of each lane: w unsigned and at most 127, x signed.
    fn dot_u7(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// `acc + Σ w·x` over pairs of bytes, as i16, if the ISA has such an instruction
    /// ([`Self::PAIRS`]); w is unsigned. [`Self::dot_i16`] joins the pairs.
    #[inline(always)]
    fn dot_pairs(self, _acc: Self::I, _w: Self::I, _x: Self::I) -> Self::I {
        unreachable!("asked for where PAIRS is true")
    }
    /// Returns the same vector, opaque to the compiler, which keeps the order of these calls. So
    /// additions keep their order, and fewer sums and operands live at a time.
    #[inline(always)]
    fn pin(self, v: Self::I) -> Self::I {
        v
    }
    /// Adds [`Self::BIAS`] to 64 signed bytes.
    fn bias_bytes(self, w: Self::I) -> Self::I;
    /// `acc + Σ (w + BIAS)·x`: `w` is a result of [`Self::bias_bytes`]; x is signed, at least −127.
    fn dot_biased_weight(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// `acc + Σ w·(x + BIAS)`: w is signed; x was stored with [`Self::BIAS`] added.
    fn dot_biased_activation(self, acc: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// `acc + Σ a·b` over the two i16 of each lane.
    fn dot_i16(self, acc: Self::I, a: Self::I, b: Self::I) -> Self::I;

    fn to_f(self, a: Self::I) -> Self::F;
    /// Rounds to the nearest integer, ties to even.
    fn to_i(self, a: Self::F) -> Self::I;
    fn bits_to_f(self, a: Self::I) -> Self::F;
    /// Stores 16 integers as bytes, clamped to −127..=127.
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

    /// The sum of the lanes, by halves: the same order on every ISA.
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

    /// The largest lane.
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

/// A computation that is generic over the ISA. `run` and all functions that it calls must be
/// `#[inline(always)]`; otherwise the intrinsics are not inlined.
pub(crate) trait Kernel {
    /// The result of the kernel.
    type Output;

    /// True if the kernel multiplies integers, or stores bytes for one that does. Other kernels
    /// have the same code on ISAs that differ in these instructions, and are compiled for one of
    /// them.
    const MULTIPLIES_INTEGERS: bool = true;

    /// Runs the kernel.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}
