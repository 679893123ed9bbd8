//! Hyper-parameters, checked once.

use rf_gguf::{Gguf, Metadata};

use crate::error::Error;
use crate::family::Family;

/// Hyper-parameters of a model, from the metadata of its file.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The architecture, from `general.architecture`.
    pub architecture: String,
    /// Properties that follow from the architecture.
    pub family: Family,
    /// Width of the residual.
    pub hidden_size: usize,
    /// Transformer layers.
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads.
    pub num_kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Tokens of context that the model was trained for.
    pub context_length: usize,
    /// Epsilon of every `RMSNorm`, added to the mean square.
    pub rms_norm_eps: f32,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Mixture of experts, if the model is one.
    pub experts: Option<ExpertConfig>,
}

/// Rotary embedding of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Rotated elements per head.
    pub dims: usize,
    /// Base of the frequencies.
    pub theta: f64,
    /// Scaling of positions.
    pub scaling: RopeScaling,
}

/// Scaling of positions beyond the training length.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// No scaling. `rope_freqs.weight` may still divide the frequencies, as in Llama 3.
    None,
    /// Positions are divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// YaRN: high frequencies are kept, low ones are scaled, with a ramp between them.
    Yarn {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Context of the original training.
        original_context: f64,
        /// Fraction of the unscaled angle at the upper end of the ramp.
        ext_factor: f64,
        /// Factor on cos and sin, in addition to the one that follows from `factor`.
        attn_factor: f64,
        /// Rotations within the original context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations below which a frequency is fully scaled.
        beta_slow: f64,
        /// Multiplier of the logarithm in the magnitude; 0 for none.
        log_multiplier: f64,
    },
}

/// Mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertConfig {
    /// Experts per layer.
    pub count: usize,
    /// Experts that each token is routed to.
    pub experts_per_token: usize,
    /// Width of one expert.
    pub intermediate_size: usize,
}

impl ModelConfig {
    /// Reads and checks the metadata.
    ///
    /// # Errors
    ///
    /// If the architecture or a setting is not supported, or a key is missing or invalid.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, Error> {
        let keys = Keys::new(gguf.metadata())?;
        let family = Family::of(&keys.architecture)?;
        let hidden_size = keys.size("embedding_length")?;
        let num_layers = keys.size("block_count")?;
        let num_heads = keys
            .per_layer("attention.head_count")?
            .ok_or_else(|| keys.missing("attention.head_count"))?;
        let num_kv_heads = keys.per_layer("attention.head_count_kv")?.unwrap_or(num_heads);
        if !num_heads.is_multiple_of(num_kv_heads) {
            return Err(keys.invalid(
                "attention.head_count_kv",
                &num_kv_heads,
                &format!("it must divide the {num_heads} query heads"),
            ));
        }
        let head_dim = match keys.optional_size("attention.key_length")? {
            Some(head_dim) => head_dim,
            None if hidden_size >= num_heads => hidden_size / num_heads,
            None => {
                return Err(keys.invalid(
                    "attention.head_count",
                    &num_heads,
                    "more heads than embedding_length",
                ));
            }
        };
        let value_length = keys.optional_size("attention.value_length")?.unwrap_or(head_dim);
        if value_length != head_dim {
            return Err(keys.unsupported(
                "attention.value_length",
                &value_length,
                &format!("it must equal the key length, {head_dim}"),
            ));
        }
        let experts = keys.experts()?;
        let intermediate_size = match (keys.per_layer("feed_forward_length")?, experts) {
            (Some(size), _) => size,
            (None, Some(experts)) => experts.intermediate_size,
            (None, None) => return Err(keys.missing("feed_forward_length")),
        };
        Ok(Self {
            family,
            hidden_size,
            num_layers,
            num_heads,
            num_kv_heads,
            head_dim,
            intermediate_size,
            vocab_size: vocab_size(gguf)?,
            context_length: keys.size("context_length")?,
            rms_norm_eps: keys.rms_norm_eps()?,
            rope: keys.rope(head_dim)?,
            experts,
            architecture: keys.architecture,
        })
    }
}

/// Rows of the embedding table. The tensor takes precedence over metadata.
fn vocab_size(gguf: &Gguf) -> Result<usize, Error> {
    if gguf.tensors().is_empty() {
        return Err(Error::VocabularyOnly);
    }
    let table = gguf.required_tensor("token_embd.weight")?;
    let rows = table.shape().get(1).copied().unwrap_or(1);
    usize::try_from(rows).map_err(|_| Error::Shape {
        name: table.name().into(),
        found: table.shape().to_vec(),
        expected: vec![0, u64::from(u32::MAX)],
    })
}

/// The metadata of one architecture: keys without the `{architecture}.` prefix.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: String,
}

/// The largest valid size. Larger ones would overflow later.
const MAX_SIZE: u64 = 1 << 31;

