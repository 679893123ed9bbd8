//! Parameters of generation that all APIs share: names of `OpenAI`, llama.cpp and vLLM.

use rocmforge::AdapterScales;
use rocmforge::engine::sampling::{
    self, DryConfig, MirostatConfig, MirostatVersion, SamplerConfig, SamplerKind,
};
use rocmforge::engine::scheduler::Request;
use rocmforge::engine::{EncodeOptions, GenerateOptions, Model};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::adapters::{self, AdapterScale};
use crate::error::{ApiError, Error, check_count};
use crate::fields::{BiasedToken, LogitBias, TextOr};
use crate::generation_defaults::{GenerationDefaults, RequestDefaults};
use crate::token_rules::{TokenRuleFields, TokenRules};

/// The fields of a request. What is absent has the default of the server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct SamplingFields {
    pub(crate) temperature: Option<f32>,
    pub(crate) top_k: Option<i64>,
    pub(crate) top_p: Option<f32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) typical_p: Option<f32>,
    pub(crate) repeat_penalty: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) repeat_last_n: Option<i64>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) dry_multiplier: Option<f32>,
    pub(crate) dry_base: Option<f32>,
    pub(crate) dry_allowed_length: Option<usize>,
    pub(crate) dry_penalty_last_n: Option<i64>,
    pub(crate) dry_sequence_breakers: Option<Vec<String>>,
    pub(crate) top_n_sigma: Option<f32>,
    pub(crate) xtc_probability: Option<f32>,
    pub(crate) xtc_threshold: Option<f32>,
    pub(crate) dynatemp_range: Option<f32>,
    pub(crate) dynatemp_exponent: Option<f32>,
    pub(crate) mirostat: Option<u8>,
    pub(crate) mirostat_tau: Option<f32>,
    pub(crate) mirostat_eta: Option<f32>,
    pub(crate) samplers: Option<Vec<String>>,
    pub(crate) logit_bias: Option<LogitBias>,
    pub(crate) seed: Option<i64>,
    pub(crate) stop: Option<TextOr<String>>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) max_tokens: Option<i64>,
    pub(crate) max_completion_tokens: Option<i64>,
    pub(crate) n_predict: Option<i64>,
    pub(crate) num_predict: Option<i64>,
    pub(crate) max_output_tokens: Option<i64>,
    pub(crate) n: Option<usize>,
    pub(crate) n_cmpl: Option<usize>,
    pub(crate) priority: Option<i32>,
    /// Tokens that end the answer.
    pub(crate) stop_token_ids: Option<Vec<u32>>,
    /// The answer does not end on its own before it has this many tokens.
    pub(crate) min_tokens: Option<usize>,
    /// Texts that the answer must not have.
    pub(crate) bad_words: Option<Vec<String>>,
    /// The only tokens that the answer may have.
    pub(crate) allowed_token_ids: Option<Vec<u32>>,
    /// The most tokens of reasoning, after which the content begins.
    #[serde(alias = "reasoning_budget", alias = "thinking_budget_tokens")]
    pub(crate) thinking_token_budget: Option<i64>,
    /// The adapters that change the answer. Those that the list leaves out do not. Absent: the
    /// scales of `/lora-adapters`.
    pub(crate) lora: Option<Vec<AdapterScale>>,
}

/// Parameters of a generation.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    pub(crate) options: GenerateOptions,
    pub(crate) num_choices: usize,
    pub(crate) priority: i32,
    /// Log probabilities per token: those of the token itself and of this many others.
    pub(crate) logprobs: Option<usize>,
    /// Log probabilities per token of the prompt, counted as `logprobs`.
    pub(crate) prompt_logprobs: Option<usize>,
    /// The prefix cache is used if true.
    pub(crate) use_prefix_cache: bool,
    pub(crate) token_rules: TokenRules,
    /// `None` for the scales of the model.
    pub(crate) adapters: Option<AdapterScales>,
}

/// The largest number of stop strings.
const MAX_STOP_STRINGS: usize = 64;
/// The longest stop string, in bytes.
const MAX_STOP_BYTES: usize = 1024;
/// The most strings that end repetitions, each of which is looked for in all tokens.
const MAX_BREAKERS: usize = 64;
/// The longest string that ends repetitions, in bytes.
const MAX_BREAKER_BYTES: usize = 256;
/// The longest text of a bias, in bytes: it is tokenized before the request waits for its turn.
const MAX_BIASED_BYTES: usize = 256;
/// The most samplers of a chain.
const MAX_SAMPLERS: usize = 32;
/// Most alternatives per token; vLLM has the same limit.
pub(crate) const MAX_LOGPROBS: usize = 20;

