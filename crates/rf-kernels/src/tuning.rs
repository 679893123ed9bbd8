//! The choices of a launch that depend on the card.
//!
//! The formulas of [`params`](crate::params) choose the waves, tiles and divisions of a launch. A
//! [`Tuning`] replaces some of these choices by values that were measured on a card, see
//! [`tune`](crate::tune). A choice changes the order of sums, and [`Knob::PrefillBits`] the
//! rounding of operands; results stay within the bounds of the conformance cases with any choice.

use rf_graph::KvType;
use rf_graph::case::Format;
use rf_quant::DType;
use twox_hash::XxHash3_128;

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
}

/// Values of knobs for each format; a knob without a value is left to the formulas.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// By format: [`BITS`] bits for each knob, 0 for no value, else 1 and the index of the value in
    /// [`Knob::values`].
    values: [u32; FORMATS],
}

/// Weight formats, then types of a KV cache.
const FORMATS: usize = DType::COUNT + KvType::ALL.len();

/// Bits of a value.
const BITS: usize = 3;

const _: () = assert!(BITS * Knob::ALL.len() <= u32::BITS as usize);

impl Knob {
    /// All knobs. Those that most users profit from come first.
    pub const ALL: [Self; 9] = [
        Self::MatvecWaves,
        Self::GluWaves,
        Self::DecodeGroups,
        Self::DecodeKeys,
        Self::PrefillBits,
        Self::PrefillTile,
        Self::SkinnyGroups16,
        Self::SkinnyGroups32,
        Self::SkinnyGroups64,
    ];

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
        }
    }

    /// A kernel of the translation unit to which a choice applies.
    pub(crate) fn kernel(self, format: Format) -> Option<&'static str> {
        match (self, format) {
            (Self::MatvecWaves, Format::Weight(dtype)) => {
                Some(kernel_name!(dtype, "matvec_", "_q8_f32_n1"))
            }
            (Self::GluWaves, Format::Weight(dtype)) => {
                Some(kernel_name!(dtype, "matvec_glu_", "_q8_n1"))
            }
            (Self::PrefillBits | Self::PrefillTile, Format::Weight(dtype)) => {
                Some(kernel_name!(dtype, "matmul_wide_", "_f16_f32"))
            }
            (
                Self::SkinnyGroups16 | Self::SkinnyGroups32 | Self::SkinnyGroups64,
                Format::Weight(dtype),
            ) => Some(kernel_name!(dtype, "matmul_skinny64_", "_f16_f32")),
            (Self::DecodeGroups | Self::DecodeKeys, Format::Cache(kv)) => match kv {
                KvType::F32 => Some("attention_decode_f32_d128_g1"),
                KvType::F16 => Some("attention_decode_f16_d128_g1"),
                KvType::Q8_0 => Some("attention_decode_q8_0_d128_g1"),
                KvType::Fp8 => Some("attention_decode_fp8_d128_g1"),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The format with the name that tables show, for weights or a KV cache: `Q4_K`, `f16`.
pub fn format_named(name: &str) -> Option<Format> {
    let weight = DType::ALL.into_iter().find(|dtype| dtype.name() == name).map(Format::Weight);
    weight.or_else(|| KvType::ALL.into_iter().find(|kv| kv.name() == name).map(Format::Cache))
}

impl Tuning {
    /// No choice.
    pub const NONE: Self = Self { values: [0; FORMATS] };

    /// The value of a knob for a format.
    pub fn get(&self, knob: Knob, format: Format) -> Option<u32> {
        let number = (self.values[position(format)?] >> shift(knob)) & MASK;
        knob.values().get((number as usize).checked_sub(1)?).copied()
    }

    /// Sets or removes the value of a knob for a format. Returns false if kernels do not support
    /// it.
    pub fn set(&mut self, knob: Knob, format: Format, value: Option<u32>) -> bool {
        let number = match value {
            None => Some(0),
            Some(value) => knob.values().iter().position(|v| *v == value).map(|at| at as u32 + 1),
        };
        let (Some(at), Some(number)) = (position(format), number) else { return false };
        let others = self.values[at] & !(MASK << shift(knob));
        self.values[at] = others | number << shift(knob);
        true
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        let has = |values: u32, knob| (values >> shift(knob)) & MASK != 0;
        let of_format =
            |values: &u32| Knob::ALL.into_iter().filter(|knob| has(*values, *knob)).count();
        self.values.iter().map(of_format).sum()
    }

    /// A digest of all values, for records of measurements.
    pub fn digest(&self) -> u32 {
        let bytes: Vec<u8> = self.values.iter().flat_map(|values| values.to_le_bytes()).collect();
        XxHash3_128::oneshot(&bytes) as u32
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
        let weights = DType::ALL.map(Format::Weight).into_iter();
        let formats = weights.chain(KvType::ALL.map(Format::Cache));
        let all = formats.flat_map(|format| Knob::ALL.map(|knob| (knob, format)));
        let set = all.filter_map(|(knob, format)| {
            Some((format!("{} {}", knob.name(), format.name()), self.get(knob, format)?))
        });
        f.debug_map().entries(set).finish()
    }
}

/// The bits of a value of the knob at the lowest place.
const MASK: u32 = (1 << BITS) - 1;

/// The place of a knob's value.
fn shift(knob: Knob) -> usize {
    BITS * knob as usize
}

fn position(format: Format) -> Option<usize> {
    match format {
        Format::Weight(dtype) => DType::ALL.iter().position(|other| *other == dtype),
        Format::Cache(kv) => {
            let at = KvType::ALL.iter().position(|other| *other == kv);
            at.map(|at| DType::COUNT + at)
        }
        Format::Mixed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_one_knob_and_format() {
        let mut tuning = Tuning::default();
        let q4 = Format::Weight(DType::Q4K);
        assert!(tuning.set(Knob::MatvecWaves, q4, Some(16)));
        assert!(tuning.set(Knob::DecodeKeys, Format::Cache(KvType::Fp8), Some(256)));
        assert_eq!(tuning.get(Knob::MatvecWaves, q4), Some(16));
        assert_eq!(tuning.get(Knob::GluWaves, q4), None);
        assert_eq!(tuning.get(Knob::MatvecWaves, Format::Weight(DType::Q6K)), None);
        assert_eq!(tuning.len(), 2);
        assert_eq!(format!("{tuning:?}"), r#"{"matvec_waves Q4_K": 16, "decode_keys fp8": 256}"#);
        assert!(tuning.set(Knob::MatvecWaves, q4, None));
        assert_eq!(tuning.len(), 1);
    }

    #[test]
    fn values_that_kernels_do_not_support_are_refused() {
        let mut tuning = Tuning::default();
        for value in [0, 1, 7, 32, 1 << 16] {
            assert!(!tuning.set(Knob::MatvecWaves, Format::Weight(DType::Q4K), Some(value)));
        }
        assert!(!tuning.set(Knob::MatvecWaves, Format::Mixed, Some(16)));
        assert!(tuning.is_empty());
    }

    #[test]
    fn every_value_is_stored() {
        let mut tuning = Tuning::default();
        let format = Format::Weight(DType::Q8_0);
        for knob in Knob::ALL {
            for &value in knob.values() {
                assert!(tuning.set(knob, format, Some(value)));
                assert_eq!(tuning.get(knob, format), Some(value));
            }
        }
        assert_eq!(tuning.len(), Knob::ALL.len());
    }

    #[test]
    fn names_are_unique_and_found() {
        for knob in Knob::ALL {
            assert_eq!(Knob::named(knob.name()), Some(knob));
        }
        assert_eq!(Knob::named("waves"), None);
        for dtype in DType::ALL {
            assert_eq!(format_named(dtype.name()), Some(Format::Weight(dtype)));
        }
        for kv in KvType::ALL {
            assert_eq!(format_named(kv.name()), Some(Format::Cache(kv)));
        }
        assert_eq!(format_named("Q4"), None);
    }
}