impl<'a> Keys<'a> {
    fn new(metadata: &'a Metadata) -> Result<Self, Error> {
        let architecture = metadata.required_str("general.architecture")?.to_owned();
        Ok(Self { metadata, architecture })
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn missing(&self, name: &str) -> Error {
        rf_gguf::Error::MissingKey { key: self.key(name) }.into()
    }

    fn invalid(&self, name: &str, value: &dyn ToString, reason: &str) -> Error {
        let (key, value) = (self.key(name), value.to_string());
        Error::InvalidSetting { key, value, reason: reason.into() }
    }

    fn unsupported(&self, name: &str, value: &dyn ToString, reason: &str) -> Error {
        let (key, value) = (self.key(name), value.to_string());
        Error::UnsupportedSetting { key, value, reason: reason.into() }
    }

    /// A size of at least 1.
    fn size(&self, name: &str) -> Result<usize, Error> {
        self.optional_size(name)?.ok_or_else(|| self.missing(name))
    }

    fn optional_size(&self, name: &str) -> Result<Option<usize>, Error> {
        let Some(size) = self.metadata.u64(&self.key(name))? else { return Ok(None) };
        self.checked_size(name, size).map(Some)
    }

    fn checked_size(&self, name: &str, size: u64) -> Result<usize, Error> {
        if size == 0 || size > MAX_SIZE {
            return Err(self.invalid(name, &size, "it must be between 1 and 2³¹"));
        }
        Ok(size as usize)
    }

    /// A size that may be an array with one entry per layer, all equal.
    fn per_layer(&self, name: &str) -> Result<Option<usize>, Error> {
        let key = self.key(name);
        match self.metadata.get(&key) {
            Some(rf_gguf::Value::Array(array)) => {
                let mut sizes = array
                    .integers()
                    .ok_or_else(|| self.invalid(name, &"array", "its elements must be integers"))?;
                let first = sizes
                    .next()
                    .ok_or_else(|| self.invalid(name, &"[]", "it needs an entry per layer"))?;
                if sizes.any(|size| size != first) {
                    return Err(self.unsupported(name, &"array", "all layers must be alike"));
                }
                let size = u64::try_from(first).unwrap_or(0);
                self.checked_size(name, size).map(Some)
            }
            _ => self.optional_size(name),
        }
    }

    fn f64(&self, name: &str, default: f64) -> Result<f64, Error> {
        let value = self.metadata.f32(&self.key(name))?.map_or(default, f64::from);
        if value.is_finite() { Ok(value) } else { Err(self.invalid(name, &value, "not a number")) }
    }

    fn rms_norm_eps(&self) -> Result<f32, Error> {
        const NAME: &str = "attention.layer_norm_rms_epsilon";
        let eps = self.metadata.f32(&self.key(NAME))?.ok_or_else(|| self.missing(NAME))?;
        if eps.is_finite() && eps >= 0.0 {
            Ok(eps)
        } else {
            Err(self.invalid(NAME, &eps, "it must be a small positive number"))
        }
    }

    fn rope(&self, head_dim: usize) -> Result<RopeConfig, Error> {
        const DIMS: &str = "rope.dimension_count";
        let dims = self.optional_size(DIMS)?.unwrap_or(head_dim);
        if dims > head_dim || !dims.is_multiple_of(2) {
            return Err(self.invalid(
                DIMS,
                &dims,
                &format!("it must be even and at most {head_dim}"),
            ));
        }
        let theta = self.f64("rope.freq_base", 10_000.0)?;
        if theta <= 0.0 {
            return Err(self.invalid("rope.freq_base", &theta, "it must be positive"));
        }
        // The older key `rope.scale_linear` is `rope.scaling.factor` of type linear.
        let old_factor = self.f64("rope.scale_linear", 0.0)?;
        let factor = self.f64("rope.scaling.factor", old_factor)?;
        let kind = self.metadata.str(&self.key("rope.scaling.type"))?.unwrap_or("linear");
        let scaling = match kind {
            "none" => RopeScaling::None,
            _ if factor == 0.0 || (kind == "linear" && (factor - 1.0).abs() < f64::EPSILON) => {
                RopeScaling::None
            }
            _ if factor < 0.0 => {
                return Err(self.invalid("rope.scaling.factor", &factor, "it must be positive"));
            }
            "linear" => RopeScaling::Linear { factor },
            "yarn" => RopeScaling::Yarn {
                factor,
                original_context: self.f64(
                    "rope.scaling.original_context_length",
                    self.size("context_length")? as f64,
                )?,
                ext_factor: self.yarn_ext_factor()?,
                attn_factor: self.f64("rope.scaling.attn_factor", 1.0)?
                    * self.f64("rope.scaling.yarn_attn_factor", 1.0)?,
                beta_fast: self.f64("rope.scaling.yarn_beta_fast", 32.0)?,
                beta_slow: self.f64("rope.scaling.yarn_beta_slow", 1.0)?,
                log_multiplier: self.f64("rope.scaling.yarn_log_multiplier", 0.0)?,
            },
            kind => {
                return Err(self.unsupported(
                    "rope.scaling.type",
                    &kind,
                    "supported are none, linear and yarn",
                ));
            }
        };
        Ok(RopeConfig { dims, theta, scaling })
    }

    /// `ext_factor` of YaRN. Negative values, also the default, stand for 1.
    fn yarn_ext_factor(&self) -> Result<f64, Error> {
        let ext_factor = self.f64("rope.scaling.yarn_ext_factor", -1.0)?;
        Ok(if ext_factor < 0.0 { 1.0 } else { ext_factor })
    }

    fn experts(&self) -> Result<Option<ExpertConfig>, Error> {
        let count = self.metadata.u64(&self.key("expert_count"))?.unwrap_or(0);
        if count == 0 {
            return Ok(None);
        }
        let count = self.checked_size("expert_count", count)?;
        let experts_per_token = self.size("expert_used_count")?;
        if experts_per_token > count {
            let reason = format!("there are {count} experts");
            return Err(self.invalid("expert_used_count", &experts_per_token, &reason));
        }
        let weights_scale = self.f64("expert_weights_scale", 0.0)?;
        if weights_scale != 0.0 && (weights_scale - 1.0).abs() > f64::EPSILON {
            let reason = "only a scale of 1 is";
            return Err(self.unsupported("expert_weights_scale", &weights_scale, reason));
        }
        let intermediate_size = match self.optional_size("expert_feed_forward_length")? {
            Some(size) => size,
            None => self
                .per_layer("feed_forward_length")?
                .ok_or_else(|| self.missing("feed_forward_length"))?,
        };
        Ok(Some(ExpertConfig { count, experts_per_token, intermediate_size }))
    }
}
