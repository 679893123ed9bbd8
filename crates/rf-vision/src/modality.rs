//! The two kinds of input of a projector file: the type of each encoder, and the keys that both
//! have.

use std::ops::RangeInclusive;

use rf_gguf::{Gguf, Metadata};
use rf_graph::{Activation, KvLayer};

use crate::error::Error;

/// The input of an encoder. One file may have an encoder for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modality {
    Vision,
    Sound,
}

/// The largest width of rows that a file may state: widths are multiplied by sizes.
const MAX_WIDTH: usize = 1 << 20;

impl Modality {
    /// The names of the encoder's tensors begin so.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Vision => "v",
            Self::Sound => "a",
        }
    }

    fn keys(self) -> &'static str {
        match self {
            Self::Vision => "clip.vision",
            Self::Sound => "clip.audio",
        }
    }

    /// True if the tensor belongs to this encoder, or to its projection to the text model.
    pub(crate) fn owns(self, tensor: &str) -> bool {
        let is_of_sound = tensor.starts_with("a.") || tensor.starts_with("mm.a.");
        match self {
            Self::Sound => is_of_sound,
            Self::Vision => !is_of_sound && (tensor.starts_with("v.") || tensor.starts_with("mm.")),
        }
    }

    /// The type of the encoder of a file.
    ///
    /// # Errors
    ///
    /// If the file is no projector, or has no such encoder.
    pub(crate) fn projector_type(self, gguf: &Gguf) -> Result<String, Error> {
        let metadata = gguf.metadata();
        let architecture = metadata.str("general.architecture")?.unwrap_or("none");
        if architecture != "clip" {
            return Err(Error::NotAProjector { architecture: architecture.to_owned() });
        }
        let (flag, missing) = match self {
            Self::Vision => ("clip.has_vision_encoder", Error::NoVision),
            Self::Sound => ("clip.has_audio_encoder", Error::NoSound),
        };
        if metadata.bool(flag)? != Some(true) {
            return Err(missing);
        }
        let name = match metadata.str(&format!("{}.projector_type", self.keys()))? {
            Some(name) => name,
            None => metadata.required_str("clip.projector_type")?,
        };
        // Qwen 2.5 Omni has one name for two encoders.
        let name = match (name, self) {
            ("qwen2.5o", Self::Vision) => "qwen2.5vl_merger",
            ("qwen2.5o", Self::Sound) => "qwen2a",
            (name, _) => name,
        };
        Ok(name.to_owned())
    }
}

/// The sizes of the layers of an encoder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transformer {
    /// Width of a row in the encoder.
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_layers: usize,
    pub(crate) num_heads: usize,
    pub(crate) num_kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) norm_eps: f32,
    pub(crate) activation: Activation,
}

impl Transformer {
    pub(crate) fn read(keys: &Keys<'_>) -> Result<Self, Error> {
        // An encoder without layers has no heads.
        let num_layers = keys.number("block_count", 0..=1024)?;
        let least = usize::from(num_layers > 0);
        let hidden_size = keys.number("embedding_length", 1..=MAX_WIDTH)?;
        let num_heads = keys.number("attention.head_count", least..=MAX_WIDTH)?;
        let head_dim = keys.optional("attention.head_dim", 1..=MAX_WIDTH)?;
        let num_kv_heads = keys.optional("attention.head_count_kv", 1..=MAX_WIDTH)?;
        let num_kv_heads = num_kv_heads.unwrap_or(num_heads);
        if num_layers > 0 && !num_heads.is_multiple_of(num_kv_heads) {
            let reason = "it does not divide the number of heads";
            return Err(keys.invalid("attention.head_count_kv", num_kv_heads, reason));
        }
        Ok(Self {
            hidden_size,
            intermediate_size: keys.number("feed_forward_length", least..=MAX_WIDTH)?,
            num_layers,
            num_heads,
            num_kv_heads,
            head_dim: head_dim.unwrap_or(hidden_size / num_heads.max(1)),
            norm_eps: keys.metadata.required_f32(&keys.name("attention.layer_norm_epsilon"))?,
            activation: keys.activation()?,
        })
    }

    /// The layers of the cache: all layers of the encoder use the same one. There is none without
    /// layers.
    pub(crate) fn kv_layers(&self) -> Vec<KvLayer> {
        match self.num_layers {
            0 => Vec::new(),
            _ => vec![KvLayer::new(self.num_kv_heads, self.head_dim)],
        }
    }
}

/// The values of the keys of an encoder.
pub(crate) struct Keys<'a> {
    pub(crate) metadata: &'a Metadata,
    pub(crate) modality: Modality,
}

type Allowed = RangeInclusive<usize>;

impl Keys<'_> {
    /// The whole name of a key.
    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.modality.keys())
    }

    pub(crate) fn number(&self, key: &str, allowed: Allowed) -> Result<usize, Error> {
        let value = self.metadata.required_u32(&self.name(key))? as usize;
        self.checked(key, value, &allowed)
    }

    pub(crate) fn optional(&self, key: &str, allowed: Allowed) -> Result<Option<usize>, Error> {
        let value = self.metadata.u32(&self.name(key))?;
        value.map(|value| self.checked(key, value as usize, &allowed)).transpose()
    }

    pub(crate) fn optional_or(
        &self,
        key: &str,
        allowed: Allowed,
        default: Option<usize>,
    ) -> Result<usize, Error> {
        match (self.optional(key, allowed.clone())?, default) {
            (Some(value), _) | (None, Some(value)) => Ok(value),
            (None, None) => self.number(key, allowed),
        }
    }

    pub(crate) fn invalid(&self, key: &str, value: usize, reason: &'static str) -> Error {
        Error::Setting { key: self.name(key), value: value.to_string(), reason }
    }

    fn checked(&self, key: &str, value: usize, allowed: &Allowed) -> Result<usize, Error> {
        if allowed.contains(&value) {
            return Ok(value);
        }
        Err(self.invalid(key, value, "it is 0 or too large"))
    }

    /// The activation of the feed-forward layers: without a key, `x · σ(1.702x)`.
    fn activation(&self) -> Result<Activation, Error> {
        let flag = |key: &str| self.metadata.bool(key).map(Option::unwrap_or_default);
        match (flag("clip.use_gelu")?, flag("clip.use_silu")?) {
            (true, false) => Ok(Activation::GeluTanh),
            (false, true) => Ok(Activation::Silu),
            (false, false) => Ok(Activation::ClampedSwiglu),
            (true, true) => Err(Error::Setting {
                key: "clip.use_gelu".to_owned(),
                value: "true".to_owned(),
                reason: "clip.use_silu is true, too",
            }),
        }
    }
}
