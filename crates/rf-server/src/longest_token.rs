//! The longest token of a vocabulary.

use std::sync::OnceLock;

use rocmforge::engine::Tokenizer;

use crate::error::ApiError;

/// The longest token of a vocabulary, which bounds the texts of a context. It is found when it is
/// needed first.
#[derive(Debug, Default)]
pub(crate) struct LongestToken(OnceLock<usize>);

impl LongestToken {
    /// The limit of a text of `most_tokens` tokens.
    pub(crate) fn text_limit(&self, tokenizer: &Tokenizer, most_tokens: usize) -> TextLimit {
        /// Vocabularies whose tokens are single characters have short tokens only.
        const MIN_TOKEN_BYTES: usize = 8;
        let most_token_bytes = *self.0.get_or_init(|| {
            let pieces = (0..tokenizer.vocab_size()).filter_map(|id| tokenizer.piece(id).ok());
            // Normalisation may shorten a text, but not to a third.
            pieces.map(|piece| piece.len()).max().unwrap_or(0).max(MIN_TOKEN_BYTES) * 3
        });
        TextLimit { most_tokens, most_token_bytes }
    }
}

/// The longest text that may fit into a context. A longer one is refused before it is tokenized,
/// which would take a minute for tens of megabytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextLimit {
    most_tokens: usize,
    /// The most bytes of a text that become one token.
    most_token_bytes: usize,
}

impl TextLimit {
    /// The tokens of the context.
    pub(crate) fn tokens(self) -> usize {
        self.most_tokens
    }

    /// The most bytes that a text within the context can have.
    pub(crate) fn bytes(self) -> usize {
        self.most_tokens.saturating_mul(self.most_token_bytes)
    }

    /// Refuses a text that has more bytes than the tokens of the context can have.
    pub(crate) fn check(self, text: &str) -> Result<(), ApiError> {
        if text.len() <= self.bytes() {
            return Ok(());
        }
        let fewest_tokens = text.len().div_ceil(self.most_token_bytes);
        Err(ApiError::prompt_bytes_too_long(text.len(), fewest_tokens, self.most_tokens))
    }
}
