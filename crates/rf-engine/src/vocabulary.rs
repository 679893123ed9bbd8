//! The tokenizer of a file.

use rf_gguf::{Error as GgufError, Gguf, Metadata};
use rf_tokenizer::{Tokenizer, VocabConfig};

use crate::error::Error;

/// Builds the tokenizer of a file, which may be a vocabulary without tensors.
///
/// # Errors
///
/// If the file has no vocabulary, or one that is not supported.
pub fn tokenizer_from_gguf(gguf: &Gguf) -> Result<Tokenizer, Error> {
    let metadata = gguf.metadata();
    let config = read(metadata)?;
    Ok(Tokenizer::new(config)?)
}

fn read(m: &Metadata) -> Result<VocabConfig, GgufError> {
    let strings = |key: &str| -> Result<Vec<String>, GgufError> {
        Ok(m.strings(key)?.map(|s| s.iter().map(str::to_owned).collect()).unwrap_or_default())
    };
    let text = |key: &str| Ok::<_, GgufError>(m.str(key)?.map(str::to_owned));
    let tokens = m.required_strings("tokenizer.ggml.tokens")?;
    Ok(VocabConfig {
        model: m.required_str("tokenizer.ggml.model")?.to_owned(),
        pre: text("tokenizer.ggml.pre")?,
        tokens: tokens.iter().map(str::to_owned).collect(),
        scores: m.f32s("tokenizer.ggml.scores")?.unwrap_or_default().into_owned(),
        token_types: m.i32s("tokenizer.ggml.token_type")?.unwrap_or_default().into_owned(),
        merges: strings("tokenizer.ggml.merges")?,
        bos_token_id: m.u32("tokenizer.ggml.bos_token_id")?,
        eos_token_id: m.u32("tokenizer.ggml.eos_token_id")?,
        eot_token_id: m.u32("tokenizer.ggml.eot_token_id")?,
        eom_token_id: m.u32("tokenizer.ggml.eom_token_id")?,
        unknown_token_id: m.u32("tokenizer.ggml.unknown_token_id")?,
        // The spelling is that of GGUF.
        separator_token_id: m.u32("tokenizer.ggml.seperator_token_id")?,
        padding_token_id: m.u32("tokenizer.ggml.padding_token_id")?,
        mask_token_id: m.u32("tokenizer.ggml.mask_token_id")?,
        fim_pre_token_id: m.u32("tokenizer.ggml.fim_pre_token_id")?,
        fim_suf_token_id: m.u32("tokenizer.ggml.fim_suf_token_id")?,
        fim_mid_token_id: m.u32("tokenizer.ggml.fim_mid_token_id")?,
        fim_pad_token_id: m.u32("tokenizer.ggml.fim_pad_token_id")?,
        fim_rep_token_id: m.u32("tokenizer.ggml.fim_rep_token_id")?,
        fim_sep_token_id: m.u32("tokenizer.ggml.fim_sep_token_id")?,
        add_bos_token: m.bool("tokenizer.ggml.add_bos_token")?,
        add_eos_token: m.bool("tokenizer.ggml.add_eos_token")?,
        add_space_prefix: m.bool("tokenizer.ggml.add_space_prefix")?,
        remove_extra_whitespaces: m.bool("tokenizer.ggml.remove_extra_whitespaces")?,
        precompiled_charsmap: m
            .i32s("tokenizer.ggml.precompiled_charsmap")?
            .map(|bytes| bytes.iter().map(|&byte| byte as u8).collect())
            .unwrap_or_default(),
        lowercase: m.bool("tokenizer.ggml.normalizer.lowercase")?,
        strip_accents: m.bool("tokenizer.ggml.normalizer.strip_accents")?,
        suppress_tokens: m.u32s("tokenizer.ggml.suppress_tokens")?.unwrap_or_default().into_owned(),
        chat_template: text("tokenizer.chat_template")?,
        architecture: text("general.architecture")?,
        name: text("general.name")?,
    })
}
