//! The vocabulary of a GGUF file, by the feature `gguf`.

use rf_gguf::{Error, Gguf};

use crate::VocabConfig;

/// The key of the chat template.
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

impl VocabConfig {
    /// Reads the vocabulary of a file, which may have no tensors.
    ///
    /// ```
    /// use rf_gguf::{Gguf, GgufWriter, StringArray};
    /// use rf_tokenizer::{EncodeOptions, Tokenizer, VocabConfig};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut writer = GgufWriter::new();
    /// # let tokens: StringArray = ["<unk>", "a", "b", "ab"].iter().collect();
    /// # writer.add("tokenizer.ggml.model", "llama")?.add("tokenizer.ggml.tokens", tokens)?;
    /// # writer.add("tokenizer.ggml.scores", vec![0.0_f32; 4])?;
    /// # writer.add("tokenizer.ggml.token_type", vec![2_i32, 1, 1, 1])?;
    /// # writer.add("tokenizer.ggml.add_bos_token", false)?;
    /// # writer.add("tokenizer.ggml.add_space_prefix", false)?;
    /// # let mut bytes = Vec::new();
    /// # writer.write_to(&mut bytes, |_, _| Ok(()))?;
    /// // Or `Gguf::open("model.gguf")?`.
    /// let gguf = Gguf::from_bytes(bytes)?;
    /// let tokenizer = Tokenizer::new(VocabConfig::from_gguf(&gguf)?)?;
    /// assert_eq!(tokenizer.encode("ab", EncodeOptions::PLAIN), [3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the file has no vocabulary, or a key has a value of another type. A chat template of
    /// another type is left out.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, Error> {
        let m = gguf.metadata();
        let strings = |key: &str| -> Result<Vec<String>, Error> {
            Ok(m.strings(key)?.map(|s| s.iter().map(str::to_owned).collect()).unwrap_or_default())
        };
        let text = |key: &str| Ok::<_, Error>(m.str(key)?.map(str::to_owned));
        let tokens = m.required_strings("tokenizer.ggml.tokens")?;
        Ok(Self {
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
            suppress_tokens: m
                .u32s("tokenizer.ggml.suppress_tokens")?
                .unwrap_or_default()
                .into_owned(),
            chat_template: text(CHAT_TEMPLATE).ok().flatten(),
            architecture: text("general.architecture")?,
            name: text("general.name")?,
        })
    }
}
