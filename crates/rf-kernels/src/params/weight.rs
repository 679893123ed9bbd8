//! Twin of `kernels/include/rf/params/weight.h`.

use bytemuck::{Pod, Zeroable};

use super::Address;

/// The planes of a packed matrix.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Weight {
    /// Low bits of the codes, per block of 32 columns.
    pub low: Address,
    /// High bits of the codes.
    pub high: Address,
    /// Scales per block of 32 columns.
    pub scale: Address,
    /// Scales per 256 columns.
    pub super_scale: Address,
}

/// Rows of int8 activations with their scales.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Activations {
    /// `[rows][2][columns / 32][16]` int8.
    pub q: Address,
    /// `[rows][columns / 32][2]` f32: the scale, and the scale times the sum.
    pub meta: Address,
}

/// Rows of activations as f16, in the order of `kernels/include/rf/halves.h`, with a scale per row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Halves {
    /// `[rows, columns]` f16.
    pub x: Address,
    /// `[rows]` f32.
    pub scale: Address,
}

impl Halves {
    /// The activations from a row of `columns` columns on.
    #[must_use]
    pub fn from_row(self, row: usize, columns: usize) -> Self {
        let scale = row * size_of::<f32>();
        Self { x: self.x + (2 * row * columns) as Address, scale: self.scale + scale as Address }
    }
}

impl Activations {
    /// The activations from a row of `columns` columns on.
    #[must_use]
    pub fn from_row(self, row: usize, columns: usize) -> Self {
        let meta = row * columns / 16 * size_of::<f32>();
        Self { q: self.q + (row * columns) as Address, meta: self.meta + meta as Address }
    }
}
