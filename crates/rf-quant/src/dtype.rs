//! The table of formats: ids, block geometry, sizes.

use std::fmt;

/// Element type of a tensor: a plain float or one of the block formats.
///
/// A quantised row is a sequence of blocks of [`block_elements`](Self::block_elements) values, each
/// stored in [`block_bytes`](Self::block_bytes) bytes.
///
/// | format | ggml id | values per block | bytes per block | bits per weight | F32 ratio |
/// |---|---|---|---|---|---|
/// | `F32` | 0 | 1 | 4 | 32 | 1.000 |
/// | `F16` | 1 | 1 | 2 | 16 | 2.000 |
/// | `BF16` | 30 | 1 | 2 | 16 | 2.000 |
/// | `Q4_0` | 2 | 32 | 18 | 4.5 | 7.111 |
/// | `Q4_1` | 3 | 32 | 20 | 5 | 6.400 |
/// | `Q5_0` | 6 | 32 | 22 | 5.5 | 5.818 |
/// | `Q5_1` | 7 | 32 | 24 | 6 | 5.333 |
/// | `Q8_0` | 8 | 32 | 34 | 8.5 | 3.765 |
/// | `Q2_K` | 10 | 256 | 84 | 2.625 | 12.190 |
/// | `Q3_K` | 11 | 256 | 110 | 3.4375 | 9.309 |
/// | `Q4_K` | 12 | 256 | 144 | 4.5 | 7.111 |
/// | `Q5_K` | 13 | 256 | 176 | 5.5 | 5.818 |
/// | `Q6_K` | 14 | 256 | 210 | 6.5625 | 4.876 |
/// | `MXFP4` | 39 | 32 | 17 | 4.25 | 7.529 |
/// | `MXFP6_E2M3` | none | 32 | 25 | 6.25 | 5.120 |
/// | `MXFP6_E3M2` | none | 32 | 25 | 6.25 | 5.120 |
///
/// The ratio is the true one, scales included: `Q4_0` is 7.111 times smaller than F32, not 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// 4 bits, one scale per 32.
    Q4_0,
    /// 4 bits, one scale and minimum per 32.
    Q4_1,
    /// 5 bits, one scale per 32.
    Q5_0,
    /// 5 bits, one scale and minimum per 32.
    Q5_1,
    /// 8 bits, one scale per 32.
    Q8_0,
    /// 2 bits, 4-bit scales and minima per 16 in a super-block of 256.
    Q2K,
    /// 3 bits, 6-bit scales per 16 in a super-block of 256.
    Q3K,
    /// 4 bits, 6-bit scales and minima per 32 in a super-block of 256.
    Q4K,
    /// 5 bits, 6-bit scales and minima per 32 in a super-block of 256.
    Q5K,
    /// 6 bits, 8-bit scales per 16 in a super-block of 256.
    Q6K,
    /// OCP microscaling: E2M1 elements, one E8M0 scale per 32.
    Mxfp4,
    /// OCP microscaling: E2M3 elements, one E8M0 scale per 32. Not a ggml type.
    Mxfp6E2M3,
    /// OCP microscaling: E3M2 elements, one E8M0 scale per 32. Not a ggml type.
    Mxfp6E3M2,
}

impl DType {
    /// Every format, floats first.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Mxfp4,
        Self::Mxfp6E2M3,
        Self::Mxfp6E3M2,
    ];

    /// The name that llama.cpp and users use, such as `Q4_K`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Mxfp4 => "MXFP4",
            Self::Mxfp6E2M3 => "MXFP6_E2M3",
            Self::Mxfp6E3M2 => "MXFP6_E3M2",
        }
    }

    /// Values per block.
    pub const fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
            _ => 32,
        }
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
            Self::Mxfp4 => 17,
            Self::Mxfp6E2M3 | Self::Mxfp6E3M2 => 25,
        }
    }

    /// The type id of ggml and GGUF; `None` for the MXFP6 formats, which ggml does not have.
    pub const fn ggml_id(self) -> Option<u32> {
        Some(match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q2K => 10,
            Self::Q3K => 11,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::Bf16 => 30,
            Self::Mxfp4 => 39,
            Self::Mxfp6E2M3 | Self::Mxfp6E3M2 => return None,
        })
    }

    /// Storage cost, block scales included.
    pub fn bits_per_weight(self) -> f64 {
        self.block_bytes() as f64 * 8.0 / self.block_elements() as f64
    }

    /// How many times smaller than F32, block scales included.
    pub fn compression_ratio(self) -> f64 {
        32.0 / self.bits_per_weight()
    }

    /// Bytes of a row of `columns` values; `None` when the row is no whole number of blocks or the
    /// size does not fit in `usize`.
    pub const fn row_bytes(self, columns: usize) -> Option<usize> {
        if !columns.is_multiple_of(self.block_elements()) {
            return None;
        }
        (columns / self.block_elements()).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the table in the documentation are the table that the code has.
    #[test]
    fn documented_table_is_true() {
        let source = include_str!("dtype.rs");
        let rows = source.lines().filter_map(|line| line.strip_prefix("/// | "));
        let rows: Vec<&str> = rows.filter(|row| !row.starts_with("format")).collect();
        assert_eq!(rows.len(), DType::ALL.len());
        for (row, dtype) in rows.iter().zip(DType::ALL) {
            let id = dtype.ggml_id().map_or("none".to_owned(), |id| id.to_string());
            let expected = format!(
                "`{dtype}` | {id} | {} | {} | {} | {:.3} |",
                dtype.block_elements(),
                dtype.block_bytes(),
                dtype.bits_per_weight(),
                dtype.compression_ratio()
            );
            assert_eq!(*row, expected);
        }
    }

    #[test]
    fn rows_of_partial_blocks_have_no_size() {
        assert_eq!(DType::Q4K.row_bytes(512), Some(288));
        assert_eq!(DType::Q4K.row_bytes(300), None);
        assert_eq!(DType::F32.row_bytes(usize::MAX), None);
    }
}
