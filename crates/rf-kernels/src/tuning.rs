//! The choices of a launch that depend on the card.
//!
//! The formulas of `params` choose the waves, tiles and divisions of a launch. A
//! [`Tuning`] replaces some of these choices by values that were measured on a card, see
//! [`tune`](crate::tune). A choice changes the order of sums, and [`Knob::PrefillBits`] the
//! rounding of operands; results stay within the bounds of the conformance cases with any choice.
//!
//! Some choices are in the code of a kernel. ROCm's compiler makes such a variant from the
//! embedded sources on the user's machine; NVIDIA's driver has no compiler for them.

use rf_graph::{KvType, OperandFormat};
use rf_quant::DType;
use twox_hash::XxHash3_128;

use crate::objects::Variant;

/// A choice of a launch, for weights or a KV cache of one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Knob {
    /// Waves of a workgroup of a matrix-vector multiplication.
    MatvecWaves,
    /// Waves of a workgroup of gate and up of one token.
    GluWaves,
    /// Workgroups per compute unit over which the keys of attention of one token are divided.
    DecodeGroups,
    /// Least number of keys of such a workgroup.
    DecodeKeys,
    /// Bits of the left operand of a matmul of more than 64 tokens: 8 for int8, 16 for f16.
    PrefillBits,
    /// Tokens of a tile of an f16 matmul of more than 64 tokens.
    PrefillTile,
    /// Workgroups per compute unit over which a matmul of 2 to 16 tokens is divided.
    SkinnyGroups16,
    /// Workgroups per compute unit over which a matmul of 17 to 32 tokens is divided.
    SkinnyGroups32,
    /// Workgroups per compute unit over which a matmul of 33 to 64 tokens is divided.
    SkinnyGroups64,
    /// The most tokens of a skinny matmul. More are an f16 matmul with tiles, if all weights of the
    /// model have this choice.
    SkinnyTokens,
    /// The most tokens of a matrix-vector multiplication on a card without matrix units. More are a
    /// matmul with tiles.
    MatvecTokens,
    /// Code of a matrix-vector multiplication: ten times the rows of a wave, plus the steps of
    /// weights that are in flight while the previous ones are multiplied.
    MatvecRowsSteps,
    /// Code of gate and up of one token: steps of weights, as above.
    GluSteps,
    /// Code of an f16 matmul of more than 64 tokens: 1 if the waves of a workgroup share a compute
    /// unit of AMD, 0 if they share two (a workgroup processor).
    PrefillCuMode,
}

/// Values of knobs for each format; a knob without a value is left to the formulas.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Values by format. A knob has [`BITS`] bits: 0 for no value, else 1 plus the index of the
    /// value in [`Knob::values`]. The lowest bits are in the first byte.
    values: [[u8; BYTES]; FORMATS],
}

/// Weight formats, then types of a KV cache.
const FORMATS: usize = DType::COUNT + KvType::ALL.len();

/// Bits of a value.
const BITS: usize = 3;

/// Bytes of the values of a format: fewer than eight, since choices are passed by value.
const BYTES: usize = (BITS * Knob::ALL.len()).div_ceil(8);

impl Knob {
    /// Every knob. The knobs that help most users come first.
    pub const ALL: [Self; 14] = [
        Self::MatvecWaves,
        Self::GluWaves,
        Self::DecodeGroups,
        Self::DecodeKeys,
        Self::PrefillBits,
        Self::PrefillTile,
        Self::SkinnyGroups16,
        Self::SkinnyGroups32,
        Self::SkinnyGroups64,
        Self::SkinnyTokens,
        Self::MatvecTokens,
        Self::MatvecRowsSteps,
        Self::GluSteps,
        Self::PrefillCuMode,
    ];

