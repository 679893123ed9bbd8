//! The cost of an op, and the arithmetic throughput that bounds it.

use std::ops::{Add, AddAssign};

/// The minimum work of an op for a batch: memory traffic and arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCost {
    /// Bytes read and written: weights in their file format, the visible part of the KV cache, and
    /// values as f32. Each byte counts once, as if a cache served every repeated read.
    pub bytes: u64,
    /// Arithmetic in f32, which backends may replace by f16. A multiply-add counts as two
    /// operations, and so does an activation function with its multiplication.
    pub f32_operations: u64,
    /// Dot products of int8, from matmuls with quantised weights. A multiply-add counts as two
    /// operations.
    pub int8_operations: u64,
}

impl OpCost {
    /// All arithmetic operations.
    pub fn operations(self) -> u64 {
        self.f32_operations + self.int8_operations
    }

    /// This cost divided by a number of equal parts, rounded down.
    #[must_use]
    pub fn per(self, parts: u64) -> Self {
        let parts = parts.max(1);
        Self {
            bytes: self.bytes / parts,
            f32_operations: self.f32_operations / parts,
            int8_operations: self.int8_operations / parts,
        }
    }
}

impl Add for OpCost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            f32_operations: self.f32_operations + other.f32_operations,
            int8_operations: self.int8_operations + other.int8_operations,
        }
    }
}

impl AddAssign for OpCost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for OpCost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// The arithmetic throughput of a device; `None` where unknown. A multiply-add counts as two
/// operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// Floating-point arithmetic, in operations per second. On a GPU this is f16 on matrix units
    /// with f32 sums.
    pub f32_operations_per_s: Option<f64>,
    /// Dot products of int8, in operations per second.
    pub int8_operations_per_s: Option<f64>,
}
