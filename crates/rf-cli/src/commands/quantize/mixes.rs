//! Which tensor gets which format: the mixes of llama.cpp, by its rules.
//!
//! The output matrix, the values of attention and the down projections lose most from coarse
//! formats, so a mix gives them finer ones; rows that are no whole number of blocks get a format
//! with smaller blocks.

use rf_gguf::{Gguf, TensorInfo};
use rf_quant::DType;

use crate::failure::bad_input;

/// A name that `quantize` takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) name: &'static str,
    /// Other names, as in llama.cpp.
    aliases: &'static [&'static str],
    /// `general.file_type`; MXFP6 has none, being no format of ggml.
    pub(crate) file_type: Option<u32>,
    /// The format of most matrices.
    pub(crate) base: DType,
    recipe: Recipe,
    pub(crate) about: &'static str,
}

/// Which rules beside those for all mixes apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recipe {
    Plain,
    Q2K,
    Q3KSmall,
    Q3KMedium,
    Q3KLarge,
    Q4KSmall,
    Q4KMedium,
    Q5KMedium,
    Mxfp4Moe,
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

/// Every mix, floats first.
#[rustfmt::skip]
pub(crate) const MIXES: [Mix; 21] = [
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

impl std::str::FromStr for Mix {
    type Err = anyhow::Error;

    /// A name in any case, or the number that `general.file_type` gives it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |mix: &&Self| {
            mix.name.eq_ignore_ascii_case(text)
                || mix.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(text))
                || (mix.file_type.is_some() && mix.file_type == text.parse().ok())
        };
        MIXES.iter().find(named).copied().ok_or_else(|| {
            let names: Vec<_> = MIXES.iter().map(|mix| mix.name).collect();
            bad_input!("unknown type '{text}': take one of {}", names.join(", "))
        })
    }
}

/// How the user bends the rules.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choices {
    /// Every matrix in the base format.
    pub(super) pure: bool,
    /// The output matrix stays as it is.
    pub(super) leave_output: bool,
}

/// What becomes of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) dtype: DType,
    /// The format of the rules, where rows do not fit it.
    pub(super) instead_of: Option<DType>,
}

