//! `kernels/include/rf/params/matvec.h`.

use bytemuck::{Pod, Zeroable};

use super::{Activations, Address, Projection, Weight};

/// A product with few tokens; with a route, of the experts of a mixture.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MatvecParams {
    /// The first [`num_projections`](Self::num_projections) count. With a route one: the experts' matrices
    /// one below the other, `rows` those of one expert.
    pub projections: [Projection; 3],
    /// `[tokens, columns]`, for quantised formats.
    pub x_q8: Activations,
    /// `[tokens, columns]`, for float formats.
    pub x_f32: Address,
    /// `[tokens, rows]` or null; with one projection only.
    pub residual: Address,
    /// `[tokens, 2 · used]` f32 or null.
    pub route: Address,
    /// 1 to 3.
    pub num_projections: u32,
    /// Input features.
    pub columns: u32,
    /// Rows of x: 1 to 8; with a route any number.
    pub tokens: u32,
    /// Experts per token.
    pub used: u32,
    /// With a route: x has one row per token, not per slot.
    pub shared_x: u32,
    /// Zero.
    pub reserved: u32,
}

/// `activation(x · Gᵀ) · (x · Uᵀ)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MatvecGluParams {
    /// `[rows, columns]`.
    pub gate: Weight,
    /// `[rows, columns]`.
    pub up: Weight,
    /// `[tokens, columns]`, for quantised formats.
    pub x_q8: Activations,
    /// `[tokens, columns]`, for float formats.
    pub x_f32: Address,
    /// `[tokens, rows]` or null.
    pub out_f32: Address,
    /// `[tokens, rows]` or null; then `rows` is a multiple of 32.
    pub out_q8: Activations,
    /// Output features.
    pub rows: u32,
    /// Input features.
    pub columns: u32,
    /// 1 to 8.
    pub tokens: u32,
    /// 0 `SiLU`, 1 GELU in the tanh form.
    pub activation: u32,
}
