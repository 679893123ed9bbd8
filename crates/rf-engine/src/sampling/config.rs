//! The parameters of the sampler chain, with llama.cpp's defaults.

use super::dry::DryConfig;
use super::error::Error;
use super::kind::SamplerKind;
use super::mirostat::MirostatConfig;
use crate::setters::setters;

/// Parameters of the sampler chain. [`Default`] has the values of llama.cpp's command line.
///
/// ```
/// use rf_engine::sampling::SamplerConfig;
///
/// let creative = SamplerConfig::default().with_temperature(1.2).with_min_p(0.1);
/// assert!(creative.validate().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SamplerConfig {
    /// Divides the logits before the draw: below 1 sharpens, above 1 flattens. 0 or below is
    /// greedy: always the best token. Default 0.8.
    pub temperature: f32,
    /// Keeps the `top_k` largest logits; 0 keeps all. Default 40.
    pub top_k: usize,
    /// Keeps the fewest most probable tokens whose probabilities sum to at least `top_p` (nucleus
    /// sampling); 1 keeps all, 0 keeps one. Default 0.95.
    pub top_p: f32,
    /// Keeps tokens at least `min_p` times as probable as the most probable one; 0 keeps all.
    /// Default 0.05.
    pub min_p: f32,
    /// Keeps the tokens whose information content −log p is nearest to the entropy of the
    /// distribution, until their probabilities sum to more than `typical_p`; 1 keeps all. Default
    /// 1.
    pub typical_p: f32,
    /// Makes tokens of the window less likely: divides their positive logits, multiplies their
    /// negative ones. 1 changes nothing, below 1 encourages repetition. Default 1.
    pub repeat_penalty: f32,
    /// How many of the latest tokens the three penalties look at; `Some(0)` turns them off, `None`
    /// (-1 on llama.cpp's command line) looks at the whole sequence. Default 64.
    pub repeat_last_n: Option<usize>,
    /// Subtracted once from the logit of every token in the window. Default 0.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token once per occurrence in the window. Default 0.
    pub frequency_penalty: f32,
    /// `(token id, bias)`: added to the raw logits; negative infinity rules a token out, an id
    /// twice adds twice, an id beyond the vocabulary has no effect. Default empty.
    pub logit_bias: Vec<(u32, f32)>,
    /// Penalties for tokens that continue a repetition. Off by default.
    pub dry: DryConfig,
    /// Keeps logits of at least the largest one minus this many standard deviations; 0 or below
    /// keeps all. Default −1.
    pub top_n_sigma: f32,
    /// The probability with which [`xtc_threshold`](Self::xtc_threshold) takes effect. Default 0.
    pub xtc_probability: f32,
    /// Removes all tokens of at least this probability but the least probable of them; above 0.5
    /// it has no effect. Default 0.1.
    pub xtc_threshold: f32,
    /// The temperature varies with the entropy by up to this much; 0 for a constant temperature.
    /// Default 0.
    pub dynatemp_range: f32,
    /// The exponent of the entropy in the dynamic temperature. Default 1.
    pub dynatemp_exponent: f32,
    /// Mirostat instead of all samplers but the temperature. Default `None`.
    pub mirostat: Option<MirostatConfig>,
    /// The samplers in their order. A sampler that is left out has no effect. Default
    /// [`SamplerKind::ALL`].
    pub samplers: Vec<SamplerKind>,
    /// Seed of the draws; `None` draws one, see [`Sampler::seed`](super::Sampler::seed). Default
    /// `None`.
    pub seed: Option<u64>,
}

