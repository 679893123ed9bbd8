//! `/tokenizer_info` of vLLM: the chat template and the tokens that programs for evaluations need.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ApiError;
use crate::llama_cpp::ModelQuery;
use crate::state::App;

/// The tokenizer of a model, with the names of Hugging Face.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TokenizerInfo {
    /// The family: `gpt2` (BPE), `llama` (`SentencePiece`) or another word of GGUF.
    tokenizer_class: String,
    chat_template: Option<String>,
    bos_token: Option<String>,
    eos_token: Option<String>,
    pad_token: Option<String>,
    unk_token: Option<String>,
    add_bos_token: bool,
    add_eos_token: bool,
    model_max_length: usize,
    vocab_size: u32,
}

/// `GET /tokenizer_info`.
pub(crate) async fn tokenizer_info(
    State(app): State<Arc<App>>,
    query: Result<Query<ModelQuery>, QueryRejection>,
) -> Result<Json<TokenizerInfo>, ApiError> {
    let Query(query) = query?;
    let served = app.loaded_model(query.model.as_deref())?;
    let model = served.model();
    let tokenizer = model.tokenizer();
    let text = |id: Option<u32>| id.and_then(|id| tokenizer.token(id)).map(str::to_owned);
    let family = model.gguf().metadata().str("tokenizer.ggml.model").ok().flatten();
    Ok(Json(TokenizerInfo {
        tokenizer_class: family.unwrap_or_default().to_owned(),
        chat_template: model.chat_template().map(|template| template.source().to_owned()),
        bos_token: text(tokenizer.bos()),
        eos_token: text(tokenizer.eos()),
        pad_token: text(tokenizer.pad()),
        unk_token: text(tokenizer.unk()),
        add_bos_token: tokenizer.adds_bos(),
        add_eos_token: tokenizer.adds_eos(),
        model_max_length: served.handle().max_sequence_tokens(),
        vocab_size: tokenizer.vocab_size(),
    }))
}
