//! Families: one file per family, with its hyper-parameters and its weight table. Golden models
//! (`golden/arch` in the repository) prove each of them.

mod afmoe;
mod alibi;
mod apertus;
mod arcee;
mod arctic;
mod baichuan;
mod bailing;
mod bert;
mod bitnet;
mod cohere2;
mod dbrx;
mod deci;
mod deepseek;
mod deepseek2;
mod dots1;
mod ernie;
mod eurobert;
mod exaone4;
mod falcon;
mod family;
mod gemma;
mod gemma3n;
mod gemma4;
mod glm;
mod gpt2;
mod gpt_oss;
mod gptneox;
mod granite;
mod grovemoe;
mod hunyuan;
mod jamba;
mod kimi_linear;
mod laguna;
mod lfm2;
mod ling3;
mod llama;
mod llama4;
mod llama_variants;
mod mamba;
mod mellum;
mod mimo2;
mod minicpm;
mod minimax;
mod mistral3;
mod modern_bert;
mod muse_glimmer;
mod nemotron;
mod neo_bert;
mod olmo;
mod olmo2;
mod orion;
mod phi3;
mod plamo;
mod qwen;
mod qwen35;
mod rows;
mod seed_oss;
mod smallthinker;
mod smollm3;
mod spark;
mod stablelm;
mod starcoder2;
mod step35;

use rf_gguf::{Gguf, Value};
use rf_graph::layer::{AttentionSpec, KvSource, Role};

use self::family::Family;
use crate::config::ModelConfig;
use crate::error::Error;
use crate::keys::Keys;
use crate::mtp;
use crate::weights::WeightTable;

/// Every supported architecture.
const FAMILIES: &[Family] = &[
    llama::LLAMA,
    llama_variants::INTERNLM2,
    llama_variants::XVERSE,
    llama_variants::EXAONE,
    llama_variants::PANGU_EMBEDDED,
    llama_variants::PLAMO,
    arcee::ARCEE,
    deci::DECI,
    bitnet::BITNET,
    orion::ORION,
    nemotron::NEMOTRON,
    qwen::QWEN,
    qwen::QWEN2,
    qwen::QWEN2_MOE,
    qwen::QWEN3,
    qwen::QWEN3_MOE,
    qwen::QWEN2_VL,
    qwen::QWEN3_VL,
    qwen::QWEN3_VL_MOE,
    qwen35::QWEN35,
    qwen35::QWEN35_MOE,
    qwen35::QWEN3_NEXT,
    gemma::GEMMA,
    gemma::GEMMA2,
    gemma::GEMMA3,
    gemma4::GEMMA4,
    phi3::PHI3,
    gpt_oss::GPT_OSS,
    glm::CHATGLM,
    glm::GLM4,
    glm::GLM4_MOE,
    deepseek2::DEEPSEEK2,
    granite::GRANITE,
    granite::GRANITE_MOE,
    mistral3::MISTRAL3,
    llama4::LLAMA4,
    smollm3::SMOLLM3,
    olmo::OLMO,
    olmo2::OLMO2,
    cohere2::COMMAND_R,
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
    gpt2::STARCODER,
    gptneox::GPT_NEOX,
    gptneox::CODESHELL,
    gptneox::PHI2,
    falcon::FALCON,
    bert::BERT,
    bert::NOMIC_BERT,
    bert::NOMIC_BERT_MOE,
    bert::JINA_BERT_V3,
    modern_bert::MODERN_BERT,
    neo_bert::NEO_BERT,
    eurobert::EUROBERT,
    eurobert::LLAMA_EMBED,
    gemma::GEMMA_EMBEDDING,
    lfm2::LFM2,
    lfm2::LFM2_MOE,
    mamba::MAMBA2,
    mamba::NEMOTRON_H,
    mamba::NEMOTRON_H_MOE,
    mamba::GRANITE_HYBRID,
    mamba::FALCON_H1,
    apertus::APERTUS,
    jamba::MAMBA,
    jamba::JAMBA,
    alibi::BLOOM,
    alibi::MPT,
    baichuan::BAICHUAN,
    bert::JINA_BERT_V2,
    minicpm::MINICPM3,
    smallthinker::SMALLTHINKER,
    grovemoe::GROVEMOE,
    arctic::ARCTIC,
    plamo::PLAMO2,
    plamo::PLAMO3,
    gemma3n::GEMMA3N,
    minimax::MINIMAX_M2,
    cohere2::COHERE2_MOE,
    deepseek2::MISTRAL4,
    granite::GRANITE_SWA,
    mellum::MELLUM,
    exaone4::EXAONE_MOE,
    bailing::BAILING_MOE,
    bailing::BAILING_MOE2,
    dots1::DOTS1,
    hunyuan::HUNYUAN_MOE,
    hunyuan::HY_V3,
    phi3::PHI_MOE,
    olmo2::OLMOE,
    spark::SPARK2_5,
    dbrx::DBRX,
    deepseek::DEEPSEEK,
    afmoe::AFMOE,
    muse_glimmer::MUSE_GLIMMER,
    laguna::LAGUNA,
    step35::STEP35,
    mimo2::MIMO2,
    kimi_linear::KIMI_LINEAR,
    ling3::BAILING_MOE3,
];

