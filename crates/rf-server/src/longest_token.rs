//! The longest token of a vocabulary.

use std::sync::OnceLock;

use rocmforge::engine::Tokenizer;

/// The longest token of a vocabulary, which bounds the texts of a context. It is found when it is
/// needed first.
#[derive(Debug, Default)]
pub(crate) struct LongestToken(OnceLock<usize>);

impl LongestToken {
    /// The most bytes that a text of `most_tokens` tokens can have.
    pub(crate) fn text_bytes(&self, tokenizer: &Tokenizer, most_tokens: usize) -> usize {
        /// Vocabularies whose tokens are single characters have short tokens only.
        const MIN_TOKEN_BYTES: usize = 8;
        let longest = self.0.get_or_init(|| {
            let pieces = (0..tokenizer.vocab_size()).filter_map(|id| tokenizer.piece(id).ok());
            // Normalisation may shorten a text, but not to a third.
            pieces.map(|piece| piece.len()).max().unwrap_or(0).max(MIN_TOKEN_BYTES) * 3
        });
        most_tokens.saturating_mul(*longest)
    }
}