impl Mix {
    /// The format of each tensor of `gguf`, in the order of the file.
    ///
    /// # Errors
    ///
    /// When a tensor has a type that cannot be read.
    pub(super) fn targets(
        &self,
        gguf: &Gguf,
        choices: Choices,
    ) -> Result<Vec<Target>, rf_gguf::Error> {
        let tensors = gguf.tensors();
        let shape = ModelShape::of(gguf)?;
        let mut targets = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            targets.push(Target { dtype: tensor.dtype()?, instead_of: None });
        }
        // llama.cpp counts layers in this order, whatever the order of the file.
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        order.sort_by_key(|&index| (layer_of(tensors[index].name()), tensors[index].name()));
        let mut seen = Seen::default();
        for index in order {
            let tensor = &tensors[index];
            if is_quantised(tensor, choices) {
                let wanted = if choices.pure || self.is_float() {
                    self.base
                } else {
                    self.by_rules(tensor, &shape, &mut seen)
                };
                targets[index] = fitting(wanted, tensor.shape()[0]);
            }
        }
        Ok(targets)
    }

    const fn is_float(&self) -> bool {
        matches!(self.base, DType::F32 | DType::F16 | DType::Bf16)
    }

    fn by_rules(&self, tensor: &TensorInfo, shape: &ModelShape, seen: &mut Seen) -> DType {
        let part = Part::of(tensor.name());
        let is_output = part == Part::Output || (shape.tied && part == Part::Embedding);
        if is_output {
            let whole = tensor.shape()[0].is_multiple_of(self.base.block_elements() as u64);
            return match self.base {
                _ if self.recipe == Recipe::Mxfp4Moe || !whole => DType::Q8_0,
                DType::Q8_0 => DType::Q8_0,
                _ => DType::Q6K,
            };
        }
        if self.recipe == Recipe::Mxfp4Moe {
            let experts = tensor.shape().get(2).is_some_and(|&count| count > 1);
            return if experts { DType::Mxfp4 } else { DType::Q8_0 };
        }
        match part {
            Part::AttentionV => {
                let (index, count) = (seen.attention_v, shape.num_attention_v);
                seen.attention_v += 1;
                self.attention_v(shape, index, count)
            }
            Part::AttentionK if shape.num_experts == 8 => DType::Q8_0,
            Part::FfnDown => {
                let counted = seen.ffn_down;
                seen.ffn_down += 1;
                // Experts of one layer are several tensors in old files.
                let named = layer_of(tensor.name()).filter(|_| shape.num_experts > 1);
                self.ffn_down(named.unwrap_or(counted), shape.num_layers)
            }
            Part::AttentionOutput => self.attention_output(shape),
            _ => self.base,
        }
    }

    fn attention_v(&self, shape: &ModelShape, index: usize, count: usize) -> DType {
        let dtype = match self.recipe {
            Recipe::Q2K if shape.heads_per_kv_head >= 4 => DType::Q4K,
            Recipe::Q2K => DType::Q3K,
            Recipe::Q3KMedium if index < 2 => DType::Q5K,
            Recipe::Q3KMedium => DType::Q4K,
            Recipe::Q3KLarge => DType::Q5K,
            Recipe::Q4KMedium | Recipe::Q5KMedium if wants_more_bits(index, count) => DType::Q6K,
            Recipe::Q4KSmall if index < 4 => DType::Q5K,
            _ => self.base,
        };
        match dtype {
            _ if shape.num_experts == 8 => DType::Q8_0,
            DType::Q3K | DType::Q4K if shape.is_llama_70b => DType::Q5K,
            dtype => dtype,
        }
    }

    fn ffn_down(&self, layer: usize, num_layers: usize) -> DType {
        match self.recipe {
            Recipe::Q2K => DType::Q3K,
            Recipe::Q3KMedium if layer < num_layers / 16 => DType::Q5K,
            Recipe::Q3KMedium => DType::Q4K,
            Recipe::Q3KLarge => DType::Q5K,
            Recipe::Q4KMedium | Recipe::Q5KMedium if wants_more_bits(layer, num_layers) => {
                DType::Q6K
            }
            Recipe::Q4KSmall if layer < num_layers / 8 => DType::Q5K,
            _ => self.base,
        }
    }

    fn attention_output(&self, shape: &ModelShape) -> DType {
        let eight_experts = shape.num_experts == 8;
        match self.recipe {
            Recipe::Q2K
            | Recipe::Q3KSmall
            | Recipe::Q3KMedium
            | Recipe::Q4KSmall
            | Recipe::Q4KMedium
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

/// The first and the last eighth of the layers, and every third between.
fn wants_more_bits(layer: usize, num_layers: usize) -> bool {
    let eighth = num_layers / 8;
    layer < eighth || layer >= 7 * num_layers / 8 || (layer - eighth) % 3 == 2
}

/// How many tensors of a kind came before, in the order of layers.
#[derive(Default)]
struct Seen {
    attention_v: usize,
    ffn_down: usize,
}

/// What the rules ask of a model.
#[derive(Debug)]
struct ModelShape {
    num_layers: usize,
    num_experts: usize,
    heads_per_kv_head: usize,
    num_attention_v: usize,
    /// The embedding table is the output matrix too.
    tied: bool,
    is_llama_70b: bool,
}

impl ModelShape {
    fn of(gguf: &Gguf) -> Result<Self, rf_gguf::Error> {
        let metadata = gguf.metadata();
        let architecture = metadata.str("general.architecture")?.unwrap_or_default();
        // Some models have one number per layer; the rules look at the first.
        let number = |key: &str| {
            let key = format!("{architecture}.{key}");
            let value = metadata.get(&key)?;
            let number = match value.as_array() {
                Some(array) => array.integers()?.next()?,
                None => value.as_integer()?,
            };
            usize::try_from(number).ok()
        };
        let num_layers = number("block_count").unwrap_or(0);
        let num_heads = number("attention.head_count").unwrap_or(1);
        let num_kv_heads = number("attention.head_count_kv").unwrap_or(num_heads).max(1);
        let parts = || gguf.tensors().iter().map(|tensor| Part::of(tensor.name()));
        Ok(Self {
            num_layers,
            num_experts: number("expert_count").unwrap_or(0),
            heads_per_kv_head: num_heads / num_kv_heads,
            num_attention_v: parts().filter(|&part| part == Part::AttentionV).count(),
            tied: !parts().any(|part| part == Part::Output),
            is_llama_70b: architecture == "llama" && num_layers == 80 && num_heads != num_kv_heads,
        })
    }
}

/// The parts of a model that the rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Output,
    Embedding,
    /// Also the joint matrices that hold the values among others.
    AttentionV,
    AttentionK,
    AttentionOutput,
    FfnDown,
    Other,
}

impl Part {
    fn of(name: &str) -> Self {
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Self::Embedding,
            _ if ["attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight"]
                .iter()
                .any(|part| name.contains(part)) =>
            {
                Self::AttentionV
            }
            _ if name.contains("attn_k.weight") => Self::AttentionK,
            _ if name.contains("attn_output.weight") => Self::AttentionOutput,
            _ if name.contains("ffn_down") => Self::FfnDown,
            _ => Self::Other,
        }
    }
}

