//! Families: one file per family, with its hyper-parameters, its weight table and the golden models
//! that prove it.

mod cohere2;
mod ernie;
mod exaone4;
mod falcon;
mod family;
mod gemma;
mod gemma4;
mod glm;
mod gpt2;
mod gpt_oss;
mod granite;
mod hunyuan;
mod llama;
mod llama4;
mod minicpm;
mod mistral3;
mod olmo2;
mod phi3;
mod qwen;
mod rows;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;

use rf_gguf::Gguf;

use self::family::Family;
use crate::config::ModelConfig;
use crate::error::Error;
use crate::keys::Keys;

/// Every supported architecture, with the golden models that prove it.
const FAMILIES: &[Family] = &[
    llama::LLAMA,
    qwen::QWEN2,
    qwen::QWEN2_MOE,
    qwen::QWEN3,
    qwen::QWEN3_MOE,
    gemma::GEMMA2,
    gemma::GEMMA3,
    gemma4::GEMMA4,
    phi3::PHI3,
    gpt_oss::GPT_OSS,
    glm::GLM4,
    glm::GLM4_MOE,
    granite::GRANITE,
    granite::GRANITE_MOE,
    mistral3::MISTRAL3,
    llama4::LLAMA4,
    smollm3::SMOLLM3,
    olmo2::OLMO2,
    cohere2::COHERE2,
    ernie::ERNIE4_5,
    ernie::ERNIE4_5_MOE,
    exaone4::EXAONE4,
    seed_oss::SEED_OSS,
    hunyuan::HUNYUAN_DENSE,
    minicpm::MINICPM,
    stablelm::STABLELM,
    starcoder2::STARCODER2,
    gpt2::GPT2,
    falcon::FALCON,
];

/// The supported values of `general.architecture`.
pub fn supported_architectures() -> Vec<&'static str> {
    FAMILIES.iter().map(|family| family.name).collect()
}

/// The golden models that prove an architecture; empty if it is not supported.
pub fn golden_models(architecture: &str) -> &'static [&'static str] {
    let family = FAMILIES.iter().find(|family| family.name == architecture);
    family.map_or(&[], |family| family.golden_models)
}

impl ModelConfig {
    /// Reads and checks the metadata.
    ///
    /// # Errors
    ///
    /// If the architecture or a setting is not supported, a key is missing or invalid, or the file
    /// has tensors that the architecture does not use.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, Error> {
        let keys = Keys::new(gguf)?;
        let family = FAMILIES.iter().find(|family| family.name == keys.architecture);
        let family = family.ok_or_else(|| Error::UnsupportedArchitecture {
            name: keys.architecture.clone(),
            supported: supported_architectures(),
        })?;
        let config = (family.config)(&keys, family.weights)?;
        check_tensors(gguf, &config)?;
        Ok(config)
    }
}

/// Tensors outside of the layers.
const MODEL_TENSORS: &[&str] = &[
    "token_embd.weight",
    "position_embd.weight",
    "output_norm.weight",
    "output_norm.bias",
    "output.weight",
    "output.bias",
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    "per_layer_model_proj.weight",
    "per_layer_proj_norm.weight",
    "per_layer_token_embd.weight",
];

/// Checks that every tensor of a file has a place in the model. Blocks after the last layer, which
/// predict further tokens, have none and are ignored.
fn check_tensors(gguf: &Gguf, config: &ModelConfig) -> Result<(), Error> {
    let rows = || config.weights.iter().copied().flatten();
    let is_known = |name: &str| {
        let Some((layer, rest)) = name.strip_prefix("blk.").and_then(|name| name.split_once('.'))
        else {
            return MODEL_TENSORS.contains(&name);
        };
        match layer.parse::<usize>() {
            Ok(layer) if layer < config.num_layers() => {
                IGNORED_LAYER_TENSORS.contains(&rest) || rows().any(|row| row.covers(rest))
            }
            Ok(_) => true,
            Err(_) => false,
        }
    };
    let names = gguf.tensors().iter().map(rf_gguf::TensorInfo::name);
    let tensors: Vec<String> = names.filter(|name| !is_known(name)).map(str::to_owned).collect();
    if tensors.is_empty() {
        return Ok(());
    }
    Err(Error::UnknownTensors { architecture: config.architecture.clone(), tensors })
}

/// Tensors of old files that repeat the metadata, and factors that families read as metadata.
const IGNORED_LAYER_TENSORS: &[&str] =
    &["attn_rot_embd.weight", "attn.rot_embd", "layer_output_scale.weight", "rope_freqs.weight"];
