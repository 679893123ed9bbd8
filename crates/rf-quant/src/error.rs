//! What can be wrong with a request to convert.

use crate::DType;

/// Why a conversion was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The values do not fill whole blocks.
    #[error(
        "{values} values are no whole number of {dtype} blocks of {}",
        dtype.block_elements()
    )]
    PartialBlock {
        /// The block format.
        dtype: DType,
        /// Number of values given.
        values: usize,
    },
    /// The byte slice does not have the size that the number of values asks for.
    #[error("{values} values take {expected} bytes as {dtype}, not {actual}")]
    ByteLength {
        /// The block format.
        dtype: DType,
        /// Number of values given.
        values: usize,
        /// Bytes that these values take.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// A NaN or an infinity, which a block format cannot store.
    #[error("value {index} is {value}, which {dtype} cannot store", value = if *nan { "NaN" } else { "infinite" })]
    NonFinite {
        /// The block format.
        dtype: DType,
        /// Index of the first such value.
        index: usize,
        /// NaN, as opposed to an infinity.
        nan: bool,
    },
}