    /// The knobs whose values are in the code.
    const OF_CODE: [Self; 3] = [Self::MatvecRowsSteps, Self::GluSteps, Self::PrefillCuMode];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::MatvecWaves => "matvec_waves",
            Self::GluWaves => "glu_waves",
            Self::DecodeGroups => "decode_groups",
            Self::DecodeKeys => "decode_keys",
            Self::PrefillBits => "prefill_bits",
            Self::PrefillTile => "prefill_tile",
            Self::SkinnyGroups16 => "skinny_groups_16",
            Self::SkinnyGroups32 => "skinny_groups_32",
            Self::SkinnyGroups64 => "skinny_groups_64",
            Self::SkinnyTokens => "skinny_tokens",
            Self::MatvecTokens => "matvec_tokens",
            Self::MatvecRowsSteps => "matvec_rows_steps",
            Self::GluSteps => "glu_steps",
            Self::PrefillCuMode => "prefill_cu_mode",
        }
    }

    /// The knob with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|knob| knob.name() == name)
    }

    /// The values that kernels support.
    pub fn values(self) -> &'static [u32] {
        match self {
            Self::MatvecWaves => &[4, 8, 16],
            Self::GluWaves | Self::PrefillBits => &[8, 16],
            Self::DecodeGroups => &[2, 3, 4, 6, 8],
            Self::DecodeKeys => &[32, 64, 128, 256],
            Self::PrefillTile => &[128, 256],
            Self::SkinnyGroups16 | Self::SkinnyGroups32 | Self::SkinnyGroups64 => {
                &[1, 2, 3, 4, 6, 8]
            }
            Self::SkinnyTokens => &[64, 32, 16],
            Self::MatvecTokens => &[1, 2, 4, 8],
            Self::MatvecRowsSteps => &[20, 22, 24, 40, 42],
            Self::GluSteps => &[0, 2, 4],
            Self::PrefillCuMode => &[0, 1],
        }
    }

    /// Returns true if values are in the code of kernels, so that all but the default need ROCm's
    /// compiler.
    pub fn is_of_code(self) -> bool {
        Self::OF_CODE.contains(&self)
    }

    /// The code of a value on an AMD card; `None` for the embedded code.
    pub(crate) fn variant(self, value: u32) -> Option<Variant> {
        let (name, options): (_, &[_]) = match (self, value) {
            (Self::MatvecRowsSteps, 22) => ("rows2-steps2", &["-DRF_MATVEC_STEPS=2"]),
            (Self::MatvecRowsSteps, 24) => ("rows2-steps4", &["-DRF_MATVEC_STEPS=4"]),
            (Self::MatvecRowsSteps, 40) => ("rows4", &["-DRF_MATVEC_ROWS=4"]),
            (Self::MatvecRowsSteps, 42) => {
                ("rows4-steps2", &["-DRF_MATVEC_ROWS=4", "-DRF_MATVEC_STEPS=2"])
            }
            (Self::GluSteps, 2) => ("glu-steps2", &["-DRF_GLU_STEPS=2"]),
            (Self::GluSteps, 4) => ("glu-steps4", &["-DRF_GLU_STEPS=4"]),
            (Self::PrefillCuMode, 1) => ("cu-mode", &["-mcumode"]),
            _ => return None,
        };
        Some(Variant { name, options })
    }

    /// A kernel of the translation unit to which a choice applies.
    pub(crate) fn kernel(self, format: OperandFormat) -> Option<&'static str> {
        self.kernels(format)[0]
    }

    /// The kernels whose launches or code a choice changes, or one of their unit.
    pub(crate) fn kernels(self, format: OperandFormat) -> [Option<&'static str>; 2] {
        let also = match (self, format) {
            (Self::PrefillCuMode, OperandFormat::Weight(dtype)) => {
                Some(kernel_name!(dtype, "matmul_middle_", "_f16_f32"))
            }
            _ => None,
        };
        let first = match (self, format) {
            (Self::MatvecWaves | Self::MatvecRowsSteps, OperandFormat::Weight(dtype)) => {
                Some(kernel_name!(dtype, "matvec_", "_q8_f32_n1"))
            }
            (Self::MatvecTokens, OperandFormat::Weight(dtype)) => {
                Some(kernel_name!(dtype, "matvec_", "_q8_f32_n8"))
            }
            (Self::GluWaves | Self::GluSteps, OperandFormat::Weight(dtype)) => {
                Some(kernel_name!(dtype, "matvec_glu_", "_q8_n1"))
            }
            (
                Self::PrefillBits | Self::PrefillTile | Self::PrefillCuMode,
                OperandFormat::Weight(dtype),
            ) => Some(kernel_name!(dtype, "matmul_wide_", "_f16_f32")),
            (
                Self::SkinnyGroups16
                | Self::SkinnyGroups32
                | Self::SkinnyGroups64
                | Self::SkinnyTokens,
                OperandFormat::Weight(dtype),
            ) => Some(kernel_name!(dtype, "matmul_skinny64_", "_f16_f32")),
            (Self::DecodeGroups | Self::DecodeKeys, OperandFormat::Cache(kv)) => match kv {
                KvType::F32 => Some("attention_decode_f32_d128_g1"),
                KvType::F16 => Some("attention_decode_f16_d128_g1"),
                KvType::Q8_0 => Some("attention_decode_q8_0_d128_g1"),
                KvType::Fp8 => Some("attention_decode_fp8_d128_g1"),
                KvType::Q4_0 | KvType::Q5_0 => Some("attention_decode_packed_d128_g1"),
                _ => None,
            },
            _ => None,
        };
        [first, also]
    }
}

