//! The table of mixes and their rules.

use rf_quant::DType;

use crate::error::Error;

/// A recipe that selects a format for each tensor, named as in llama.cpp.
///
/// The output matrix, the attention values and the down projections lose most from coarse formats,
/// so most mixes use finer formats than the base format for them.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    name: &'static str,
    /// Other names, as in llama.cpp.
    aliases: &'static [&'static str],
    file_type: Option<u32>,
    pub(crate) base: DType,
    pub(crate) recipe: Recipe,
    about: &'static str,
}

/// The rules of a mix beyond those that hold for all mixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    Plain,
    /// `Q4_0` and `Q5_0`: with an importance matrix, the first down projections get a minimum.
    OnePass,
    Q2K,
    Q2KSmall,
    Q3KSmall,
    Q3KMedium,
    Q3KLarge,
    Q4KSmall,
    Q4KMedium,
    Q5KMedium,
    Mxfp4Moe,
    Iq4,
    Iq3Medium,
    Iq3Small,
    Iq3Xs,
    Iq3Xxs,
    Iq2Small,
    Iq2Xs,
    Iq1,
    Ternary,
}

const fn mix(
    name: &'static str,
    aliases: &'static [&'static str],
    file_type: Option<u32>,
    (base, recipe): (DType, Recipe),
    about: &'static str,
) -> Mix {
    Mix { name, aliases, file_type, base, recipe, about }
}

#[rustfmt::skip]
const MIXES: &[Mix] = &[
    mix("F32", &[], Some(0), (DType::F32, Recipe::Plain), "32 bits"),
    mix("F16", &[], Some(1), (DType::F16, Recipe::Plain), "16 bits"),
    mix("BF16", &[], Some(32), (DType::Bf16, Recipe::Plain), "16 bits, the range of F32"),
    mix("Q8_0", &[], Some(7), (DType::Q8_0, Recipe::Plain), "8.5 bits, hardly any loss"),
    mix("Q6_K", &[], Some(18), (DType::Q6K, Recipe::Plain), "6.6 bits, very small loss"),
    mix("Q5_K_M", &["Q5_K"], Some(17), (DType::Q5K, Recipe::Q5KMedium), "5.5 bits, 6.6 for sensitive tensors"),
    mix("Q5_K_S", &[], Some(16), (DType::Q5K, Recipe::Plain), "5.5 bits"),
    mix("Q5_1", &[], Some(9), (DType::Q5_1, Recipe::Plain), "6 bits, old format"),
    mix("Q5_0", &[], Some(8), (DType::Q5_0, Recipe::OnePass), "5.5 bits, old format"),
    mix("Q4_K_M", &["Q4_K"], Some(15), (DType::Q4K, Recipe::Q4KMedium), "4.5 bits, 6.6 for sensitive tensors: the usual choice"),
    mix("Q4_K_S", &[], Some(14), (DType::Q4K, Recipe::Q4KSmall), "4.5 bits, 5.5 for some tensors"),
    mix("IQ4_NL", &[], Some(25), (DType::Iq4Nl, Recipe::Iq4), "4.5 bits, 5.5 for some tensors: finer near 0 than Q4_0"),
    mix("IQ4_XS", &[], Some(30), (DType::Iq4Xs, Recipe::Iq4), "4.25 bits, 5.5 for some tensors: less loss than Q4_0"),
    mix("Q4_1", &[], Some(3), (DType::Q4_1, Recipe::Plain), "5 bits, old format"),
    mix("Q4_0", &[], Some(2), (DType::Q4_0, Recipe::OnePass), "4.5 bits, old format"),
    mix("Q3_K_L", &[], Some(13), (DType::Q3K, Recipe::Q3KLarge), "3.4 bits, 5.5 for sensitive tensors"),
    mix("Q3_K_M", &["Q3_K"], Some(12), (DType::Q3K, Recipe::Q3KMedium), "3.4 bits, 4.5 for sensitive tensors"),
    mix("Q3_K_S", &[], Some(11), (DType::Q3K, Recipe::Q3KSmall), "3.4 bits"),
    mix("IQ3_M", &[], Some(27), (DType::Iq3S, Recipe::Iq3Medium), "3.4 bits, 4.5 for sensitive tensors"),
    mix("IQ3_S", &[], Some(26), (DType::Iq3S, Recipe::Iq3Small), "3.4 bits"),
    mix("IQ3_XS", &[], Some(22), (DType::Iq3S, Recipe::Iq3Xs), "3.4 bits, 3.1 for robust tensors"),
    mix("IQ3_XXS", &[], Some(23), (DType::Iq3Xxs, Recipe::Iq3Xxs), "3.1 bits; needs an importance matrix"),
    mix("Q2_K", &[], Some(10), (DType::Q2K, Recipe::Q2K), "2.6 bits, 3.4 for sensitive tensors: great loss"),
    mix("Q2_K_S", &[], Some(21), (DType::Q2K, Recipe::Q2KSmall), "2.6 bits; needs an importance matrix"),
    mix("IQ2_M", &[], Some(29), (DType::Iq2S, Recipe::Iq2Small), "2.6 bits, 3.4 for sensitive tensors; needs an importance matrix"),
    mix("IQ2_S", &[], Some(28), (DType::Iq2Xs, Recipe::Iq2Small), "2.3 bits, 3.4 for sensitive tensors; needs an importance matrix"),
    mix("IQ2_XS", &[], Some(20), (DType::Iq2Xs, Recipe::Iq2Xs), "2.3 bits; needs an importance matrix"),
    mix("IQ2_XXS", &[], Some(19), (DType::Iq2Xxs, Recipe::Iq2Xs), "2.1 bits; needs an importance matrix"),
    mix("IQ1_M", &[], Some(31), (DType::Iq1M, Recipe::Iq1), "1.75 bits, great loss; needs an importance matrix"),
    mix("IQ1_S", &[], Some(24), (DType::Iq1S, Recipe::Iq1), "1.6 bits, great loss; needs an importance matrix"),
    mix("TQ2_0", &[], Some(37), (DType::Tq2_0, Recipe::Ternary), "2.1 bits: for models that were trained with ternary weights"),
    mix("TQ1_0", &[], Some(36), (DType::Tq1_0, Recipe::Ternary), "1.7 bits: as TQ2_0"),
    mix("MXFP4", &[], Some(38), (DType::Mxfp4, Recipe::Plain), "4.25 bits, OCP microscaling"),
    mix("MXFP4_MOE", &[], Some(38), (DType::Mxfp4, Recipe::Mxfp4Moe), "MXFP4 for experts, Q8_0 for the rest"),
    mix("NVFP4", &[], Some(39), (DType::Nvfp4, Recipe::Plain), "4.5 bits: MXFP4 with a finer scale per 16"),
    mix("Q2_0", &[], Some(41), (DType::Q2_0, Recipe::Ternary), "2.25 bits: as TQ2_0, for rows of any multiple of 64"),
    mix("Q1_0", &[], Some(40), (DType::Q1_0, Recipe::Plain), "1.125 bits: for models that were trained with one bit"),
    mix("MXFP6_E2M3", &[], None, (DType::Mxfp6E2M3, Recipe::Plain), "6.25 bits, OCP microscaling; only ROCmForge reads it"),
    mix("MXFP6_E3M2", &[], None, (DType::Mxfp6E3M2, Recipe::Plain), "6.25 bits, OCP microscaling; only ROCmForge reads it"),
];