impl SamplerConfig {
    /// The most probable token, always: temperature 0.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    setters! {
        with_temperature(temperature: f32);
        with_top_k(top_k: usize);
        with_top_p(top_p: f32);
        with_min_p(min_p: f32);
        with_typical_p(typical_p: f32);
        with_repeat_penalty(repeat_penalty: f32);
        with_repeat_last_n(repeat_last_n: impl Into<Option<usize>>);
        with_presence_penalty(presence_penalty: f32);
        with_frequency_penalty(frequency_penalty: f32);
        with_logit_bias(logit_bias: Vec<(u32, f32)>);
        with_dry(dry: DryConfig);
        with_top_n_sigma(top_n_sigma: f32);
        with_xtc_probability(xtc_probability: f32);
        with_xtc_threshold(xtc_threshold: f32);
        with_dynatemp_range(dynatemp_range: f32);
        with_dynatemp_exponent(dynatemp_exponent: f32);
        with_mirostat(mirostat: impl Into<Option<MirostatConfig>>);
        with_samplers(samplers: Vec<SamplerKind>);
        with_seed(seed: impl Into<Option<u64>>);
    }

    /// Returns true if the choice is made without a draw.
    pub(super) fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }

    /// Checks every parameter against its range.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] for the first one outside, with its name, its value and the valid
    /// range.
    pub fn validate(&self) -> Result<(), Error> {
        const NOT_NEGATIVE: &str = "a finite number, 0 or above";
        let check = |name, value: f32, valid: bool, expected| {
            if valid { Ok(()) } else { Err(Error::Parameter { name, value, expected }) }
        };
        let finite = |name, value: f32| check(name, value, value.is_finite(), "a finite number");
        let fraction = |name, value: f32| {
            check(name, value, (0.0..=1.0).contains(&value), "a number from 0 to 1")
        };

        finite("temperature", self.temperature)?;
        fraction("top_p", self.top_p)?;
        fraction("min_p", self.min_p)?;
        fraction("typical_p", self.typical_p)?;
        let positive = self.repeat_penalty.is_finite() && self.repeat_penalty > 0.0;
        check("repeat_penalty", self.repeat_penalty, positive, "a finite number above 0")?;
        finite("presence_penalty", self.presence_penalty)?;
        finite("frequency_penalty", self.frequency_penalty)?;
        let at_least = |name, value: f32, least: f32, expected| {
            check(name, value, value.is_finite() && value >= least, expected)
        };
        at_least("dry_multiplier", self.dry.multiplier, 0.0, NOT_NEGATIVE)?;
        at_least("dry_base", self.dry.base, 1.0, "a finite number, 1 or above")?;
        finite("top_n_sigma", self.top_n_sigma)?;
        fraction("xtc_probability", self.xtc_probability)?;
        fraction("xtc_threshold", self.xtc_threshold)?;
        at_least("dynatemp_range", self.dynatemp_range, 0.0, NOT_NEGATIVE)?;
        at_least("dynatemp_exponent", self.dynatemp_exponent, 0.0, NOT_NEGATIVE)?;
        if let Some(MirostatConfig { tau, eta, .. }) = self.mirostat {
            at_least("mirostat_tau", tau, 0.0, NOT_NEGATIVE)?;
            at_least("mirostat_eta", eta, 0.0, NOT_NEGATIVE)?;
        }
        for &(_, bias) in &self.logit_bias {
            let valid = bias.is_finite() || bias == f32::NEG_INFINITY;
            check("logit_bias", bias, valid, "finite numbers or negative infinity")?;
        }
        Ok(())
    }
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            repeat_last_n: Some(64),
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            dry: DryConfig::default(),
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            mirostat: None,
            samplers: SamplerKind::ALL.to_vec(),
            seed: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_sample() {
        let config = SamplerConfig::default();
        assert_eq!(config.validate(), Ok(()));
        assert!(!config.is_greedy());
        assert!(SamplerConfig::greedy().is_greedy());
    }

    #[test]
    fn each_bad_parameter_is_named_with_its_range() {
        let base = SamplerConfig::default;
        let bad = [
            ("temperature", SamplerConfig { temperature: f32::NAN, ..base() }),
            ("top_p", SamplerConfig { top_p: 1.01, ..base() }),
            ("min_p", SamplerConfig { min_p: -0.1, ..base() }),
            ("typical_p", SamplerConfig { typical_p: f32::NAN, ..base() }),
            ("repeat_penalty", SamplerConfig { repeat_penalty: 0.0, ..base() }),
            ("presence_penalty", SamplerConfig { presence_penalty: f32::INFINITY, ..base() }),
            ("frequency_penalty", SamplerConfig { frequency_penalty: f32::NAN, ..base() }),
            (
                "dry_base",
                SamplerConfig { dry: DryConfig { base: 0.5, ..DryConfig::default() }, ..base() },
            ),
            ("top_n_sigma", SamplerConfig { top_n_sigma: f32::NAN, ..base() }),
            ("xtc_probability", SamplerConfig { xtc_probability: 1.5, ..base() }),
            ("xtc_threshold", SamplerConfig { xtc_threshold: -1.0, ..base() }),
            ("dynatemp_range", SamplerConfig { dynatemp_range: -1.0, ..base() }),
            ("logit_bias", SamplerConfig { logit_bias: vec![(3, f32::INFINITY)], ..base() }),
        ];
        for (expected, config) in bad {
            match config.validate() {
                Err(Error::Parameter { name, .. }) => assert_eq!(name, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
        let message = SamplerConfig { top_p: 1.5, ..base() }.validate().unwrap_err().to_string();
        assert_eq!(message, "top_p is 1.5, expected a number from 0 to 1");
    }

    #[test]
    fn limits_of_the_ranges_are_valid() {
        let edge = SamplerConfig {
            temperature: -1.0,
            top_k: 0,
            top_p: 0.0,
            min_p: 1.0,
            typical_p: 0.0,
            repeat_last_n: None,
            logit_bias: vec![(0, f32::NEG_INFINITY)],
            ..SamplerConfig::default()
        };
        assert_eq!(edge.validate(), Ok(()));
    }
}
