//! The metadata of one architecture: keys without the `{architecture}.` prefix, checked.

use std::cell::RefCell;

use rf_gguf::{Array, Gguf, Metadata, Value};
use rf_graph::layer::{BeforeAttention, ExpertSpec};
use rf_graph::{Activation, ExpertGroups, GateFunction};

use crate::error::Error;
use crate::pooling::Pooling;
use crate::rope::{RopeConfig, RopeScaling};
use crate::weights::check_finite;

/// The largest valid size. Larger ones would overflow later.
const MAX_SIZE: u64 = 1 << 31;

const TOKENS: &str = "tokenizer.ggml.tokens";

/// A model file under inspection.
pub(crate) struct Keys<'a> {
    gguf: &'a Gguf,
    metadata: &'a Metadata,
    pub(crate) architecture: String,
    /// Names of the tensors that [`Self::values`] found.
    tensors_read: RefCell<Vec<String>>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(gguf: &'a Gguf) -> Result<Self, Error> {
        let metadata = gguf.metadata();
        let architecture = metadata.required_str("general.architecture")?.to_owned();
        Ok(Self { gguf, metadata, architecture, tensors_read: RefCell::default() })
    }

    /// Returns true if the file has a tensor.
    pub(crate) fn has_tensor(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    pub(crate) fn num_tensors(&self) -> usize {
        self.gguf.tensors().len()
    }

    /// The values of a small tensor, if the file has it.
    pub(crate) fn values(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
        let values = crate::weights::values(self.gguf, name, len)?;
        if let Some(values) = &values {
            check_finite(name, values)?;
            self.tensors_read.borrow_mut().push(name.to_owned());
        }
        Ok(values)
    }

    /// The values of a tensor of divisors, as those of RoPE's frequencies, if the file has it.
    pub(crate) fn divisors(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, Error> {
        let values = self.values(name, len)?;
        let bad = values.iter().flatten().position(|value| *value <= 0.0);
        match bad {
            Some(index) => Err(Error::NotPositive { name: name.into(), index }),
            None => Ok(values),
        }
    }

    /// Marks a tensor as one that is not used, if the file has it.
    pub(crate) fn ignore(&self, name: String) {
        self.tensors_read.borrow_mut().push(name);
    }

    /// Names of the tensors whose values were read, or that are not used.
    pub(crate) fn into_tensors_read(self) -> Vec<String> {
        self.tensors_read.into_inner()
    }

    /// The shape of a tensor, if the file has it.
    pub(crate) fn shape(&self, name: &str) -> Option<&[u64]> {
        self.gguf.tensor(name).map(rf_gguf::TensorInfo::shape)
    }

    /// Rows of a matrix, if the file has it.
    pub(crate) fn rows(&self, name: &str) -> Option<usize> {
        let shape = self.gguf.tensor(name)?.shape();
        usize::try_from(shape.get(1).copied().unwrap_or(1)).ok()
    }

    /// Rows of the embedding table. The tensor takes precedence over metadata.
    pub(crate) fn vocab_size(&self) -> Result<usize, Error> {
        if self.gguf.tensors().is_empty() {
            return Err(Error::VocabularyOnly);
        }
        let table = self.gguf.required_tensor("token_embd.weight")?;
        let rows = self.rows("token_embd.weight").ok_or_else(|| Error::Shape {
            name: table.name().into(),
            found: table.shape().to_vec(),
            expected: vec![0, u64::from(u32::MAX)],
        })?;
        // A token without a row, or a row without a token, would fail only once it occurs.
        match self.metadata.strings(TOKENS)? {
            Some(tokens) if tokens.len() != rows => Err(Error::InvalidSetting {
                key: TOKENS.into(),
                value: format!("array of {}", tokens.len()),
                reason: format!("token_embd.weight has {rows} rows"),
            }),
            _ => Ok(rows),
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    pub(crate) fn missing(&self, name: &str) -> Error {
        rf_gguf::Error::MissingKey { key: self.key(name) }.into()
    }

    pub(crate) fn invalid(&self, name: &str, value: &dyn ToString, reason: &str) -> Error {
        let (key, value) = (self.key(name), value.to_string());
        Error::InvalidSetting { key, value, reason: reason.into() }
    }

    pub(crate) fn unsupported(&self, name: &str, value: &dyn ToString, reason: &str) -> Error {
        let (key, value) = (self.key(name), value.to_string());
        Error::UnsupportedSetting { key, value, reason: reason.into() }
    }

    /// A size of at least 1.
    pub(crate) fn size(&self, name: &str) -> Result<usize, Error> {
        self.optional_size(name)?.ok_or_else(|| self.missing(name))
    }

    /// A size that is multiplied by others.
    pub(crate) fn small_size(&self, name: &str) -> Result<usize, Error> {
        const MOST: usize = 1 << 16;
        let size = self.size(name)?;
        if size > MOST {
            return Err(self.invalid(name, &size, "it must be at most 65536"));
        }
        Ok(size)
    }

    pub(crate) fn optional_size(&self, name: &str) -> Result<Option<usize>, Error> {
        let Some(size) = self.metadata.u64(&self.key(name))? else { return Ok(None) };
        self.checked_size(name, size).map(Some)
    }

    /// A count, 0 if the key is absent.
    pub(crate) fn count(&self, name: &str) -> Result<usize, Error> {
        match self.metadata.u64(&self.key(name))? {
            None | Some(0) => Ok(0),
            Some(count) => self.checked_size(name, count),
        }
    }

    pub(crate) fn checked_size(&self, name: &str, size: u64) -> Result<usize, Error> {
        if size == 0 || size > MAX_SIZE {
            return Err(self.invalid(name, &size, "it must be between 1 and 2³¹"));
        }
        Ok(size as usize)
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Error> {
        match self.metadata.get(&self.key(name)) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.invalid(name, &"value", "it must be true or false")),
        }
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Error> {
        Ok(self.metadata.str(&self.key(name))?)
    }

    /// A list of flags, one per layer.
    pub(crate) fn flags(&self, name: &str) -> Result<Option<Vec<bool>>, Error> {
        match self.metadata.get(&self.key(name)) {
            None => Ok(None),
            Some(Value::Array(Array::Bool(flags))) => {
                self.check_entries(name, flags.len(), self.size("block_count")?)?;
                Ok(Some(flags.clone()))
            }
            Some(_) => Err(self.invalid(name, &"value", "it must be a list of booleans")),
        }
    }

    /// One size per layer: an array with an entry for each, or one value for all.
    pub(crate) fn per_layer(
        &self,
        name: &str,
        num_layers: usize,
    ) -> Result<Option<Vec<usize>>, Error> {
        let sizes = self.counts_per_layer(name, num_layers)?;
        for size in sizes.iter().flatten() {
            self.checked_size(name, *size as u64)?;
        }
        Ok(sizes)
    }

    /// Bounds of gated units: one per layer, or one for all. 0 is none.
    pub(crate) fn clamps(&self, name: &str, num_layers: usize) -> Result<Vec<Option<f32>>, Error> {
        /// The least value of `SiLU` is above its negative.
        const LEAST: f32 = 0.28;
        let bounds = match self.metadata.get(&self.key(name)) {
            Some(Value::Array(Array::F32(bounds))) => {
                self.check_entries(name, bounds.len(), num_layers)?;
                bounds[..num_layers].to_vec()
            }
            Some(Value::Array(_)) => {
                return Err(self.invalid(name, &"array", "its elements must be f32"));
            }
            _ => vec![self.f64(name, 0.0)? as f32; num_layers],
        };
        match bounds.iter().find(|bound| **bound != 0.0 && !(LEAST..).contains(*bound)) {
            Some(bound) => Err(self.unsupported(name, bound, "it must be 0, or at least 0.28")),
            None => Ok(bounds.iter().map(|bound| Some(*bound).filter(|b| *b > 0.0)).collect()),
        }
    }

    /// As [`per_layer`](Self::per_layer), where 0 stands for a layer of another kind.
    pub(crate) fn counts_per_layer(
        &self,
        name: &str,
        num_layers: usize,
    ) -> Result<Option<Vec<usize>>, Error> {
        let Some(Value::Array(array)) = self.metadata.get(&self.key(name)) else {
            let count = self.count(name)?;
            let exists = self.metadata.get(&self.key(name)).is_some();
            return Ok(exists.then(|| vec![count; num_layers]));
        };
        let counts = array
            .integers()
            .ok_or_else(|| self.invalid(name, &"array", "its elements must be integers"))?;
        let counts = counts.map(|count| match u64::try_from(count) {
            Ok(0) => Ok(0),
            count => self.checked_size(name, count.unwrap_or(0)),
        });
        let counts = counts.collect::<Result<Vec<_>, _>>()?;
        self.check_entries(name, counts.len(), num_layers)?;
        Ok(Some(counts))
    }

    /// A list has an entry for each layer, or for each block: blocks that predict further tokens
    /// follow the layers.
    fn check_entries(&self, name: &str, entries: usize, num_layers: usize) -> Result<(), Error> {
        if entries == num_layers || Some(entries) == self.optional_size("block_count")? {
            return Ok(());
        }
        let reason = format!("it needs an entry for each of {num_layers} layers");
        Err(self.invalid(name, &format!("array of {entries}"), &reason))
    }

    pub(crate) fn f64(&self, name: &str, default: f64) -> Result<f64, Error> {
        Ok(self.optional_f64(name)?.unwrap_or(default))
    }

    pub(crate) fn optional_f64(&self, name: &str) -> Result<Option<f64>, Error> {
        let Some(value) = self.metadata.f32(&self.key(name))?.map(f64::from) else {
            return Ok(None);
        };
        if value.is_finite() {
            Ok(Some(value))
        } else {
            Err(self.invalid(name, &value, "not a number"))
        }
    }

    /// A number per layer: an array with an entry for each, or one value for all. The key is whole,
    /// without the prefix of the architecture.
    pub(crate) fn f32_per_layer(&self, key: &str, num_layers: usize) -> Result<Vec<f32>, Error> {
        let invalid = |value: &dyn ToString, reason: &str| Error::InvalidSetting {
            key: key.into(),
            value: value.to_string(),
            reason: reason.into(),
        };
        let values = match self.metadata.get(key) {
            None => return Err(rf_gguf::Error::MissingKey { key: key.into() }.into()),
            Some(Value::F32(value)) => vec![*value; num_layers],
            Some(Value::Array(Array::F32(values))) if values.len() == num_layers => values.clone(),
            Some(_) => {
                let reason = format!("it must be a float, or one for each of {num_layers} layers");
                return Err(invalid(&"value", &reason));
            }
        };
        match values.iter().find(|value| !value.is_finite()) {
            Some(value) => Err(invalid(value, "not a number")),
            None => Ok(values),
        }
    }

    /// A factor other than 0; `default` if the key is absent.
    pub(crate) fn factor(&self, name: &str, default: f32) -> Result<f32, Error> {
        match self.optional_f64(name)? {
            None => Ok(default),
            Some(0.0) => Err(self.invalid(name, &0, "a factor of 0 removes what it scales")),
            Some(value) => Ok(value as f32),
        }
    }

    /// A softcap; `None` if the key is absent or 0 and there is no default.
    pub(crate) fn softcap(&self, name: &str, default: Option<f32>) -> Result<Option<f32>, Error> {
        let Some(cap) = self.optional_f64(name)? else { return Ok(default) };
        if cap < 0.0 {
            return Err(self.invalid(name, &cap, "it must be positive"));
        }
        Ok((cap > 0.0).then_some(cap as f32))
    }

    /// The epsilon of norms, from one of the two keys.
    pub(crate) fn norm_eps(&self, name: &str) -> Result<f32, Error> {
        let eps = self.metadata.f32(&self.key(name))?.ok_or_else(|| self.missing(name))?;
        if eps.is_finite() && eps >= 0.0 {
            Ok(eps)
        } else {
            Err(self.invalid(name, &eps, "it must be a small positive number"))
        }
    }

    /// True for each layer with a sliding window: a pattern of `period` layers whose last one is
    /// full, or a list, from `attention.sliding_window_pattern`. `default_period` 0 is all full.
    pub(crate) fn windowed(
        &self,
        num_layers: usize,
        default_period: usize,
    ) -> Result<Vec<bool>, Error> {
        const NAME: &str = "attention.sliding_window_pattern";
        let pattern = |period: usize| {
            (0..num_layers).map(|layer| period > 0 && layer % period < period - 1).collect()
        };
        match self.metadata.get(&self.key(NAME)) {
            None => Ok(pattern(default_period)),
            Some(Value::Array(Array::Bool(flags))) => {
                // Further entries are ignored, as in llama.cpp.
                let known = flags.get(..num_layers).ok_or_else(|| {
                    let reason = format!("it needs an entry for each of {num_layers} layers");
                    self.invalid(NAME, &format!("array of {}", flags.len()), &reason)
                })?;
                Ok(known.to_vec())
            }
            Some(Value::Array(_)) => {
                Err(self.invalid(NAME, &"array", "its elements must be booleans"))
            }
            Some(_) => Ok(pattern(self.size(NAME)?)),
        }
    }

    /// The rotary embedding of heads of `head_dim` elements.
    pub(crate) fn rope(&self, head_dim: usize) -> Result<RopeConfig, Error> {
        let dims = self.rope_dims("rope.dimension_count", head_dim)?;
        let theta = self.rope_theta("rope.freq_base", 10_000.0)?;
        // The older key `rope.scale_linear` is `rope.scaling.factor` of type linear.
        let old_factor = self.f64("rope.scale_linear", 0.0)?;
        let factor = self.f64("rope.scaling.factor", old_factor)?;
        let kind = self.metadata.str(&self.key("rope.scaling.type"))?.unwrap_or("linear");
        let mut magnitude = self.f64("rope.scaling.attn_factor", 1.0)?;
        if !["none", "linear", "yarn", "longrope"].contains(&kind) {
            let supported = "supported are none, linear, yarn and longrope";
            return Err(self.unsupported("rope.scaling.type", &kind, supported));
        }
        let scaling = match kind {
            // The factors of longrope are tensors.
            "none" | "longrope" => RopeScaling::None,
            _ if factor == 0.0 || (kind == "linear" && (factor - 1.0).abs() < f64::EPSILON) => {
                RopeScaling::None
            }
            _ if factor < 0.0 => {
                return Err(self.invalid("rope.scaling.factor", &factor, "it must be positive"));
            }
            "linear" => RopeScaling::Linear { factor },
            _ => {
                magnitude *= self.f64("rope.scaling.yarn_attn_factor", 1.0)?;
                RopeScaling::Yarn {
                    factor,
                    original_context: self.original_context()? as f64,
                    ext_factor: self.yarn_ext_factor()?,
                    beta_fast: self.f64("rope.scaling.yarn_beta_fast", 32.0)?,
                    beta_slow: self.f64("rope.scaling.yarn_beta_slow", 1.0)?,
                    log_multiplier: self.f64("rope.scaling.yarn_log_multiplier", 0.0)?,
                }
            }
        };
        Ok(RopeConfig { head_dim, dims, theta, scaling, magnitude })
    }

    /// The number of RoPE pairs of each coordinate of a position; `None` if the key is absent.
    pub(crate) fn rope_sections(&self) -> Result<Option<[usize; 4]>, Error> {
        const NAME: &str = "rope.dimension_sections";
        let Some(value) = self.metadata.get(&self.key(NAME)) else { return Ok(None) };
        let sizes = match value {
            Value::Array(array) => array.integers().map(|sizes| {
                sizes
                    .map(|size| u16::try_from(size).map(usize::from))
                    .collect::<Result<Vec<_>, _>>()
            }),
            _ => None,
        };
        match sizes {
            Some(Ok(sizes)) if (1..=4).contains(&sizes.len()) => {
                let mut all = [0; 4];
                all[..sizes.len()].copy_from_slice(&sizes);
                Ok(Some(all))
            }
            _ => Err(self.invalid(NAME, &"value", "it must be a list of four small numbers")),
        }
    }

    pub(crate) fn rope_dims(&self, name: &str, head_dim: usize) -> Result<usize, Error> {
        let dims = self.optional_size(name)?.unwrap_or(head_dim);
        if dims > head_dim || !dims.is_multiple_of(2) {
            let reason = format!("it must be even and at most {head_dim}");
            return Err(self.invalid(name, &dims, &reason));
        }
        Ok(dims)
    }

    pub(crate) fn rope_theta(&self, name: &str, default: f64) -> Result<f64, Error> {
        let theta = self.f64(name, default)?;
        if theta <= 0.0 {
            return Err(self.invalid(name, &theta, "it must be positive"));
        }
        Ok(theta)
    }

    /// Tokens of context before the positions were extended.
    pub(crate) fn original_context(&self) -> Result<usize, Error> {
        // 0 stands for the trained context, as in llama.cpp.
        match self.count("rope.scaling.original_context_length")? {
            0 => self.size("context_length"),
            tokens => Ok(tokens),
        }
    }

    /// `ext_factor` of YaRN. Negative values, also the default, stand for 1.
    fn yarn_ext_factor(&self) -> Result<f64, Error> {
        let ext_factor = self.f64("rope.scaling.yarn_ext_factor", -1.0)?;
        Ok(if ext_factor < 0.0 { 1.0 } else { ext_factor })
    }

    /// The pooling of states; `None` if the file names none.
    pub(crate) fn pooling(&self) -> Result<Option<Pooling>, Error> {
        const NAME: &str = "pooling_type";
        Ok(match self.count(NAME)? {
            0 => None,
            1 => Some(Pooling::Mean),
            2 => Some(Pooling::Cls),
            3 => Some(Pooling::Last),
            4 => Some(Pooling::Rank),
            other => {
                let supported = "supported are 0 (none), 1 (mean), 2 (cls), 3 (last) and 4 (rank)";
                return Err(self.unsupported(NAME, &other, supported));
            }
        })
    }

    /// The mixture of experts, if the model is one: softmax over all experts, normalised weights,
    /// unless the keys say otherwise.
    pub(crate) fn experts(&self) -> Result<Option<ExpertSpec>, Error> {
        let count = self.count("expert_count")?;
        if count == 0 {
            return Ok(None);
        }
        let experts_per_token = self.size("expert_used_count")?;
        if experts_per_token > count {
            let reason = format!("there are {count} experts");
            return Err(self.invalid("expert_used_count", &experts_per_token, &reason));
        }
        let intermediate_size = match self.optional_size("expert_feed_forward_length")? {
            Some(size) => size,
            None => self.size("feed_forward_length")?,
        };
        let shared = match self.optional_size("expert_shared_feed_forward_length")? {
            Some(size) => size,
            None => self.count("expert_shared_count")? * intermediate_size,
        };
        let scale = self.f64("expert_weights_scale", 0.0)? as f32;
        Ok(Some(ExpertSpec {
            count,
            experts_per_token,
            intermediate_size,
            activation: Activation::Silu,
            gated: true,
            clamp: None,
            gate: self.gate_function()?,
            groups: self.expert_groups(count, experts_per_token)?,
            normalize: self.flag("expert_weights_norm")?.unwrap_or(true),
            scale: if scale == 0.0 { 1.0 } else { scale },
            scales_input: false,
            shared_intermediate_size: (shared > 0).then_some(shared),
            before_attention: BeforeAttention::Nothing,
            adjugates: None,
            shared_clamp: None,
            output_scale: 1.0,
        }))
    }

    fn gate_function(&self) -> Result<GateFunction, Error> {
        const NAME: &str = "expert_gating_func";
        match self.count(NAME)? {
            0 | 1 => Ok(GateFunction::Softmax),
            2 => Ok(GateFunction::Sigmoid),
            3 => Ok(GateFunction::SoftmaxOfSelected),
            other => {
                let supported =
                    "supported are 1 (softmax), 2 (sigmoid) and 3 (softmax of selected)";
                Err(self.unsupported(NAME, &other, supported))
            }
        }
    }

    fn expert_groups(
        &self,
        experts: usize,
        experts_per_token: usize,
    ) -> Result<Option<ExpertGroups>, Error> {
        let count = self.count("expert_group_count")?;
        if count <= 1 {
            return Ok(None);
        }
        let selected = self.size("expert_group_used_count")?;
        if !experts.is_multiple_of(count) || experts / count < 2 {
            let reason = format!("it must divide the {experts} experts into groups of at least 2");
            return Err(self.invalid("expert_group_count", &count, &reason));
        }
        if selected > count {
            let reason = format!("there are {count} groups");
            return Err(self.invalid("expert_group_used_count", &selected, &reason));
        }
        let candidates = selected * (experts / count);
        if candidates < experts_per_token {
            let reason = format!(
                "{selected} of {count} groups have {candidates} experts, and a token uses {experts_per_token}"
            );
            return Err(self.invalid("expert_group_used_count", &selected, &reason));
        }
        Ok(Some(ExpertGroups { count, selected }))
    }
}
