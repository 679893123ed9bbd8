//! How far results may be from the reference, and why.

use rf_quant::DType;

use crate::backend::KvType;

/// The arithmetic of a case, which says how far its results may be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// One f32 operation, or none: the result is given to the bit.
    Exact,
    /// f32 arithmetic, in any order, with approximations of `exp` within a few ulp.
    Float,
    /// Activations as int8, a scale per 32.
    Int8Per32,
    /// Activations as int8, a scale per 256.
    Int8Per256,
    /// As [`Self::Int8Per32`], of the product of a gated unit.
    GatedInt8Per32,
    /// As [`Self::Int8Per256`], of the product of a gated unit.
    GatedInt8Per256,
    /// Attention over values that are rounded to f16 after f32 arithmetic.
    CacheF16,
    /// Attention over values that are rounded to int8 after f32 arithmetic.
    CacheInt8,
    /// Attention over values that are rounded to eight-bit floats after f32 arithmetic.
    CacheFp8,
    /// Whole layers in f32.
    FloatModel,
    /// Whole layers, activations of every product as int8.
    Int8Model,
}

impl Bound {
    /// The largest NMSE: `Σ(a − b)² / Σb²`.
    ///
    /// Quantising to int8 with the scale `m / 127`, where `m` is the largest magnitude of a group,
    /// adds a variance of `(m / 127)² / 12`. Relative to a variance of 1 that is `5.2e-6 m²`.
    pub fn nmse(self) -> f64 {
        match self {
            Self::Exact => 0.0,
            // A sum of 768 products in f32 is off by some 1e-7 of its size, squared 1e-14; room for
            // tanh near zero under a softcap, which cancels.
            Self::Float => 1e-10,
            // m ≈ 2.4 σ in 32 normal values: 3e-5.
            Self::Int8Per32 => 1e-4,
            // m ≈ 3 σ in 256 normal values: 5e-5.
            Self::Int8Per256 => 2e-4,
            // A product of two normal values has heavy tails: m ≈ 5 σ, 1.3e-4.
            Self::GatedInt8Per32 => 4e-4,
            // m ≈ 9 σ: 4e-4.
            Self::GatedInt8Per256 => 1.2e-3,
            // An ulp of f32 decides one rounding to f16 in some 2¹³, by 2⁻¹¹: 3e-11.
            Self::CacheF16 => 1e-9,
            // The same with a step of 1/127, one in some 10⁵: 1e-9 and a scale now and then.
            Self::CacheInt8 => 1e-7,
            // An ulp of f32 decides one rounding in some 2²⁰, so in most cases none of their 2·10⁴, else one:
            // an element off by a step, 2⁻³ of it. Random ones of these in each case give 2e-7 at the
            // median and 5e-5 at worst; two such are allowed. Values not rounded at all would be off by 2⁻⁵
            // everywhere, 7e-4.
            Self::CacheFp8 => 1.1e-4,
            // Two layers of the above, and nothing that amplifies.
            Self::FloatModel => 2e-9,
            // Four quantised products per layer and the head, errors adding up along the residual.
            Self::Int8Model => 1.5e-3,
        }
    }

    /// The largest error of one element, in units of the RMS of all: ten standard deviations. Where values
    /// are rounded after f32 arithmetic, errors are few and large: a key rounded the other way moves a score
    /// by an ulp of f16 (2⁻⁹ for keys of 2 to 4) times q, and a sharp softmax passes a quarter of that on.
    pub fn peak(self) -> f64 {
        match self {
            Self::CacheF16 => 1e-3,
            // As for NMSE: up to 0.4.
            Self::CacheFp8 => 0.5,
            other => 10.0 * other.nmse().sqrt(),
        }
    }

    /// The bound of a product with weights of a format.
    pub fn of_product(dtype: DType) -> Self {
        match dtype {
            DType::F32 | DType::F16 | DType::Bf16 => Self::Float,
            _ if dtype.block_elements() == 256 => Self::Int8Per256,
            _ => Self::Int8Per32,
        }
    }

    /// The same where a gated unit makes the operand.
    pub(super) fn of_gated_product(dtype: DType) -> Self {
        match Self::of_product(dtype) {
            Self::Int8Per32 => Self::GatedInt8Per32,
            Self::Int8Per256 => Self::GatedInt8Per256,
            other => other,
        }
    }

    /// The bound of attention over a cache of a type; `computed`: keys come out of f32 arithmetic.
    pub fn of_cache(dtype: KvType, computed: bool) -> Self {
        match dtype {
            // Equal numbers are rounded to equal codes, and codes are exact in every format that
            // kernels multiply in.
            KvType::Fp8 if computed => Self::CacheFp8,
            KvType::F32 | KvType::Fp8 => Self::Float,
            KvType::F16 => Self::CacheF16,
            KvType::Q8_0 => Self::CacheInt8,
        }
    }
}
