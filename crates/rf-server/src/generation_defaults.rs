//! Parameters of generation for requests that set none.

use rocmforge::SamplerConfig;

use crate::setters::setters;

/// Parameters of generation besides those of [`SamplerConfig`], for requests that set none. The
/// names are those of requests.
///
/// ```
/// use rf_server::GenerationDefaults;
///
/// let short = GenerationDefaults::default().with_max_tokens(256).with_stop(vec!["\n".to_owned()]);
/// assert!(short.validate().is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GenerationDefaults {
    /// The most tokens of an answer; `None` for as many as the context has room for.
    pub max_tokens: Option<usize>,
    /// The fewest tokens of an answer.
    pub min_tokens: usize,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// Tokens that end an answer.
    pub stop_token_ids: Vec<u32>,
    /// True if the end token of the model does not end an answer.
    pub ignore_eos: bool,
    /// Texts that an answer must not have.
    pub bad_words: Vec<String>,
    /// The most tokens of reasoning, after which the content begins.
    pub thinking_token_budget: Option<usize>,
    /// Texts whose tokens end repetitions (DRY); `None` for those of llama.cpp.
    pub dry_sequence_breakers: Option<Vec<String>>,
}

impl GenerationDefaults {
    setters! {
        with_max_tokens(max_tokens: impl Into<Option<usize>>);
        with_min_tokens(min_tokens: usize);
        with_stop(stop: Vec<String>);
        with_stop_token_ids(stop_token_ids: Vec<u32>);
        with_ignore_eos(ignore_eos: bool);
        with_bad_words(bad_words: Vec<String>);
        with_thinking_token_budget(thinking_token_budget: impl Into<Option<usize>>);
        with_dry_sequence_breakers(dry_sequence_breakers: impl Into<Option<Vec<String>>>);
    }
}

/// The parameters that a request has where it sets none.
#[derive(Debug)]
pub(crate) struct RequestDefaults {
    pub(crate) sampler: SamplerConfig,
    pub(crate) generation: GenerationDefaults,
}