/// The format with the name that tables show, for weights or a KV cache: `Q4_K`, `f16`.
pub fn format_named(name: &str) -> Option<OperandFormat> {
    let weight =
        DType::ALL.into_iter().find(|dtype| dtype.name() == name).map(OperandFormat::Weight);
    weight
        .or_else(|| KvType::ALL.into_iter().find(|kv| kv.name() == name).map(OperandFormat::Cache))
}

impl Tuning {
    /// No choice.
    pub const NONE: Self = Self { values: [[0; BYTES]; FORMATS] };

    /// The value of a knob for a format.
    pub fn get(&self, knob: Knob, format: OperandFormat) -> Option<u32> {
        let number = (bits_of(self.values[position(format)?]) >> shift(knob)) & MASK;
        knob.values().get((number as usize).checked_sub(1)?).copied()
    }

    /// The code of a kernel on an AMD card; `None` for the embedded code.
    pub(crate) fn variant_of(&self, kernel: &str) -> Option<Variant> {
        self.variants().find(|(names, _)| names.contains(&Some(kernel))).map(|(_, code)| code)
    }

    /// The kernels with other code than the embedded one.
    fn variants(&self) -> impl Iterator<Item = ([Option<&'static str>; 2], Variant)> {
        let of_code = self.values().filter(|(knob, ..)| knob.is_of_code());
        of_code
            .filter_map(|(knob, format, value)| Some((knob.kernels(format), knob.variant(value)?)))
    }

    /// The values that are set.
    pub(crate) fn values(&self) -> impl Iterator<Item = (Knob, OperandFormat, u32)> {
        let weights = DType::ALL.map(OperandFormat::Weight).into_iter();
        let formats = weights.chain(KvType::ALL.map(OperandFormat::Cache));
        let of_formats = formats.zip(self.values).filter(|(_, values)| *values != [0; BYTES]);
        let all = of_formats.flat_map(|(format, _)| Knob::ALL.map(|knob| (knob, format)));
        all.filter_map(|(knob, format)| Some((knob, format, self.get(knob, format)?)))
    }

    /// Sets or removes the value of a knob for a format. Returns false if kernels do not support
    /// it.
    pub fn set(&mut self, knob: Knob, format: OperandFormat, value: Option<u32>) -> bool {
        let number = match value {
            None => Some(0),
            Some(value) => knob.values().iter().position(|v| *v == value).map(|at| at as u64 + 1),
        };
        let (Some(at), Some(number)) = (position(format), number) else { return false };
        let others = bits_of(self.values[at]) & !(MASK << shift(knob));
        let all = (others | number << shift(knob)).to_le_bytes();
        self.values[at].copy_from_slice(&all[..BYTES]);
        true
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.values().count()
    }

    /// A digest of all values, for records of measurements.
    pub fn digest(&self) -> u32 {
        XxHash3_128::oneshot(self.values.as_flattened()) as u32
    }

    /// Returns true if every choice is that of the formulas.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::NONE
    }
}

impl std::fmt::Debug for Tuning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |knob: Knob, format: OperandFormat| format!("{} {}", knob.name(), format.name());
        let entries = self.values().map(|(knob, format, value)| (name(knob, format), value));
        f.debug_map().entries(entries).finish()
    }
}

/// The bits of a value of the knob at the lowest place.
const MASK: u64 = (1 << BITS) - 1;

