//! The error type.

/// Why a tokenizer failed. Messages quote texts from the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `tokenizer.ggml.model` names a tokenizer family that is not implemented.
    #[error(
        "unsupported tokenizer model `{model}` (tokenizer.ggml.model): \
         supported are `gpt2` and `gemma4` (BPE), `llama` (SPM), `bert` (WordPiece) and `t5` \
         (unigram); use a model of one of these families"
    )]
    UnsupportedModel {
        /// The value of the key.
        model: String,
    },
    /// `tokenizer.ggml.pre` names an unknown pre-tokenizer. Another pre-tokenizer would silently
    /// produce ids that the model was not trained on.
    #[error(
        "unknown pre-tokenizer `{pre}` (tokenizer.ggml.pre): update ROCmForge, \
         or convert the model again with a converter that writes a known name"
    )]
    UnknownPreTokenizer {
        /// The value of the key.
        pre: String,
    },
    /// The vocabulary has no tokens.
    #[error("the vocabulary is empty (tokenizer.ggml.tokens)")]
    EmptyVocabulary,
    /// The vocabulary has more tokens or text than 32-bit offsets can hold.
    #[error("the vocabulary is too large: {tokens} tokens, {bytes} bytes of text")]
    VocabularyTooLarge {
        /// Number of tokens.
        tokens: usize,
        /// Sum of the tokens' lengths.
        bytes: usize,
    },
    /// Two ids have the same text, so the text has no unique id.
    #[error("duplicate token `{text}` in the vocabulary: ids {first} and {second}")]
    DuplicateToken {
        /// The common text of the two ids.
        text: String,
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
    },
    /// A per-token array is shorter than the vocabulary.
    #[error("{key} has {len} entries for a vocabulary of {tokens} tokens")]
    ArrayTooShort {
        /// The GGUF key of the array.
        key: &'static str,
        /// The number of entries.
        len: usize,
        /// The number of tokens.
        tokens: usize,
    },
    /// A token has a score that cannot be compared with others, which decide how a text is divided.
    #[error(
        "the score of token {id} is not a number (tokenizer.ggml.scores): convert the model again"
    )]
    ScoreNotANumber {
        /// The id.
        id: u32,
    },
    /// A BPE vocabulary has no merges, so it could only encode single bytes.
    #[error("the BPE vocabulary has no merges (tokenizer.ggml.merges): convert the model again")]
    MissingMerges,
    /// The map of characters of a unigram vocabulary is cut off or inconsistent.
    #[error("tokenizer.ggml.precompiled_charsmap is malformed: {0}; convert the model again")]
    MalformedCharsmap(&'static str),
    /// The file adds a special token that it does not define.
    #[error("{flag} is true but {key} is not set: set it, or set {flag} to false")]
    MissingSpecialToken {
        /// The key that adds the token.
        flag: &'static str,
        /// The key that should hold its id.
        key: &'static str,
    },
    /// A token id is outside the vocabulary.
    #[error("token id {id} is out of range: the vocabulary has {vocab_size} tokens")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// The number of tokens; valid ids are below it.
        vocab_size: u32,
    },
}
