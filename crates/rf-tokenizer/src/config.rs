//! The tokenizer's part of a model file as plain data.

/// The input of [`Tokenizer::new`](crate::Tokenizer::new). Each field is named after its GGUF key
/// without `tokenizer.ggml.`. A missing key is `None` or empty.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VocabConfig {
    /// `model`: the tokenizer family, `gpt2` or `gemma4` (BPE), `llama` (SPM), `bert` (`WordPiece`)
    /// or `t5` (unigram).
    pub model: String,
    /// `pre`: the name of the BPE pre-tokenizer.
    pub pre: Option<String>,
    /// `tokens`: the text of each id.
    pub tokens: Vec<String>,
    /// `scores`: one per token, SPM and unigram only.
    pub scores: Vec<f32>,
    /// `token_type`: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    pub token_types: Vec<i32>,
    /// `merges`: `left right`, best first, BPE only.
    pub merges: Vec<String>,

    /// `bos_token_id`.
    pub bos_token_id: Option<u32>,
    /// `eos_token_id`.
    pub eos_token_id: Option<u32>,
    /// `eot_token_id`: end of a turn.
    pub eot_token_id: Option<u32>,
    /// `eom_token_id`: end of a message.
    pub eom_token_id: Option<u32>,
    /// `unknown_token_id`.
    pub unknown_token_id: Option<u32>,
    /// `seperator_token_id` (the key is spelt like this).
    pub separator_token_id: Option<u32>,
    /// `padding_token_id`.
    pub padding_token_id: Option<u32>,
    /// `mask_token_id`.
    pub mask_token_id: Option<u32>,
    /// `fim_pre_token_id`, or the older `prefix_token_id`.
    pub fim_pre_token_id: Option<u32>,
    /// `fim_suf_token_id`, or the older `suffix_token_id`.
    pub fim_suf_token_id: Option<u32>,
    /// `fim_mid_token_id`, or the older `middle_token_id`.
    pub fim_mid_token_id: Option<u32>,
    /// `fim_pad_token_id`.
    pub fim_pad_token_id: Option<u32>,
    /// `fim_rep_token_id`: the repository's name follows.
    pub fim_rep_token_id: Option<u32>,
    /// `fim_sep_token_id`: a file of the repository follows.
    pub fim_sep_token_id: Option<u32>,

    /// `add_bos_token`.
    pub add_bos_token: Option<bool>,
    /// `add_eos_token`.
    pub add_eos_token: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `remove_extra_whitespaces`: unigram only.
    pub remove_extra_whitespaces: Option<bool>,
    /// `precompiled_charsmap`: the replacements of characters, unigram only.
    pub precompiled_charsmap: Vec<u8>,
    /// `normalizer.lowercase`: `WordPiece` only, true if missing.
    pub lowercase: Option<bool>,
    /// `normalizer.strip_accents`: `WordPiece` only, the value of `lowercase` if missing.
    pub strip_accents: Option<bool>,
    /// `suppress_tokens`: ids that must never be sampled.
    pub suppress_tokens: Vec<u32>,

    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
    /// `general.architecture`, for the tokens' stripping rules.
    pub architecture: Option<String>,
    /// `general.name`: identifies Phi-3 models, whose special tokens strip the white space that
    /// follows.
    pub name: Option<String>,
}

/// Defines a method for each named field, which sets it and returns the configuration.
macro_rules! setters {
    ($($method:ident($field:ident: $type:ty);)+) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        #[must_use]
        pub fn $method(mut self, $field: $type) -> Self {
            self.$field = $field.into();
            self
        }
    )+};
}

impl VocabConfig {
    setters! {
        with_model(model: impl Into<String>);
        with_pre(pre: Option<String>);
        with_tokens(tokens: Vec<String>);
        with_scores(scores: Vec<f32>);
        with_token_types(token_types: Vec<i32>);
        with_merges(merges: Vec<String>);
        with_bos_token_id(bos_token_id: Option<u32>);
        with_eos_token_id(eos_token_id: Option<u32>);
        with_eot_token_id(eot_token_id: Option<u32>);
        with_eom_token_id(eom_token_id: Option<u32>);
        with_unknown_token_id(unknown_token_id: Option<u32>);
        with_separator_token_id(separator_token_id: Option<u32>);
        with_padding_token_id(padding_token_id: Option<u32>);
        with_mask_token_id(mask_token_id: Option<u32>);
        with_fim_pre_token_id(fim_pre_token_id: Option<u32>);
        with_fim_suf_token_id(fim_suf_token_id: Option<u32>);
        with_fim_mid_token_id(fim_mid_token_id: Option<u32>);
        with_fim_pad_token_id(fim_pad_token_id: Option<u32>);
        with_fim_rep_token_id(fim_rep_token_id: Option<u32>);
        with_fim_sep_token_id(fim_sep_token_id: Option<u32>);
        with_add_bos_token(add_bos_token: Option<bool>);
        with_add_eos_token(add_eos_token: Option<bool>);
        with_add_space_prefix(add_space_prefix: Option<bool>);
        with_remove_extra_whitespaces(remove_extra_whitespaces: Option<bool>);
        with_precompiled_charsmap(precompiled_charsmap: Vec<u8>);
        with_lowercase(lowercase: Option<bool>);
        with_strip_accents(strip_accents: Option<bool>);
        with_suppress_tokens(suppress_tokens: Vec<u32>);
        with_chat_template(chat_template: Option<String>);
        with_architecture(architecture: Option<String>);
        with_name(name: Option<String>);
    }
}
