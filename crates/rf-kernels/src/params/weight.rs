//! `kernels/include/rf/params/weight.h`.

use bytemuck::{Pod, Zeroable};

use super::Address;

/// A matrix in planes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Weight {
    /// What every block of 32 columns has most of.
    pub low: Address,
    /// The bits above those.
    pub high: Address,
    /// Per block of 32 columns.
    pub scale: Address,
    /// Per 256 columns.
    pub super_scale: Address,
}

/// Rows of activations as int8.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Activations {
    /// `[rows][2][columns / 32][16]` int8.
    pub q: Address,
    /// `[rows][columns / 32][2]` f32: the scale, and the scale times the sum.
    pub meta: Address,
}
