//! Types of tensors: the formats of rf-quant and the other types of ggml.

use std::fmt;

use rf_quant::DType;

/// The metadata key that a file with MXFP6 tensors must have, with the u32 value 1.
///
/// ggml has no MXFP6 type and the OCP specification defines no packing, so such files are an
/// extension of this project. Other programs find an unknown type id far above ggml's own and
/// refuse the file. Value 1 is the packing that rf-quant documents: a scale byte, then 24 bytes of
/// 6-bit elements.
pub const MXFP6_LAYOUT_KEY: &str = "rocmforge.mxfp6.layout";

/// The only value of [`MXFP6_LAYOUT_KEY`] so far.
pub(crate) const MXFP6_LAYOUT: u32 = 1;

/// "RF" in the upper half, far above the ids of ggml, which count up from 0.
const PRIVATE_TYPE_IDS: u32 = 0x5246_0000;
const MXFP6_E2M3_ID: u32 = PRIVATE_TYPE_IDS + 1;
const MXFP6_E3M2_ID: u32 = PRIVATE_TYPE_IDS + 2;

/// The type of a tensor in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// A format of rf-quant.
    Known(DType),
    /// Any other type: of ggml, removed from ggml, or unknown.
    Unsupported {
        /// The id in the file.
        id: u32,
    },
}

impl TensorType {
    /// The type with this id in a GGUF file.
    pub fn from_id(id: u32) -> Self {
        match DType::ALL.into_iter().find(|&dtype| type_id(dtype) == Some(id)) {
            Some(dtype) => Self::Known(dtype),
            None => Self::Unsupported { id },
        }
    }

    /// The format, if rf-quant supports it.
    pub const fn dtype(self) -> Option<DType> {
        match self {
            Self::Known(dtype) => Some(dtype),
            Self::Unsupported { .. } => None,
        }
    }

    /// The name of the type in ggml. `None` for unknown types.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Known(dtype) => Some(dtype.name()),
            Self::Unsupported { id } => ggml_type(id).map(|ty| ty.name),
        }
    }

    /// Values and bytes per block, if known.
    pub(crate) fn block(self) -> Option<(u64, u64)> {
        match self {
            Self::Known(dtype) => Some((dtype.block_elements() as u64, dtype.block_bytes() as u64)),
            Self::Unsupported { id } => ggml_type(id)?.block,
        }
    }

    pub(crate) const fn is_mxfp6(self) -> bool {
        matches!(self, Self::Known(DType::Mxfp6E2M3 | DType::Mxfp6E3M2))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.name()) {
            (Self::Known(_), Some(name)) => f.pad(name),
            (Self::Unsupported { id }, Some(name)) => f.pad(&format!("{name} ({id})")),
            (Self::Unsupported { id }, None) => f.pad(&format!("unknown ({id})")),
            (Self::Known(dtype), None) => dtype.fmt(f),
        }
    }
}

/// The id of a format in GGUF files: that of ggml, or a private one for MXFP6 (see
/// [`MXFP6_LAYOUT_KEY`]).
pub const fn type_id(dtype: DType) -> Option<u32> {
    match dtype {
        DType::Mxfp6E2M3 => Some(MXFP6_E2M3_ID),
        DType::Mxfp6E3M2 => Some(MXFP6_E3M2_ID),
        _ => dtype.ggml_id(),
    }
}

/// A type of ggml, supported or not.
struct GgmlType {
    id: u32,
    name: &'static str,
    /// Values and bytes per block.
    block: Option<(u64, u64)>,
}

fn ggml_type(id: u32) -> Option<&'static GgmlType> {
    GGML_TYPES.iter().find(|ty| ty.id == id)
}