/// The supported values of `general.architecture`.
pub fn supported_architectures() -> Vec<&'static str> {
    FAMILIES.iter().map(|family| family.name).collect()
}

impl ModelConfig {
    /// Reads and checks the metadata.
    ///
    /// # Errors
    ///
    /// If the architecture or a setting is not supported, or a key is missing or invalid.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, Error> {
        if gguf.metadata().get("general.type").and_then(Value::as_str) == Some("adapter") {
            return Err(Error::IsAdapter);
        }
        let keys = Keys::new(gguf)?;
        let family = FAMILIES.iter().find(|family| family.name == keys.architecture);
        let family = family.ok_or_else(|| Error::UnsupportedArchitecture {
            name: keys.architecture.clone(),
            supported: supported_architectures(),
        })?;
        let mut config = (family.config)(&keys, family.weights)?;
        config.mtp = mtp::layer_spec(&keys, &config)?;
        check_parts(&keys, &config, family.weights)?;
        let has_windows = config.attentions().any(|a| a.window.or(a.chunk).is_some());
        if !config.is_causal() && has_windows && !config.is_encoder {
            let reason = "the layers have windows, which only causal attention can have";
            return Err(keys.unsupported("attention.causal", &false, reason));
        }
        Ok(Self { tensors_read: keys.into_tensors_read(), ..config })
    }
}

/// Checks that the keys ask for no parts that the family has no weights for.
fn check_parts(keys: &Keys<'_>, config: &ModelConfig, weights: WeightTable) -> Result<(), Error> {
    let has = |role| weights.iter().copied().flatten().any(|row| row.role == role);
    // A gate beside the query, and a projection that is key and value, are as long as keys.
    let is_as_long = |a: &AttentionSpec| a.gated || a.kv != KvSource::Projections;
    if let Some(a) = config.attentions().find(|a| a.value_dim < a.head_dim && is_as_long(a)) {
        let reason = format!("it must equal the key length, {}", a.head_dim);
        return Err(keys.unsupported("attention.value_length", &a.value_dim, &reason));
    }
    for layer in &config.layers {
        if layer.dense.is_some() && !has(Role::Down) {
            return Err(keys.missing("expert_count"));
        }
        if let Some(dense) = layer.dense {
            keys.checked_size("feed_forward_length", dense.intermediate_size as u64)?;
        }
        let Some(experts) = layer.experts else { continue };
        if !has(Role::Router) {
            let reason = "the architecture has no experts";
            return Err(keys.unsupported("expert_count", &experts.count, reason));
        }
        if let Some(size) = experts.shared_intermediate_size.filter(|_| !has(Role::SharedDown)) {
            let reason = "the architecture has no shared expert";
            return Err(keys.unsupported("expert_shared_feed_forward_length", &size, reason));
        }
    }
    Ok(())
}
