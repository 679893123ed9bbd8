//! Activations quantised to int8: the operand of integer formats.

use rf_graph::{Activation, Function, Xielu};

use super::math::SimdMath;
use super::{Kernel, LANES, Simd};

/// Columns per [`ActBlock`].
pub(crate) const ACT_BLOCK: usize = 256;

/// 256 quantised activations of one token, and their sums for offsets and minima.
///
/// `x ≈ scale · q`. Formats with blocks of 32 use one scale per 32 elements. Formats with
/// super-blocks of 256 use one scale (`scale[0]`).
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct ActBlock {
    /// `q`, or `q + BIAS` for the GEMM.
    pub(crate) q: [i8; ACT_BLOCK],
    /// One scale per 32 elements, or one in `scale[0]`.
    pub(crate) scale: [f32; 8],
    /// `scale · Σ q` per 32 elements.
    pub(crate) sum: [f32; 8],
    /// `Σ q` per 32 elements.
    pub(crate) sum_32: [i16; 8],
    /// `Σ q` per 16 elements.
    pub(crate) sum_16: [i16; 16],
}

impl ActBlock {
    /// A block of zeros.
    pub(crate) const ZERO: Self =
        Self { q: [0; ACT_BLOCK], scale: [0.0; 8], sum: [0.0; 8], sum_32: [0; 8], sum_16: [0; 16] };
}

/// The source of a matmul's activations; see [`rf_graph::Prologue`].
#[derive(Clone, Copy)]
pub(crate) enum RowSource<'a> {
    Plain(&'a [f32]),
    /// `x · scale · weight`, `scale` from [`RmsScale`].
    Norm {
        x: &'a [f32],
        weight: &'a [f32],
        scale: f32,
    },
    Glu {
        activation: Activation,
        gate: &'a [f32],
        up: &'a [f32],
    },
}

impl RowSource<'_> {
    /// The number of columns.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(x) | Self::Norm { x, .. } => x.len(),
            Self::Glu { gate, .. } => gate.len(),
        }
    }

    /// Runs a kernel on the elements of the source. Each kind of source has its own loops: a branch
    /// per 16 elements would cost as much as the elements themselves.
    #[inline(always)]
    pub(super) fn run<S: Simd, K: RowKernel>(self, s: S, kernel: K) {
        match self {
            Self::Plain(x) => kernel.run(s, PlainRow(x)),
            Self::Norm { x, weight, scale } => kernel.run(s, NormRow { x, weight, scale }),
            Self::Glu { activation, gate, up } => match activation {
                Activation::GeluTanh => {
                    kernel.run(s, GluRow { activation: Activation::GeluTanh, gate, up });
                }
                Activation::ClampedSwiglu => {
                    kernel.run(s, GluRow { activation: Activation::ClampedSwiglu, gate, up });
                }
                activation => kernel.run(s, GluRow { activation, gate, up }),
            },
        }
    }
}

/// A kernel that reads a [`RowSource`].
pub(super) trait RowKernel {
    fn run<S: Simd, R: ActivationRow>(self, s: S, row: R);
}

/// The elements of a [`RowSource`].
pub(super) trait ActivationRow: Copy {
    /// Evaluates elements `at..at + 16`, with zeros past the end.
    fn load<S: Simd>(self, s: S, at: usize) -> S::F;
}

#[derive(Clone, Copy)]
struct PlainRow<'a>(&'a [f32]);

impl ActivationRow for PlainRow<'_> {
    #[inline(always)]
    fn load<S: Simd>(self, s: S, at: usize) -> S::F {
        load(s, self.0, at)
    }
}

#[derive(Clone, Copy)]
struct NormRow<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    scale: f32,
}

impl ActivationRow for NormRow<'_> {
    #[inline(always)]
    fn load<S: Simd>(self, s: S, at: usize) -> S::F {
        s.mul(s.mul(load(s, self.x, at), s.splat(self.scale)), load(s, self.weight, at))
    }
}

#[derive(Clone, Copy)]
struct GluRow<'a> {
    activation: Activation,
    gate: &'a [f32],
    up: &'a [f32],
}

impl ActivationRow for GluRow<'_> {
    #[inline(always)]
    fn load<S: Simd>(self, s: S, at: usize) -> S::F {
        glu(s, self.activation, load(s, self.gate, at), load(s, self.up, at))
    }
}

