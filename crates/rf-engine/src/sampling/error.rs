//! What can go wrong between a sampler's parameters and a token.

/// Why a sampler could not be made, or could not choose a token.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter outside the range in which it means something.
    #[error("{name} is {value}, expected {expected}")]
    Parameter {
        /// The field of [`SamplerConfig`](super::SamplerConfig).
        name: &'static str,
        /// The value given.
        value: f32,
        /// The valid range in words.
        expected: &'static str,
    },
    /// The logits slice has no entry.
    #[error("no logits to choose a token from")]
    EmptyLogits,
    /// Every token is ruled out, by NaN from the model or by the logit bias.
    #[error("none of the {vocab_size} logits is above negative infinity")]
    NoCandidates {
        /// Number of logits looked at.
        vocab_size: usize,
    },
}