/// The place of a knob's value.
fn shift(knob: Knob) -> usize {
    BITS * knob as usize
}

/// The values of a format as one number.
fn bits_of(values: [u8; BYTES]) -> u64 {
    values.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

fn position(format: OperandFormat) -> Option<usize> {
    match format {
        OperandFormat::Weight(dtype) => DType::ALL.iter().position(|other| *other == dtype),
        OperandFormat::Cache(kv) => {
            let at = KvType::ALL.iter().position(|other| *other == kv);
            at.map(|at| DType::COUNT + at)
        }
        OperandFormat::Mixed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_one_knob_and_format() {
        let mut tuning = Tuning::default();
        let q4 = OperandFormat::Weight(DType::Q4K);
        assert!(tuning.set(Knob::MatvecWaves, q4, Some(16)));
        assert!(tuning.set(Knob::DecodeKeys, OperandFormat::Cache(KvType::Fp8), Some(256)));
        assert_eq!(tuning.get(Knob::MatvecWaves, q4), Some(16));
        assert_eq!(tuning.get(Knob::GluWaves, q4), None);
        assert_eq!(tuning.get(Knob::MatvecWaves, OperandFormat::Weight(DType::Q6K)), None);
        assert_eq!(tuning.len(), 2);
        assert_eq!(format!("{tuning:?}"), r#"{"matvec_waves Q4_K": 16, "decode_keys fp8": 256}"#);
        assert!(tuning.set(Knob::MatvecWaves, q4, None));
        assert_eq!(tuning.len(), 1);
    }

    #[test]
    fn values_that_kernels_do_not_support_are_refused() {
        let mut tuning = Tuning::default();
        for value in [0, 1, 7, 32, 1 << 16] {
            assert!(!tuning.set(Knob::MatvecWaves, OperandFormat::Weight(DType::Q4K), Some(value)));
        }
        assert!(!tuning.set(Knob::MatvecWaves, OperandFormat::Mixed, Some(16)));
        assert!(tuning.is_empty());
    }

    #[test]
    fn every_value_is_stored() {
        let mut tuning = Tuning::default();
        let format = OperandFormat::Weight(DType::Q8_0);
        for knob in Knob::ALL {
            for &value in knob.values() {
                assert!(tuning.set(knob, format, Some(value)));
                assert_eq!(tuning.get(knob, format), Some(value));
            }
        }
        assert_eq!(tuning.len(), Knob::ALL.len());
    }

    #[test]
    fn a_value_in_the_code_is_a_variant_of_its_kernels() {
        let mut tuning = Tuning::default();
        let q6 = OperandFormat::Weight(DType::Q6K);
        assert!(tuning.set(Knob::PrefillCuMode, q6, Some(1)));
        assert!(tuning.set(Knob::GluSteps, q6, Some(0)));
        assert!(tuning.set(Knob::MatvecWaves, q6, Some(16)));
        let name = |kernel| tuning.variant_of(kernel).map(|variant| variant.name);
        assert_eq!(name("matmul_middle_q6_k_f16_f32"), Some("cu-mode"));
        assert_eq!(name("matmul_wide_q6_k_f16_f32"), Some("cu-mode"));
        for same in ["matmul_wide_q4_k_f16_f32", "matvec_q6_k_q8_f32_n1", "matvec_glu_q6_k_q8_n1"] {
            assert_eq!(name(same), None, "{same}");
        }
        // Of the values of a knob one is the embedded code, and each other has its own name.
        for knob in Knob::ALL.into_iter().filter(|knob| knob.is_of_code()) {
            let variants = knob.values().iter().filter_map(|value| knob.variant(*value));
            let mut names: Vec<_> = variants.map(|variant| variant.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), knob.values().len() - 1, "{}", knob.name());
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for knob in Knob::ALL {
            assert_eq!(Knob::named(knob.name()), Some(knob));
        }
        assert_eq!(Knob::named("waves"), None);
        for dtype in DType::ALL {
            assert_eq!(format_named(dtype.name()), Some(OperandFormat::Weight(dtype)));
        }
        for kv in KvType::ALL {
            assert_eq!(format_named(kv.name()), Some(OperandFormat::Cache(kv)));
        }
        assert_eq!(format_named("Q4"), None);
    }
}
