//! Parameters and launches. `kernels/include/rf/params/weight.h` is generated from the table.

use super::Address;
use super::table::params;

params! {
    /// The planes of a packed matrix `[rows, columns]`, each stored row by row.
    ///
    /// After its last row, every plane has space for 8 more rows and at least 528 bytes: kernels
    /// may read it and ignore its contents. `kernels/include/rf/formats.h` documents the planes of
    /// each format. F32, F16 and BF16 have only `low`.
    struct Weight {
        /// The low bits of every block of 32 columns: 16 bytes, fewer below four bits.
        low: *const void,
        /// The remaining bits, or the second half of `Q8_0`.
        high: *const void,
        /// Scales per block of 32 columns.
        scale: *const void,
        /// Scales per 256 columns (K-quants and codebook formats), 128 (`Q1_0`) or 64 (`Q2_0`).
        super_scale: *const void,
    }

    /// Rows of int8 activations with their scales; `columns` is a multiple of 32. A block of 32
    /// columns has a scale d = m / 127, where m is its largest magnitude, and 32 values q with x ≈
    /// d·q.
    struct Activations {
        /// `[rows][2][columns / 32][16]`: the first 16 of every block, then the last 16 of every
        /// block.
        q: *mut i8,
        /// `[rows][columns / 32][2]`: d and d·Σq.
        meta: *mut f32,
    }

    /// Rows of activations as f16, with a scale per row: x = scale · half. `columns` is a multiple
    /// of 32. The columns of a block of 32 are in the order in which weights are unpacked
    /// (`kernels/include/rf/halves.h`), or, with [`natural`](Self::natural), in their own.
    struct Halves {
        /// `[rows, columns]` f16. The lowest bit is set if the columns are in their own order.
        x: *mut void,
        /// `[rows]`.
        scale: *mut f32,
    }
}

impl Halves {
    const NATURAL: Address = 1;

    /// The same with columns in their own order, for weights of 16 bits, which `wgmma` takes as
    /// they are stored.
    #[must_use]
    pub(crate) fn natural(self) -> Self {
        Self { x: self.x | Self::NATURAL, ..self }
    }

    /// Returns true if the columns are in their own order.
    pub(crate) fn is_natural(self) -> bool {
        self.x & Self::NATURAL != 0
    }

    /// Removes the mark of the order, for kernels that read one order alone.
    #[must_use]
    pub(super) fn untagged(self) -> Self {
        Self { x: self.x & !Self::NATURAL, ..self }
    }

    /// The activations from a row of `columns` columns on.
    #[must_use]
    pub(crate) fn at_row(self, row: usize, columns: usize) -> Self {
        let scale = row * size_of::<f32>();
        Self { x: self.x + (2 * row * columns) as Address, scale: self.scale + scale as Address }
    }
}

impl Activations {
    /// The activations from a row of `columns` columns on.
    #[must_use]
    pub(crate) fn at_row(self, row: usize, columns: usize) -> Self {
        let meta = row * columns / 16 * size_of::<f32>();
        Self { q: self.q + (row * columns) as Address, meta: self.meta + meta as Address }
    }
}
