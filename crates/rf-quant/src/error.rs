//! The error type.

use crate::DType;

/// Why a conversion was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The number of values is not a multiple of the block size.
    #[error(
        "{values} values are not a whole number of {dtype} blocks of {}",
        dtype.block_elements()
    )]
    PartialBlock {
        /// The block format.
        dtype: DType,
        /// The number of values.
        values: usize,
    },
    /// The length of the byte slice does not match the number of values.
    #[error("{values} values take {expected} bytes as {dtype}, not {actual}")]
    ByteLength {
        /// The block format.
        dtype: DType,
        /// The number of values.
        values: usize,
        /// The required number of bytes.
        expected: usize,
        /// The length of the byte slice.
        actual: usize,
    },
    /// A value is NaN or infinite, which a block format cannot store.
    #[error("value {index} is {value}, which {dtype} cannot store", value = if *nan { "NaN" } else { "infinite" })]
    NonFinite {
        /// The block format.
        dtype: DType,
        /// Index of the first such value.
        index: usize,
        /// True if the value is NaN, not an infinity.
        nan: bool,
    },
    /// There is not one importance per value.
    #[error("{values} values need {values} importances, not {actual}")]
    ImportanceLength {
        /// The number of values.
        values: usize,
        /// The number of importances.
        actual: usize,
    },
}