/// Every type of ggml, so that errors name an unsupported type and `info` computes its size. Types
/// that ggml has removed keep their name and have no size.
#[rustfmt::skip]
const GGML_TYPES: &[GgmlType] = &[
    GgmlType { id: 0, name: "F32", block: Some((1, 4)) },
    GgmlType { id: 1, name: "F16", block: Some((1, 2)) },
    GgmlType { id: 2, name: "Q4_0", block: Some((32, 18)) },
    GgmlType { id: 3, name: "Q4_1", block: Some((32, 20)) },
    GgmlType { id: 4, name: "Q4_2", block: None },
    GgmlType { id: 5, name: "Q4_3", block: None },
    GgmlType { id: 6, name: "Q5_0", block: Some((32, 22)) },
    GgmlType { id: 7, name: "Q5_1", block: Some((32, 24)) },
    GgmlType { id: 8, name: "Q8_0", block: Some((32, 34)) },
    GgmlType { id: 9, name: "Q8_1", block: Some((32, 36)) },
    GgmlType { id: 10, name: "Q2_K", block: Some((256, 84)) },
    GgmlType { id: 11, name: "Q3_K", block: Some((256, 110)) },
    GgmlType { id: 12, name: "Q4_K", block: Some((256, 144)) },
    GgmlType { id: 13, name: "Q5_K", block: Some((256, 176)) },
    GgmlType { id: 14, name: "Q6_K", block: Some((256, 210)) },
    GgmlType { id: 15, name: "Q8_K", block: Some((256, 292)) },
    GgmlType { id: 16, name: "IQ2_XXS", block: Some((256, 66)) },
    GgmlType { id: 17, name: "IQ2_XS", block: Some((256, 74)) },
    GgmlType { id: 18, name: "IQ3_XXS", block: Some((256, 98)) },
    GgmlType { id: 19, name: "IQ1_S", block: Some((256, 50)) },
    GgmlType { id: 20, name: "IQ4_NL", block: Some((32, 18)) },
    GgmlType { id: 21, name: "IQ3_S", block: Some((256, 110)) },
    GgmlType { id: 22, name: "IQ2_S", block: Some((256, 82)) },
    GgmlType { id: 23, name: "IQ4_XS", block: Some((256, 136)) },
    GgmlType { id: 24, name: "I8", block: Some((1, 1)) },
    GgmlType { id: 25, name: "I16", block: Some((1, 2)) },
    GgmlType { id: 26, name: "I32", block: Some((1, 4)) },
    GgmlType { id: 27, name: "I64", block: Some((1, 8)) },
    GgmlType { id: 28, name: "F64", block: Some((1, 8)) },
    GgmlType { id: 29, name: "IQ1_M", block: Some((256, 56)) },
    GgmlType { id: 30, name: "BF16", block: Some((1, 2)) },
    GgmlType { id: 31, name: "Q4_0_4_4", block: None },
    GgmlType { id: 32, name: "Q4_0_4_8", block: None },
    GgmlType { id: 33, name: "Q4_0_8_8", block: None },
    GgmlType { id: 34, name: "TQ1_0", block: Some((256, 54)) },
    GgmlType { id: 35, name: "TQ2_0", block: Some((256, 66)) },
    GgmlType { id: 36, name: "IQ4_NL_4_4", block: None },
    GgmlType { id: 37, name: "IQ4_NL_4_8", block: None },
    GgmlType { id: 38, name: "IQ4_NL_8_8", block: None },
    GgmlType { id: 39, name: "MXFP4", block: Some((32, 17)) },
    GgmlType { id: 40, name: "NVFP4", block: Some((64, 36)) },
    GgmlType { id: 41, name: "Q1_0", block: Some((128, 18)) },
    GgmlType { id: 42, name: "Q2_0", block: Some((64, 18)) },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The table is written down from ggml, independently of rf-quant.
    #[test]
    fn formats_of_rf_quant_have_the_ids_and_blocks_of_ggml() {
        for dtype in DType::ALL {
            let Some(id) = dtype.ggml_id() else { continue };
            let ty = ggml_type(id).unwrap();
            let block = (dtype.block_elements() as u64, dtype.block_bytes() as u64);
            assert_eq!((ty.name, ty.block), (dtype.name(), Some(block)));
        }
    }
}