/// The number in `blk.NUMBER.`.
fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// Matrices only; not those that are small and sensitive.
fn is_quantised(tensor: &TensorInfo, choices: Choices) -> bool {
    let name = tensor.name();
    let axes = tensor.shape().iter().rposition(|&length| length > 1).map_or(1, |axis| axis + 1);
    axes >= 2
        && name.ends_with("weight")
        && !KEPT.iter().any(|part| name.contains(part))
        && !matches!(name, "position_embd.weight" | "token_types.weight")
        && !(choices.leave_output && name == "output.weight")
}

/// Parts of the names of matrices that no mix touches: norms, routers, convolutions, and the small
/// ones of some architectures.
#[rustfmt::skip]
const KEPT: [&str; 31] = [
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel",
    "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight",
    "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight",
    "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
    "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", ".rel_pos",
    ".patch_embd", ".patch_merger", "a.rvq.codebook",
];

/// `wanted`, or the nearest format whose blocks fill rows of `columns` values.
fn fitting(wanted: DType, columns: u64) -> Target {
    let fits = |dtype: DType| columns.is_multiple_of(dtype.block_elements() as u64);
    if fits(wanted) {
        return Target { dtype: wanted, instead_of: None };
    }
    let smaller_blocks = match wanted {
        DType::Q2K | DType::Q3K => DType::Q4_0,
        DType::Q4K => DType::Q5_0,
        DType::Q5K => DType::Q5_1,
        DType::Q6K => DType::Q8_0,
        _ => DType::F16,
    };
    let dtype = if fits(smaller_blocks) { smaller_blocks } else { DType::F16 };
    Target { dtype, instead_of: Some(wanted) }
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
    fn rows_that_do_not_fill_blocks_get_smaller_ones() {
        let dtype = |wanted, columns| fitting(wanted, columns).dtype;
        assert_eq!(dtype(DType::Q4K, 512), DType::Q4K);
        for (wanted, smaller) in [
            (DType::Q2K, DType::Q4_0),
            (DType::Q3K, DType::Q4_0),
            (DType::Q4K, DType::Q5_0),
            (DType::Q5K, DType::Q5_1),
            (DType::Q6K, DType::Q8_0),
        ] {
            assert_eq!(dtype(wanted, 896), smaller);
            assert_eq!(dtype(wanted, 100), DType::F16);
        }
        assert_eq!(dtype(DType::Q4_0, 100), DType::F16);
        assert_eq!(fitting(DType::Q4K, 896).instead_of, Some(DType::Q4K));
    }

    #[test]
    fn the_ends_and_every_third_layer_get_more_bits() {
        let layers: Vec<usize> = (0..32).filter(|&layer| wants_more_bits(layer, 32)).collect();
        assert_eq!(layers, [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
    }
}
