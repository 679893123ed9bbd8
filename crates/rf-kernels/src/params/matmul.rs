//! `kernels/include/rf/params/matmul.h`.

use bytemuck::{Pod, Zeroable};

use super::{Activations, Address, Weight};

/// One weight matrix of a product.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Projection {
    /// `[rows, columns]`.
    pub weight: Weight,
    /// `[rows]` f32 or null.
    pub bias: Address,
    /// `[tokens, rows]` f32.
    pub out: Address,
    /// Output features.
    pub rows: u32,
    /// Place of the format in `DType::ALL`.
    pub format: u32,
}

/// `outᵢ = x · Wᵢᵀ (+ biasᵢ) (+ residual)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MatmulParams {
    /// The first [`num_projections`](Self::num_projections) count.
    pub projections: [Projection; 3],
    /// `[tokens, columns]`, for quantised formats.
    pub x_q8: Activations,
    /// `[tokens, columns]`, for float formats.
    pub x_f32: Address,
    /// `[tokens, rows]` or null; with one projection only.
    pub residual: Address,
    /// 1 to 3.
    pub num_projections: u32,
    /// Input features.
    pub columns: u32,
    /// Rows of x.
    pub tokens: u32,
    /// Zero.
    pub reserved: u32,
}
