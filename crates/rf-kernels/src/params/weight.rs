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

/// Rows of activations as f16, with a scale per row. The columns of a block of 32 are in the order
/// in which weights are unpacked (`kernels/include/rf/halves.h`), or, with [`natural`], in their
/// own.
///
/// [`natural`]: Self::natural
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Halves {
    /// `[rows, columns]` f16. The lowest bit is set if the columns are in their own order.
    pub x: Address,
    /// `[rows]` f32.
    pub scale: Address,
}

impl Halves {
    const NATURAL: Address = 1;

    /// The same with columns in their own order, for weights of 16 bits, which `wgmma` takes as
    /// they are stored.
    #[must_use]
    pub fn natural(self) -> Self {
        Self { x: self.x | Self::NATURAL, ..self }
    }

    /// Returns true if the columns are in their own order.
    pub fn is_natural(self) -> bool {
        self.x & Self::NATURAL != 0
    }

    /// Removes the mark of the order, for kernels that read one order alone.
    #[must_use]
    pub(super) fn untagged(self) -> Self {
        Self { x: self.x & !Self::NATURAL, ..self }
    }

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