/// `rf_oracle::reference::glu`.
#[inline(always)]
fn glu<S: Simd>(s: S, activation: Activation, gate: S::F, up: S::F) -> S::F {
    if activation == Activation::ClampedSwiglu {
        let clamp = s.splat(Activation::CLAMP);
        let lowest = s.sub(s.splat(0.0), clamp);
        let up = s.min(s.max(up, lowest), clamp);
        let gate = activate(s, activation, s.min(gate, clamp));
        s.mul(gate, s.add(up, s.splat(1.0)))
    } else {
        s.mul(activate(s, activation, gate), up)
    }
}

/// `rf_oracle::reference::map`.
#[inline(always)]
fn map<S: Simd>(s: S, function: Function, x: S::F) -> S::F {
    match function {
        Function::Softcap(cap) => s.mul(s.splat(cap), s.tanh(s.div(x, s.splat(cap)))),
        Function::Activation(activation) => activate(s, activation, x),
        Function::Scale(factor) => s.mul(x, s.splat(factor)),
        Function::Clamp { min, max } => s.min(s.max(x, s.splat(min)), s.splat(max)),
        Function::Xielu(function) => xielu(s, function, x),
        _ => x,
    }
}

/// [`Function::Xielu`]: the sum of its parts for elements above 0 and for the others, of which the
/// first is 0 for the others, and the second is multiplied by 0 or 1.
#[inline(always)]
fn xielu<S: Simd>(s: S, function: Xielu, x: S::F) -> S::F {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let (positive, other) = (s.max(x, zero), s.min(x, zero));
    let power = s.expm1_of_negative(s.min(other, s.splat(function.eps)));
    let curve = s.mul(s.sub(power, other), s.splat(function.alpha_n));
    let is_positive = s.min(s.mul(positive, s.splat(1e38)), one);
    let linear = s.mul(x, s.splat(function.beta));
    let y = s.fma(s.mul(positive, s.splat(function.alpha_p)), positive, linear);
    s.fma(curve, s.sub(one, is_positive), y)
}

/// The activation function of a gated linear unit.
#[inline(always)]
fn activate<S: Simd>(s: S, activation: Activation, x: S::F) -> S::F {
    match activation {
        Activation::GeluTanh => s.gelu_tanh(x),
        Activation::ClampedSwiglu => {
            let e = s.exp(s.mul(x, s.splat(-Activation::ALPHA)));
            s.div(x, s.add(s.splat(1.0), e))
        }
        Activation::SquaredRelu => {
            let x = s.max(x, s.splat(0.0));
            s.mul(x, x)
        }
        Activation::Relu => s.max(x, s.splat(0.0)),
        Activation::GeluErf => s.gelu_erf(x),
        _ => s.silu(x),
    }
}

/// Loads 16 values from `at`, with zeros past the end.
#[inline(always)]
pub(super) fn load<S: Simd>(s: S, x: &[f32], at: usize) -> S::F {
    if let Some(x) = x.get(at..at + LANES) {
        // SAFETY: 16 values.
        return unsafe { s.load_f(x.as_ptr()) };
    }
    let mut padded = [0.0; LANES];
    let rest = x.get(at..).unwrap_or_default();
    padded[..rest.len()].copy_from_slice(rest);
    // SAFETY: 16 values.
    unsafe { s.load_f(padded.as_ptr()) }
}

/// Stores as many lanes as `y` has elements, at most 16.
#[inline(always)]
pub(super) fn store<S: Simd>(s: S, y: &mut [f32], v: S::F) {
    if let Some(y) = y.first_chunk_mut::<LANES>() {
        // SAFETY: 16 values.
        return unsafe { s.store_f(y.as_mut_ptr(), v) };
    }
    let v = s.to_array(v);
    y.copy_from_slice(&v[..y.len()]);
}

/// `1 / √(mean(x²) + eps)`: each lane sums every 16th element, then the lanes are summed by halves.
pub(crate) struct RmsScale<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) eps: f32,
}

impl Kernel for RmsScale<'_> {
    type Output = f32;

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sum = [s.splat(0.0); 4];
        for at in (0..self.x.len()).step_by(4 * LANES) {
            for (i, sum) in sum.iter_mut().enumerate() {
                let x = load(s, self.x, at + i * LANES);
                *sum = s.fma(x, x, *sum);
            }
        }
        let total = s.sum(s.add(s.add(sum[0], sum[2]), s.add(sum[1], sum[3])));
        1.0 / (total / self.x.len() as f32 + self.eps).sqrt()
    }
}

