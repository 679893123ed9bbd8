//! The parameters of the sampler chain, with llama.cpp's defaults.

use super::error::Error;

/// Parameters of the sampler chain. [`Default`] has the values of llama.cpp's command line.
///
/// ```
/// use rf_engine::sampling::SamplerConfig;
///
/// let creative = SamplerConfig { temperature: 1.2, min_p: 0.1, ..SamplerConfig::default() };
/// assert!(creative.validate().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq)]
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
    /// Seed of the draws; `None` draws one, see [`Sampler::seed`](super::Sampler::seed). Default
    /// `None`.
    pub seed: Option<u64>,
}

impl SamplerConfig {
    /// The most probable token, always: temperature 0.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether the choice is made without a draw.
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