impl Mix {
    /// Every mix, floats first.
    pub const ALL: &'static [Self] = MIXES;

    /// The name, such as `Q4_K_M`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The value of `general.file_type`. `None` for the MXFP6 mixes, which ggml does not have.
    pub const fn file_type(&self) -> Option<u32> {
        self.file_type
    }

    /// Bits per weight of most tensors, and the purpose of the mix.
    pub const fn about(&self) -> &'static str {
        self.about
    }

    pub(crate) const fn is_float(&self) -> bool {
        self.base.is_float()
    }

    /// Returns true if a tensor of this format is too coarse to be quantised without the importance
    /// of its columns.
    pub(crate) const fn needs_importance(&self, dtype: DType) -> bool {
        match dtype {
            DType::Iq3Xxs
            | DType::Iq2S
            | DType::Iq2Xs
            | DType::Iq2Xxs
            | DType::Iq1M
            | DType::Iq1S => true,
            DType::Q2K => matches!(self.recipe, Recipe::Q2KSmall),
            _ => false,
        }
    }
}

impl std::str::FromStr for Mix {
    type Err = Error;

    /// Accepts a name or alias in any case, and the number of `general.file_type`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let matches = |mix: &&Self| {
            mix.name.eq_ignore_ascii_case(text)
                || mix.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(text))
                || (mix.file_type.is_some() && mix.file_type == text.parse().ok())
        };
        let found = Self::ALL.iter().find(matches).copied();
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(Self::name).collect();
            Error::UnknownMix { name: text.to_owned(), known: names.join(", ") }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_aliases_and_numbers_are_found() {
        let name = |text: &str| text.parse::<Mix>().map(|mix| mix.name).ok();
        assert_eq!(name("q4_k_m"), Some("Q4_K_M"));
        assert_eq!(name("Q4_K"), Some("Q4_K_M"));
        assert_eq!(name("15"), Some("Q4_K_M"));
        assert_eq!(name("0"), Some("F32"));
        assert_eq!(name("mxfp6_e2m3"), Some("MXFP6_E2M3"));
        assert_eq!(name("Q9"), None);
        assert_eq!(name(""), None);
    }
}