/// Evaluates a row source as f32.
pub(crate) struct Evaluate<'a> {
    pub(crate) source: RowSource<'a>,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Evaluate<'_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.source.run(s, self);
    }
}

impl RowKernel for Evaluate<'_> {
    #[inline(always)]
    fn run<S: Simd, R: ActivationRow>(self, s: S, row: R) {
        for (i, out) in self.out.chunks_mut(LANES).enumerate() {
            let v = s.to_array(row.load(s, i * LANES));
            out.copy_from_slice(&v[..out.len()]);
        }
    }
}

/// Applies a function to a row. It is not a [`RowSource`], because each of these costs instructions
/// in every loop that reads a source.
pub(crate) struct MapRow<'a> {
    pub(crate) function: Function,
    pub(crate) x: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for MapRow<'_> {
    type Output = ();

    const MULTIPLIES_INTEGERS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (i, out) in self.out.chunks_mut(LANES).enumerate() {
            let v = s.to_array(map(s, self.function, load(s, self.x, i * LANES)));
            out.copy_from_slice(&v[..out.len()]);
        }
    }
}

/// Quantises one row into its blocks: `blocks[i · stride]` holds columns `256i..256i + 256`.
pub(crate) struct Quantize<'a> {
    pub(crate) source: RowSource<'a>,
    /// Elements per scale: 32 or 256.
    pub(crate) group: usize,
    /// True if [`Simd::BIAS`] is added to the stored bytes.
    pub(crate) biased: bool,
    pub(crate) blocks: &'a mut [ActBlock],
    pub(crate) stride: usize,
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.source.run(s, self);
    }
}

impl RowKernel for Quantize<'_> {
    #[inline(always)]
    fn run<S: Simd, R: ActivationRow>(self, s: S, row: R) {
        let columns = self.source.len();
        for (b, at) in (0..columns).step_by(ACT_BLOCK).enumerate() {
            let block = &mut self.blocks[b * self.stride];
            let mut x = [s.splat(0.0); ACT_BLOCK / LANES];
            for (i, x) in x.iter_mut().enumerate() {
                *x = row.load(s, at + i * LANES);
            }
            let per_group = self.group / LANES;
            for first in (0..x.len()).step_by(per_group) {
                let mut largest = s.splat(0.0);
                for x in &x[first..first + per_group] {
                    largest = s.max(s.abs(*x), largest);
                }
                let largest = s.max_lane(largest);
                block.scale[first * LANES / self.group] = largest / 127.0;
                let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
                let inverse = s.splat(inverse);
                for (i, x) in x[first..first + per_group].iter().enumerate() {
                    // At most 127: the product may round slightly above 127, but never to 128.
                    let q = s.to_i(s.mul(*x, inverse));
                    // SAFETY: 16 of the block's 256 bytes.
                    unsafe { s.store_i8(block.q[(first + i) * LANES..].as_mut_ptr(), q) };
                }
            }
            for (q, sums) in block.q.chunks_exact_mut(64).zip(block.sum_16.chunks_exact_mut(4)) {
                let q: *mut u8 = q.as_mut_ptr().cast();
                // SAFETY: 64 bytes.
                let bytes = unsafe { s.load_i(q) };
                let mut fours = [0_i32; LANES];
                let dot = s.dot_u7(s.splat_i(0), s.splat_i(0x0101_0101), bytes);
                // SAFETY: 64 bytes.
                unsafe { s.store_i(fours.as_mut_ptr().cast(), dot) };
                for (sum, fours) in sums.iter_mut().zip(fours.as_chunks::<4>().0) {
                    *sum = fours.iter().sum::<i32>() as i16;
                }
                if self.biased {
                    // SAFETY: 64 bytes.
                    unsafe { s.store_i(q, s.bias_bytes(bytes)) };
                }
            }
            for j in 0..8 {
                block.sum_32[j] = block.sum_16[2 * j] + block.sum_16[2 * j + 1];
                let scale = block.scale[if self.group == 32 { j } else { 0 }];
                block.sum[j] = scale * f32::from(block.sum_32[j]);
            }
        }
    }
}
