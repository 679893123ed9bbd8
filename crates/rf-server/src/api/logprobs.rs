//! Tokens with their log probabilities.

use rocmforge::engine::Tokenizer;
use schemars::JsonSchema;
use serde::Serialize;

use crate::generation::TokenLogprob;

/// A token with its alternatives, each in the form `T` of an API.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}WithAlternatives")]
pub(crate) struct WithAlternatives<T> {
    #[serde(flatten)]
    token: T,
    top_logprobs: Vec<T>,
}

/// A token of an answer, to be put into the form of an API.
pub(crate) struct ScoredToken {
    pub(crate) id: u32,
    pub(crate) text: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) logprob: f64,
}

impl ScoredToken {
    fn new(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Self {
        let bytes = piece(tokenizer, id);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Self { id, text, bytes, logprob: finite(logprob) }
    }
}

/// The tokens of an answer in the form of an API.
pub(crate) fn with_alternatives<T: From<ScoredToken>>(
    tokenizer: &Tokenizer,
    logprobs: &[TokenLogprob],
) -> Vec<WithAlternatives<T>> {
    let token = |id: u32, logprob: f32| T::from(ScoredToken::new(tokenizer, id, logprob));
    let entry = |found: &TokenLogprob| WithAlternatives {
        token: token(found.id, found.logprob),
        top_logprobs: found.top.iter().map(|&(id, logprob)| token(id, logprob)).collect(),
    };
    logprobs.iter().map(entry).collect()
}

/// The text of a token, which need not be whole characters.
pub(crate) fn piece(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    tokenizer.piece(id).unwrap_or_default()
}

/// Log probabilities as JSON has no infinity.
pub(crate) fn finite(logprob: f32) -> f64 {
    f64::from(logprob.max(-9999.0))
}
