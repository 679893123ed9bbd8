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

impl Activations {
    /// The activations from a row of `columns` columns on.
    #[must_use]
    pub fn from_row(self, row: usize, columns: usize) -> Self {
        let meta = row * columns / 16 * size_of::<f32>();
        Self { q: self.q + (row * columns) as Address, meta: self.meta + meta as Address }
    }
}
