//! The table of mixes and their rules.

use rf_quant::DType;

use crate::error::Error;
use crate::model::ModelShape;

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
    Q2K,
    Q3KSmall,
    Q3KMedium,
    Q3KLarge,
    Q4KSmall,
    Q4KMedium,
    Q5KMedium,
    Mxfp4Moe,
    Iq4,
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
    mix("Q5_0", &[], Some(8), (DType::Q5_0, Recipe::Plain), "5.5 bits, old format"),
    mix("Q4_K_M", &["Q4_K"], Some(15), (DType::Q4K, Recipe::Q4KMedium), "4.5 bits, 6.6 for sensitive tensors: the usual choice"),
    mix("Q4_K_S", &[], Some(14), (DType::Q4K, Recipe::Q4KSmall), "4.5 bits, 5.5 for some tensors"),
    mix("IQ4_NL", &[], Some(25), (DType::Iq4Nl, Recipe::Iq4), "4.5 bits, 5.5 for some tensors: finer near 0 than Q4_0"),
    mix("IQ4_XS", &[], Some(30), (DType::Iq4Xs, Recipe::Iq4), "4.25 bits, 5.5 for some tensors: less loss than Q4_0"),
    mix("Q4_1", &[], Some(3), (DType::Q4_1, Recipe::Plain), "5 bits, old format"),
    mix("Q4_0", &[], Some(2), (DType::Q4_0, Recipe::Plain), "4.5 bits, old format"),
    mix("Q3_K_L", &[], Some(13), (DType::Q3K, Recipe::Q3KLarge), "3.4 bits, 5.5 for sensitive tensors"),
    mix("Q3_K_M", &["Q3_K"], Some(12), (DType::Q3K, Recipe::Q3KMedium), "3.4 bits, 4.5 for sensitive tensors"),
    mix("Q3_K_S", &[], Some(11), (DType::Q3K, Recipe::Q3KSmall), "3.4 bits"),
    mix("Q2_K", &[], Some(10), (DType::Q2K, Recipe::Q2K), "2.6 bits, 3.4 for sensitive tensors: great loss"),
    mix("MXFP4", &[], Some(38), (DType::Mxfp4, Recipe::Plain), "4.25 bits, OCP microscaling"),
    mix("MXFP4_MOE", &[], Some(38), (DType::Mxfp4, Recipe::Mxfp4Moe), "MXFP4 for experts, Q8_0 for the rest"),
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

    /// The format of the attention values of layer `index` of `count`.
    pub(crate) fn attention_v(&self, shape: &ModelShape, index: usize, count: usize) -> DType {
        let dtype = match self.recipe {
            Recipe::Q2K if shape.heads_per_kv_head >= 4 => DType::Q4K,
            Recipe::Q2K => DType::Q3K,
            Recipe::Q3KMedium if index < 2 => DType::Q5K,
            Recipe::Q3KMedium => DType::Q4K,
            Recipe::Q3KLarge => DType::Q5K,
            Recipe::Q4KMedium | Recipe::Q5KMedium if has_more_bits(index, count) => DType::Q6K,
            Recipe::Q4KSmall if index < 4 => DType::Q5K,
            Recipe::Iq4 if shape.heads_per_kv_head >= 4 => DType::Q5K,
            _ => self.base,
        };
        match dtype {
            _ if shape.num_experts == 8 => DType::Q8_0,
            DType::Q3K | DType::Q4K if shape.is_llama_70b => DType::Q5K,
            dtype => dtype,
        }
    }

    /// The format of a down projection.
    pub(crate) fn ffn_down(&self, layer: usize, num_layers: usize) -> DType {
        match self.recipe {
            Recipe::Q2K => DType::Q3K,
            Recipe::Q3KMedium if layer < num_layers / 16 => DType::Q5K,
            Recipe::Q3KMedium => DType::Q4K,
            Recipe::Q3KLarge => DType::Q5K,
            Recipe::Q4KMedium | Recipe::Q5KMedium if has_more_bits(layer, num_layers) => DType::Q6K,
            Recipe::Q4KSmall | Recipe::Iq4 if layer < num_layers / 8 => DType::Q5K,
            _ => self.base,
        }
    }

    /// The format of an attention output projection.
    pub(crate) fn attention_output(&self, shape: &ModelShape) -> DType {
        let eight_experts = shape.num_experts == 8;
        match self.recipe {
            Recipe::Q2K
            | Recipe::Q3KSmall
            | Recipe::Q3KMedium
            | Recipe::Q4KSmall
            | Recipe::Q4KMedium
            | Recipe::Iq4
                if eight_experts =>
            {
                DType::Q5K
            }
            Recipe::Q2K => DType::Q3K,
            Recipe::Q3KMedium => DType::Q4K,
            Recipe::Q3KLarge if !eight_experts => DType::Q5K,
            _ => self.base,
        }
    }
}

/// Whether a layer is in the first or last eighth, or every third between them.
fn has_more_bits(layer: usize, num_layers: usize) -> bool {
    let eighth = num_layers / 8;
    layer < eighth || layer >= 7 * num_layers / 8 || (layer - eighth) % 3 == 2
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

    #[test]
    fn the_ends_and_every_third_layer_get_more_bits() {
        let layers: Vec<usize> = (0..32).filter(|&layer| has_more_bits(layer, 32)).collect();
        assert_eq!(layers, [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
    }
}
