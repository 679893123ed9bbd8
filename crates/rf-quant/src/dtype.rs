//! [`DType`] and [`Family`], derived from the table of formats.

use std::fmt;

use crate::for_each_format;

/// A group of formats with the same structure of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Plain floats: blocks of one value.
    Float,
    /// Blocks of 32 values with one f16 scale; of 64 and 128 values below three bits.
    Block32,
    /// Super-blocks of 256 values. Most have integer scales per 16 or 32.
    KQuant,
    /// Super-blocks of 256 values whose integers are points of a codebook, with integer scales per
    /// 16 or 32.
    Codebook,
    /// Small floats with a shared scale: the OCP microscaling formats, blocks of 32 values with one
    /// power-of-two scale, and NVFP4, blocks of 64 values with an eight-bit float per 16.
    Microscaling,
}

macro_rules! define_dtype {
    ([] $({
        $number:literal $variant:ident $name:literal $kernel:literal $family:ident
        $codec:ident ($($ggml_id:tt)*) $elements:literal $bytes:literal $doc:literal
    })*) => {
        /// Element type of a tensor: a plain float or one of the block formats.
        ///
        /// A quantised row is a sequence of blocks of [`block_elements`](Self::block_elements)
        /// values, each stored in [`block_bytes`](Self::block_bytes) bytes.
        ///
        /// | format | ggml id | values per block | bytes per block |
        /// |---|---|---|---|
        $(#[doc = concat!(
            "| `", $name, "` | `", stringify!($($ggml_id)*), "` | ", $elements, " | ", $bytes, " |"
        )])*
        ///
        /// Variants are the names in camel case, as rustc's lint `non_camel_case_types` demands:
        /// `Q4_K` is `Q4K`. An underscore remains between two digits (`Q4_0`), which would be
        /// another number without it. [`name`](Self::name) returns the name of llama.cpp.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType {
            $(#[doc = $doc] $variant,)*
        }

        impl DType {
            /// Every format, floats first. A format stays at its position.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant),*];

            /// The number of formats.
            pub const COUNT: usize = [$($number),*].len();

            /// The name that llama.cpp and users use, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The structure of the blocks.
            pub const fn family(self) -> Family {
                match self {
                    $(Self::$variant => Family::$family,)*
                }
            }

            /// Values per block.
            pub const fn block_elements(self) -> usize {
                match self {
                    $(Self::$variant => $elements,)*
                }
            }

            /// Bytes per block.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $(Self::$variant => $bytes,)*
                }
            }

            /// The type id of ggml and GGUF; `None` for formats that ggml does not have.
            pub const fn ggml_id(self) -> Option<u32> {
                match self {
                    $(Self::$variant => $($ggml_id)*,)*
                }
            }
        }

        // The numbers of the table are positions.
        const _: () = {
            $(assert!(DType::$variant as u32 == $number);)*
        };
    };
}

for_each_format!(define_dtype);

impl DType {
    /// Returns true if the values are plain floats.
    pub const fn is_float(self) -> bool {
        matches!(self.family(), Family::Float)
    }

    /// Bytes of a row of `columns` values. `None` when the row is not a whole number of blocks or
    /// the size does not fit in `usize`.
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

    #[test]
    fn names_are_unique() {
        for (index, dtype) in DType::ALL.iter().enumerate() {
            let first = DType::ALL.iter().position(|other| other.name() == dtype.name());
            assert_eq!(first, Some(index), "{dtype}");
        }
    }

    #[test]
    fn rows_of_partial_blocks_have_no_size() {
        assert_eq!(DType::Q4K.row_bytes(512), Some(288));
        assert_eq!(DType::Q4K.row_bytes(300), None);
        assert_eq!(DType::F32.row_bytes(usize::MAX), None);
    }
}
