//! Facts about a model file that APIs list, whether the model is loaded or not.

use rf_gguf::{Gguf, TensorInfo, Value as Metadatum, file_type_name};
use rf_model::ModelConfig;

/// Facts from the metadata of a file.
#[derive(Clone, Debug)]
pub(crate) struct ModelDetails {
    pub(crate) architecture: String,
    /// The number of weights.
    pub(crate) parameters: u64,
    /// The format of most weights.
    pub(crate) quantization: &'static str,
    pub(crate) file_bytes: u64,
    pub(crate) license: String,
    pub(crate) chat_template: String,
    /// True if the vocabulary has tokens to fill the gap between two texts.
    pub(crate) fills_gaps: bool,
    /// Tokens that the model was trained for.
    pub(crate) context_length: usize,
    pub(crate) hidden_size: usize,
    pub(crate) num_layers: usize,
    pub(crate) vocab_size: usize,
}

impl ModelDetails {
    pub(crate) fn new(gguf: &Gguf, config: &ModelConfig) -> Self {
        let value = |key: &str| gguf.metadata().get(key);
        let text =
            |key: &str| value(key).and_then(Metadatum::as_str).unwrap_or_default().to_owned();
        let file_type = value("general.file_type").and_then(Metadatum::as_integer);
        let file_type = file_type.and_then(|number| u32::try_from(number).ok());
        let gap_keys = ["tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"];
        Self {
            architecture: text("general.architecture"),
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
        }
    }
}
