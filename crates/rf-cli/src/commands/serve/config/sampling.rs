//! Parameters of requests that set none, in the file of options and in models that clients make.

use std::collections::BTreeMap;

use rf_server::GenerationDefaults;
use rocmforge::SamplerConfig;
use rocmforge::engine::sampling::{Error, MirostatConfig, MirostatVersion, SamplerKind};
use serde::Deserialize;

/// Parameters for requests that set none, with the names that requests use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SamplingOptions {
    temperature: Option<f32>,
    /// 0 and negative numbers keep all tokens.
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    top_n_sigma: Option<f32>,
    #[serde(alias = "repetition_penalty")]
    repeat_penalty: Option<f32>,
    /// -1 for the whole context.
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    dry_multiplier: Option<f32>,
    dry_base: Option<f32>,
    dry_allowed_length: Option<usize>,
    /// -1 for the whole context.
    dry_penalty_last_n: Option<i64>,
    dry_sequence_breakers: Option<Vec<String>>,
    xtc_probability: Option<f32>,
    xtc_threshold: Option<f32>,
    dynatemp_range: Option<f32>,
    dynatemp_exponent: Option<f32>,
    mirostat: Option<MirostatChoice>,
    mirostat_tau: Option<f32>,
    mirostat_eta: Option<f32>,
    samplers: Option<Vec<NamedSampler>>,
    logit_bias: Option<TokenBiases>,
    /// A negative number takes a new seed for each request.
    seed: Option<i64>,
    /// A negative number is no limit.
    #[serde(alias = "num_predict", alias = "n_predict")]
    max_tokens: Option<i64>,
    min_tokens: Option<usize>,
    stop: Option<StopTexts>,
    stop_token_ids: Option<Vec<u32>>,
    ignore_eos: Option<bool>,
    bad_words: Option<Vec<String>>,
    /// A negative number is no limit.
    thinking_token_budget: Option<i64>,
}

/// A parameter out of range.
#[derive(Debug)]
pub(crate) struct SamplingMistake {
    /// The names that the parameter may have.
    pub(super) names: Vec<String>,
    /// The problem, with the name of the parameter.
    pub(crate) message: String,
}

/// The most samplers of a chain.
const MAX_SAMPLERS: usize = 32;

impl SamplingOptions {
    /// Checks the parameters.
    pub(crate) fn check(&self) -> Result<(), SamplingMistake> {
        let count = self.samplers.as_ref().map_or(0, Vec::len);
        if count > MAX_SAMPLERS {
            let message = format!("samplers: {count} entries; the maximum is {MAX_SAMPLERS}");
            return Err(SamplingMistake { names: vec!["samplers".to_owned()], message });
        }
        self.over(&SamplerConfig::default()).validate().map_err(|error| {
            let names = match &error {
                Error::Parameter { name: "repeat_penalty", .. } => {
                    vec!["repeat_penalty".to_owned(), "repetition_penalty".to_owned()]
                }
                Error::Parameter { name, .. } => vec![(*name).to_owned()],
                _ => Vec::new(),
            };
            SamplingMistake { names, message: error.to_string() }
        })?;
        self.generation().validate().map_err(|error| {
            let names = match &error {
                // An entry of a list, such as `bad_words[0]`, is at the place of the list.
                rf_server::Error::Default { name, .. } => {
                    name.split('[').next().map(str::to_owned).into_iter().collect()
                }
                _ => Vec::new(),
            };
            SamplingMistake { names, message: error.to_string() }
        })
    }

    /// The parameters of sampling, of which absent ones are those of `base`.
    pub(crate) fn over(&self, base: &SamplerConfig) -> SamplerConfig {
        let tokens = |n: Option<i64>| n.map(|n| usize::try_from(n).ok());
        let mut config = base.clone();
        set(&mut config.temperature, self.temperature);
        set(&mut config.top_k, self.top_k.map(|k| usize::try_from(k).unwrap_or(0)));
        set(&mut config.top_p, self.top_p);
        set(&mut config.min_p, self.min_p);
        set(&mut config.typical_p, self.typical_p);
        set(&mut config.top_n_sigma, self.top_n_sigma);
        set(&mut config.repeat_penalty, self.repeat_penalty);
        set(&mut config.repeat_last_n, tokens(self.repeat_last_n));
        set(&mut config.presence_penalty, self.presence_penalty);
        set(&mut config.frequency_penalty, self.frequency_penalty);
        set(&mut config.dry.multiplier, self.dry_multiplier);
        set(&mut config.dry.base, self.dry_base);
        set(&mut config.dry.allowed_length, self.dry_allowed_length);
        set(&mut config.dry.last_n, tokens(self.dry_penalty_last_n));
        set(&mut config.xtc_probability, self.xtc_probability);
        set(&mut config.xtc_threshold, self.xtc_threshold);
        set(&mut config.dynatemp_range, self.dynatemp_range);
        set(&mut config.dynatemp_exponent, self.dynatemp_exponent);
        config.mirostat = self.mirostat(base.mirostat);
        let samplers = self.samplers.as_ref();
        set(&mut config.samplers, samplers.map(|list| list.iter().map(|kind| kind.0).collect()));
        set(&mut config.logit_bias, self.logit_bias.as_ref().map(|biases| biases.0.clone()));
        set(&mut config.seed, self.seed.map(|seed| u64::try_from(seed).ok()));
        config
    }