impl SamplingFields {
    /// The parameters for `model`, where `defaults` are those of the server.
    pub(crate) fn params(
        mut self,
        model: &Model,
        defaults: &RequestDefaults,
    ) -> Result<Params, ApiError> {
        let RequestDefaults { sampler: defaults, generation } = defaults;
        let count = |value: i64| usize::try_from(value).ok();
        let max_tokens = self
            .max_completion_tokens
            .or(self.max_output_tokens)
            .or(self.max_tokens)
            .or(self.n_predict)
            .or(self.num_predict);
        let adapters = self.lora.as_deref().map(|list| adapters::scales(list, model));
        let adapters = adapters.transpose()?;
        let num_choices = self.n.or(self.n_cmpl).unwrap_or(1);
        let most = Request::MAX_CHOICES;
        if !(1..=most).contains(&num_choices) {
            return Err(ApiError::field("n", format!("expected 1 to {most} choices")));
        }
        let breakers = self.dry_sequence_breakers.take();
        let breakers = breakers.or_else(|| generation.dry_sequence_breakers.clone());
        check_breakers(breakers.as_deref().unwrap_or_default())?;
        check_count("samplers", self.samplers.as_ref().map_or(0, Vec::len), MAX_SAMPLERS)?;
        let dry = self.dry(model, breakers.as_deref(), &defaults.dry);
        let (mirostat, samplers) = (self.mirostat(defaults)?, self.samplers(defaults)?);
        let stop = self.stop.map_or_else(|| generation.stop.clone(), TextOr::into_vec);
        check_stop(&stop)?;
        let token_rules = TokenRuleFields {
            stop_token_ids: self.stop_token_ids.take(),
            min_tokens: self.min_tokens,
            bad_words: self.bad_words.take(),
            allowed_token_ids: self.allowed_token_ids.take(),
            thinking_token_budget: self.thinking_token_budget,
        };
        let token_rules = token_rules.or(generation).rules(model)?;
        let logit_bias = match self.logit_bias {
            Some(bias) => token_biases(bias, model)?,
            None => defaults.logit_bias.clone(),
        };
        let sampler = SamplerConfig::default()
            .with_temperature(self.temperature.unwrap_or(defaults.temperature))
            // All tokens are -1 in vLLM and 0 here and in llama.cpp.
            .with_top_k(self.top_k.map_or(defaults.top_k, |k| count(k).unwrap_or(0)))
            .with_top_p(self.top_p.unwrap_or(defaults.top_p))
            .with_min_p(self.min_p.unwrap_or(defaults.min_p))
            .with_typical_p(self.typical_p.unwrap_or(defaults.typical_p))
            .with_repeat_penalty(
                self.repeat_penalty.or(self.repetition_penalty).unwrap_or(defaults.repeat_penalty),
            )
            .with_repeat_last_n(self.repeat_last_n.map_or(defaults.repeat_last_n, count))
            .with_presence_penalty(self.presence_penalty.unwrap_or(defaults.presence_penalty))
            .with_frequency_penalty(self.frequency_penalty.unwrap_or(defaults.frequency_penalty))
            .with_logit_bias(logit_bias)
            .with_dry(dry)
            .with_top_n_sigma(self.top_n_sigma.unwrap_or(defaults.top_n_sigma))
            .with_xtc_probability(self.xtc_probability.unwrap_or(defaults.xtc_probability))
            .with_xtc_threshold(self.xtc_threshold.unwrap_or(defaults.xtc_threshold))
            .with_dynatemp_range(self.dynatemp_range.unwrap_or(defaults.dynatemp_range))
            .with_dynatemp_exponent(self.dynatemp_exponent.unwrap_or(defaults.dynatemp_exponent))
            .with_mirostat(mirostat)
            .with_samplers(samplers)
            // A negative seed asks for a new one.
            .with_seed(self.seed.map_or(defaults.seed, |seed| u64::try_from(seed).ok()));
        sampler.validate().map_err(|error| match &error {
            sampling::Error::Parameter { name, value, expected } => {
                ApiError::field(*name, format!("{value} is out of range, expected {expected}"))
            }
            _ => ApiError::invalid(error.to_string()),
        })?;
        Ok(Params {
            options: GenerateOptions::default()
                .with_sampler(sampler)
                .with_max_tokens(max_tokens.map_or(generation.max_tokens, count))
                .with_stop(stop.into_iter().filter(|stop| !stop.is_empty()).collect())
                .with_ignore_eos(self.ignore_eos.unwrap_or(generation.ignore_eos)),
            num_choices,
            priority: self.priority.unwrap_or(0),
            logprobs: None,
            prompt_logprobs: None,
            use_prefix_cache: true,
            token_rules,
            adapters,
        })
    }
}

impl SamplingFields {
    fn dry(&self, model: &Model, breakers: Option<&[String]>, defaults: &DryConfig) -> DryConfig {
        let multiplier = self.dry_multiplier.unwrap_or(defaults.multiplier);
        let breakers = match breakers {
            // Finding them takes a pass over the vocabulary.
            _ if multiplier <= 0.0 => Vec::new(),
            Some(texts) => model.tokens_containing(texts),
            None if defaults.breakers.is_empty() => {
                model.tokens_containing(&DryConfig::DEFAULT_BREAKERS)
            }
            None => defaults.breakers.clone(),
        };
        let last_n = |tokens: i64| usize::try_from(tokens).ok();
        DryConfig::default()
            .with_multiplier(multiplier)
            .with_base(self.dry_base.unwrap_or(defaults.base))
            .with_allowed_length(self.dry_allowed_length.unwrap_or(defaults.allowed_length))
            .with_last_n(self.dry_penalty_last_n.map_or(defaults.last_n, last_n))
            .with_breakers(breakers)
    }

