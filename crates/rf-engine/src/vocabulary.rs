//! The tokenizer of a file.

use rf_gguf::Gguf;
use rf_tokenizer::{Tokenizer, VocabConfig};

use crate::error::Error;

/// The key of the chat template.
pub(crate) const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

/// Builds the tokenizer of a file, which may be a vocabulary without tensors.
///
/// # Errors
///
/// If the file has no vocabulary, or one that is not supported.
pub fn tokenizer_from_gguf(gguf: &Gguf) -> Result<Tokenizer, Error> {
    Ok(Tokenizer::new(VocabConfig::from_gguf(gguf)?)?)
}