    fn mirostat(&self, base: Option<MirostatConfig>) -> Option<MirostatConfig> {
        let version = match self.mirostat {
            None => base?.version,
            Some(MirostatChoice(version)) => version?,
        };
        let mut config = MirostatConfig::new(version);
        set(&mut config.tau, self.mirostat_tau.or(base.map(|base| base.tau)));
        set(&mut config.eta, self.mirostat_eta.or(base.map(|base| base.eta)));
        Some(config)
    }

    /// The other parameters.
    pub(crate) fn generation(&self) -> GenerationDefaults {
        let count = |n: i64| usize::try_from(n).ok();
        let stop = match &self.stop {
            None => Vec::new(),
            Some(StopTexts::One(text)) => vec![text.clone()],
            Some(StopTexts::Several(texts)) => texts.clone(),
        };
        GenerationDefaults::default()
            .with_max_tokens(self.max_tokens.and_then(count))
            .with_min_tokens(self.min_tokens.unwrap_or(0))
            .with_stop(stop)
            .with_stop_token_ids(self.stop_token_ids.clone().unwrap_or_default())
            .with_ignore_eos(self.ignore_eos.unwrap_or(false))
            .with_bad_words(self.bad_words.clone().unwrap_or_default())
            .with_thinking_token_budget(self.thinking_token_budget.and_then(count))
            .with_dry_sequence_breakers(self.dry_sequence_breakers.clone())
    }
}

fn set<T>(own: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *own = value;
    }
}

/// The version of Mirostat; `None` turns it off.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "i64")]
struct MirostatChoice(Option<MirostatVersion>);

impl TryFrom<i64> for MirostatChoice {
    type Error = &'static str;

    fn try_from(number: i64) -> Result<Self, Self::Error> {
        match number {
            0 => Ok(Self(None)),
            1 => Ok(Self(Some(MirostatVersion::V1))),
            2 => Ok(Self(Some(MirostatVersion::V2))),
            _ => Err("expected 0, 1 or 2"),
        }
    }
}

/// A sampler by its name.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct NamedSampler(SamplerKind);

impl TryFrom<String> for NamedSampler {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map(Self)
    }
}

/// Biases of tokens, whose ids are keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "BTreeMap<String, f32>")]
struct TokenBiases(Vec<(u32, f32)>);

impl TryFrom<BTreeMap<String, f32>> for TokenBiases {
    type Error = String;

    fn try_from(biases: BTreeMap<String, f32>) -> Result<Self, String> {
        let biases = biases.into_iter().map(|(token, bias)| match token.parse() {
            Ok(id) => Ok((id, bias)),
            Err(_) => {
                Err(format!("{token:?} is no token: give its id, which `rf-cli tokenize` shows"))
            }
        });
        Ok(Self(biases.collect::<Result<_, _>>()?))
    }
}

/// Texts that end an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum StopTexts {
    One(String),
    Several(Vec<String>),
}

#[cfg(test)]
mod tests {
    use rocmforge::engine::sampling::DryConfig;

    use super::*;

    #[test]
    fn parameters_have_the_names_of_requests() {
        let options: SamplingOptions = toml::from_str(
            "mirostat = 2\nmirostat_tau = 3\ndynatemp_range = 0.5\ndry_multiplier = 0.8\n\
             dry_penalty_last_n = -1\nsamplers = [\"top_k\", \"temp\"]\nlogit_bias = { 7 = -inf }\n\
             top_k = -1\nseed = -1\nrepetition_penalty = 1.5\nmax_tokens = 9\nmin_tokens = 2\n\
             stop = \"x\"\nbad_words = [\"y\"]\nthinking_token_budget = -1\nignore_eos = true\n\
             stop_token_ids = [5]\ndry_sequence_breakers = []\n",
        )
        .unwrap();
        assert!(options.check().is_ok());
        let base = SamplerConfig::default()
            .with_seed(3)
            .with_mirostat(MirostatConfig::new(MirostatVersion::V1).with_eta(0.25));
        let expected = base
            .clone()
            .with_mirostat(MirostatConfig::new(MirostatVersion::V2).with_tau(3.0).with_eta(0.25))
            .with_dynatemp_range(0.5)
            .with_dry(DryConfig::default().with_multiplier(0.8).with_last_n(None))
            .with_samplers(vec![SamplerKind::TopK, SamplerKind::Temperature])
            .with_logit_bias(vec![(7, f32::NEG_INFINITY)])
            .with_top_k(0)
            .with_seed(None)
            .with_repeat_penalty(1.5);
        assert_eq!(options.over(&base), expected);
        let generation = GenerationDefaults::default()
            .with_max_tokens(9)
            .with_min_tokens(2)
            .with_stop(vec!["x".to_owned()])
            .with_bad_words(vec!["y".to_owned()])
            .with_ignore_eos(true)
            .with_stop_token_ids(vec![5])
            .with_dry_sequence_breakers(Vec::new());
        assert_eq!(options.generation(), generation);
    }

    #[test]
    fn mirostat_can_be_turned_off() {
        let options: SamplingOptions = toml::from_str("mirostat = 0\nmirostat_tau = 3\n").unwrap();
        let base = SamplerConfig::default().with_mirostat(MirostatConfig::new(MirostatVersion::V1));
        assert_eq!(options.over(&base).mirostat, None);
    }
}
