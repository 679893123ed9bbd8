//! Error bounds: the allowed deviation of results from the reference, with its derivation.

use rf_graph::KvType;
use rf_quant::DType;

/// The arithmetic of a case, which determines the error bound of its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorBound {
    /// One f32 operation, or none: the result is exact to the bit.
    Exact,
    /// f32 arithmetic in any order, with approximations of `exp` within a few ulp.
    Float,
    /// Activations as int8, one scale per 32 elements.
    Int8Per32,
    /// Activations as int8, one scale per 256 elements.
    Int8Per256,
    /// As [`Self::Int8Per32`], where the activations are the output of a gated linear unit.
    GatedInt8Per32,
    /// As [`Self::Int8Per256`], where the activations are the output of a gated linear unit.
    GatedInt8Per256,
    /// Attention over values that are rounded to f16 after f32 arithmetic.
    CacheF16,
    /// Attention over values that are rounded to int8 after f32 arithmetic.
    CacheInt8,
    /// Attention over values that are rounded to eight-bit floats after f32 arithmetic.
    CacheFp8,
    /// Attention over values that are rounded to four or five bits after f32 arithmetic.
    CacheInt4,
    /// A matmul or attention whose left operand is rounded to f16, otherwise as [`Self::Float`].
    HalfOperands,
    /// Whole layers in f32.
    FloatModel,
    /// Whole layers in f32, with the left operand of every matmul and of attention rounded to f16.
    HalfModel,
    /// Whole layers with int8 activations in every matmul.
    Int8Model,
}

impl ErrorBound {
    /// The largest NMSE: `Σ(a − b)² / Σb²`.
    ///
    /// Quantising to int8 with the scale `m / 127`, where `m` is the largest magnitude of a group,
    /// adds a variance of `(m / 127)² / 12`. Relative to a variance of 1 that is `5.2e-6 m²`.
    pub fn nmse(self) -> f64 {
        match self {
            Self::Exact => 0.0,
            // A sum of 768 terms in f32 has an error of some 1e-7 of its size, squared 1e-14. The
            // rest is room for tanh near zero under a softcap, where terms cancel.
            Self::Float => 1e-10,
            // m ≈ 2.4 σ in 32 normal values: 3e-5.
            Self::Int8Per32 => 1e-4,
            // m ≈ 3 σ in 256 normal values: 5e-5.
            Self::Int8Per256 => 2e-4,
            // The product of two normal values has heavy tails: m ≈ 5 σ, 1.3e-4.
            Self::GatedInt8Per32 => 4e-4,
            // m ≈ 9 σ: 4e-4.
            Self::GatedInt8Per256 => 1.2e-3,
            // An ulp of f32 decides one rounding to f16 in some 2¹³, by 2⁻¹¹: 3e-11.
            Self::CacheF16 => 1e-9,
            // The same with a step of 1/127, one in some 10⁵: 1e-9, and occasionally a scale.
            Self::CacheInt8 => 1e-7,
            // An ulp of f32 decides one rounding in some 2²⁰. A case has 2·10⁴ of them, so in most
            // cases none differs, else one: an element is off by a step, 2⁻³ of it. One random
            // element per case gives 2e-7 at the median and 5e-5 at worst; two are allowed. Values
            // without any rounding would be off by 2⁻⁵ everywhere, 7e-4.
            Self::CacheFp8 => 1.1e-4,
            // As `CacheFp8`, with a step of an eighth of the largest of 32 elements, 2.4 times as
            // much. Values without any rounding would be off by a 12th of the square of a step
            // everywhere, 7e-3.
            Self::CacheInt4 => 6e-4,
            // Rounding to f16 is off by up to 2⁻¹¹ of a value, 4e-8 at the mean of the squares for
            // each operand. Attention rounds queries, keys, weights and values: 1.6e-7.
            Self::HalfOperands => 4e-7,
            // Two layers of f32 arithmetic, without an amplification of errors.
            Self::FloatModel => 2e-9,
            // Four such matmuls per layer; errors add up along the residual.
            Self::HalfModel => 2e-6,
            // Four quantised matmuls per layer and the head; errors add up along the residual.
            Self::Int8Model => 1.5e-3,
        }
    }

    /// The bound for a backend that rounds the left operands of matmuls and attention to f16.
    #[must_use]
    pub fn with_f16_operands(self) -> Self {
        match self {
            Self::Float | Self::CacheF16 | Self::CacheInt8 => Self::HalfOperands,
            Self::FloatModel => Self::HalfModel,
            other => other,
        }
    }

    /// The largest error of one element, in units of the RMS of all: ten standard deviations.
    ///
    /// Where values are rounded after f32 arithmetic, errors are few and large: a key rounded the
    /// other way moves a score by an ulp of f16 (2⁻⁹ for keys of 2 to 4) times q, and a sharp
    /// softmax changes by a quarter of that.
    pub fn peak(self) -> f64 {
        match self {
            Self::CacheF16 => 1e-3,
            // As for NMSE: up to 0.4.
            Self::CacheFp8 => 0.5,
            Self::CacheInt4 => 1.2,
            other => 10.0 * other.nmse().sqrt(),
        }
    }

    /// The bound of a matmul with weights of a format.
    pub(super) fn of_matmul(dtype: DType) -> Self {
        match dtype {
            DType::F32 | DType::F16 | DType::Bf16 => Self::Float,
            _ if dtype.block_elements() == 256 => Self::Int8Per256,
            _ => Self::Int8Per32,
        }
    }

    /// The bound of a matmul whose operand is the output of a gated linear unit.
    pub(super) fn of_gated_matmul(dtype: DType) -> Self {
        match Self::of_matmul(dtype) {
            Self::Int8Per32 => Self::GatedInt8Per32,
            Self::Int8Per256 => Self::GatedInt8Per256,
            other => other,
        }
    }

    /// The bound of attention over a cache of a type. `computed` means that keys are the result of
    /// f32 arithmetic.
    pub(super) fn of_cache(dtype: KvType, computed: bool) -> Self {
        match dtype {
            // Equal numbers are rounded to equal codes, and codes are exact in every format that
            // kernels multiply in.
            KvType::Fp8 if computed => Self::CacheFp8,
            KvType::F16 => Self::CacheF16,
            KvType::Q8_0 => Self::CacheInt8,
            // The transform is f32 arithmetic.
            KvType::Q4_0 | KvType::Q5_0 => Self::CacheInt4,
            _ => Self::Float,
        }
    }
}