    fn mirostat(&self, defaults: &SamplerConfig) -> Result<Option<MirostatConfig>, ApiError> {
        let version = match self.mirostat {
            None => defaults.mirostat.map(|mirostat| mirostat.version),
            Some(0) => None,
            Some(1) => Some(MirostatVersion::V1),
            Some(2) => Some(MirostatVersion::V2),
            Some(_) => return Err(ApiError::field("mirostat", "expected 0, 1 or 2")),
        };
        let base = defaults.mirostat;
        Ok(version.map(|version| {
            MirostatConfig::new(version)
                .with_tau(self.mirostat_tau.or(base.map(|m| m.tau)).unwrap_or(MirostatConfig::TAU))
                .with_eta(self.mirostat_eta.or(base.map(|m| m.eta)).unwrap_or(MirostatConfig::ETA))
        }))
    }

    fn samplers(&self, defaults: &SamplerConfig) -> Result<Vec<SamplerKind>, ApiError> {
        let Some(names) = &self.samplers else { return Ok(defaults.samplers.clone()) };
        let kinds = names.iter().map(|name| name.parse());
        kinds.collect::<Result<_, String>>().map_err(|error| ApiError::field("samplers", error))
    }
}

impl GenerationDefaults {
    /// Checks the lists against the limits of requests. The ids of tokens are checked when a
    /// request comes, because they depend on the model.
    ///
    /// # Errors
    ///
    /// [`Error::Default`] with the name of the first parameter out of range.
    pub fn validate(&self) -> Result<(), Error> {
        self.checked().map_err(|error| Error::Default {
            name: error.param.unwrap_or_default(),
            message: error.message,
        })
    }

    fn checked(&self) -> Result<(), ApiError> {
        check_stop(&self.stop)?;
        check_breakers(self.dry_sequence_breakers.as_deref().unwrap_or_default())?;
        TokenRuleFields::default().or(self).check_lists()
    }
}

fn token_biases(bias: LogitBias, model: &Model) -> Result<Vec<(u32, f32)>, ApiError> {
    let tokenizer = model.tokenizer();
    // Each bias is added for each token of the answer.
    let most = tokenizer.vocab_size() as usize;
    check_count("logit_bias", bias.0.len(), most)?;
    let mut biases = Vec::with_capacity(bias.0.len());
    for (token, bias) in bias.0 {
        match token {
            BiasedToken::Id(id) if id >= tokenizer.vocab_size() => {
                let message =
                    format!("token {id} is not in the vocabulary of {}", tokenizer.vocab_size());
                return Err(ApiError::field("logit_bias", message));
            }
            BiasedToken::Id(id) => biases.push((id, bias)),
            BiasedToken::Text(text) if text.len() > MAX_BIASED_BYTES => {
                let message = format!("a text is longer than {MAX_BIASED_BYTES} bytes");
                return Err(ApiError::field("logit_bias", message));
            }
            BiasedToken::Text(text) => {
                let ids = tokenizer.encode(&text, EncodeOptions::PLAIN);
                biases.extend(ids.into_iter().map(|id| (id, bias)));
                // A text may be many tokens.
                check_count("logit_bias", biases.len(), most)?;
            }
        }
    }
    Ok(biases)
}

/// Checks texts that end an answer.
pub(crate) fn check_stop(stop: &[String]) -> Result<(), ApiError> {
    check_count("stop", stop.len(), MAX_STOP_STRINGS)?;
    check_bytes("stop", stop.iter(), MAX_STOP_BYTES)
}

/// Checks texts that end repetitions.
pub(crate) fn check_breakers(breakers: &[String]) -> Result<(), ApiError> {
    check_count("dry_sequence_breakers", breakers.len(), MAX_BREAKERS)?;
    check_bytes("dry_sequence_breakers", breakers.iter(), MAX_BREAKER_BYTES)
}

/// Refuses a list with a text of more than `most` bytes.
fn check_bytes<'a>(
    name: &'static str,
    mut texts: impl Iterator<Item = &'a String>,
    most: usize,
) -> Result<(), ApiError> {
    match texts.position(|text| text.len() > most) {
        Some(index) => {
            let message = format!("string {} is longer than {most} bytes", index + 1);
            Err(ApiError::field(name, message))
        }
        None => Ok(()),
    }
}

/// Checks a number of alternatives per token.
pub(crate) fn check_logprobs(name: &'static str, count: usize) -> Result<usize, ApiError> {
    if count > MAX_LOGPROBS {
        return Err(ApiError::field(name, format!("is {count}; the maximum is {MAX_LOGPROBS}")));
    }
    Ok(count)
}
