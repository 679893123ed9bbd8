//! Facts about a model file, whether the model is loaded or not.

use rf_gguf::{Gguf, TensorInfo, Value as Metadatum, file_type_name};
use rf_model::{ModelConfig, Pooling};

use crate::error::Error;
use crate::sampling_defaults::SamplingDefaults;

/// Facts from the metadata of a file, for lists of models.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelDetails {
    /// `general.architecture`.
    pub architecture: String,
    /// True if the model generates text; false if it makes embeddings only.
    pub generates: bool,
    /// True if the model scores documents: its pooling is rank.
    pub reranks: bool,
    /// Number of weights.
    pub parameters: u64,
    /// The format of most weights.
    pub quantization: &'static str,
    /// Size of the file, in bytes.
    pub file_bytes: u64,
    /// `general.license`; empty if the file names none.
    pub license: String,
    /// Source of the chat template; empty if the file has none.
    pub chat_template: String,
    /// True if the vocabulary has tokens to fill the gap between two texts.
    pub fills_gaps: bool,
    /// Tokens that the model was trained for.
    pub context_length: usize,
    /// Elements of a state.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_layers: usize,
    /// Number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// The parameters of sampling that the file recommends.
    pub sampling: SamplingDefaults,
}

impl ModelDetails {
    /// Reads the metadata of a file. Its weights are not touched.
    ///
    /// # Errors
    ///
    /// If the model is not supported.
    pub fn of(gguf: &Gguf) -> Result<Self, Error> {
        Ok(Self::new(gguf, &ModelConfig::from_gguf(gguf).map_err(rf_engine::Error::from)?))
    }

    pub(crate) fn new(gguf: &Gguf, config: &ModelConfig) -> Self {
        let value = |key: &str| gguf.metadata().get(key);
        let text =
            |key: &str| value(key).and_then(Metadatum::as_str).unwrap_or_default().to_owned();
        let file_type = value("general.file_type").and_then(Metadatum::as_integer);
        let file_type = file_type.and_then(|number| u32::try_from(number).ok());
        let gap_keys = ["tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"];
        Self {
            architecture: text("general.architecture"),
            generates: config.generates(),
            reranks: config.pooling == Some(Pooling::Rank),
            parameters: gguf.tensors().iter().map(TensorInfo::elements).sum(),
            quantization: file_type.and_then(file_type_name).unwrap_or("unknown"),
            file_bytes: gguf.file_bytes(),
            license: text("general.license"),
            chat_template: text("tokenizer.chat_template"),
            fills_gaps: gap_keys.iter().any(|key| value(key).is_some()),
            context_length: config.context_length,
            hidden_size: config.hidden_size,
            num_layers: config.num_layers(),
            vocab_size: config.vocab_size,
            sampling: SamplingDefaults::of(gguf),
        }
    }
}
