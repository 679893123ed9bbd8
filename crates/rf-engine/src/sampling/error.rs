//! Errors of sampling.

/// Invalid parameters, or logits without a candidate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is outside its valid range.
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
