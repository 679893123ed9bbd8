//! `POST /v1/embeddings`, and `POST /api/embed` of Ollama.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rocmforge::engine::EncodeOptions;
use rocmforge::engine::{Model, Normalization};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::Fields;
use crate::error::{ApiError, Kind};
use crate::fields::{PromptItem, TextOr};
use crate::keep_alive::KeepAlive;
use crate::ollama::nanoseconds;
use crate::prompt::beside;
use crate::state::{App, ServedEmbedder};

#[derive(Deserialize)]
struct EmbeddingFields {
    model: Option<String>,
    input: Option<TextOr<PromptItem>>,
    encoding_format: Option<EncodingFormat>,
    dimensions: Option<usize>,
    /// Ollama: cut texts that are too long.
    truncate: Option<bool>,
    keep_alive: Option<KeepAlive>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum EncodingFormat {
    Float,
    Base64,
}

/// `POST /v1/embeddings`.
pub(crate) async fn embeddings(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let fields: EmbeddingFields = fields.read()?;
    let format = fields.encoding_format.unwrap_or(EncodingFormat::Float);
    let embedder = app.embedder(fields.model.as_deref(), fields.keep_alive).await?;
    let Embedded { vectors, tokens } = embed(&embedder, fields, false).await?;
    let entry = |(index, vector): (usize, &Vec<f32>)| {
        let embedding = match format {
            EncodingFormat::Float => json!(vector),
            EncodingFormat::Base64 => json!(base64(vector)),
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    };
    Ok(Json(json!({
        "object": "list",
        "data": vectors.iter().enumerate().map(entry).collect::<Vec<_>>(),
        "model": embedder.id(),
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })))
}

/// `POST /api/embed`.
pub(crate) async fn ollama(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let arrival = Instant::now();
    let fields: EmbeddingFields = fields.read()?;
    let embedder = app.embedder(fields.model.as_deref(), fields.keep_alive).await?;
    let load_ns = nanoseconds(arrival);
    let truncate = fields.truncate.unwrap_or(true);
    let Embedded { vectors, tokens } = embed(&embedder, fields, truncate).await?;
    Ok(Json(json!({
        "model": embedder.id(),
        "embeddings": vectors,
        "total_duration": nanoseconds(arrival),
        "load_duration": load_ns,
        "prompt_eval_count": tokens,
    })))
}

struct Embedded {
    /// One vector per text, with the Euclidean length 1.
    vectors: Vec<Vec<f32>>,
    /// Tokens of all texts.
    tokens: usize,
}

async fn embed(
    embedder: &ServedEmbedder,
    fields: EmbeddingFields,
    truncate: bool,
) -> Result<Embedded, ApiError> {
    let EmbeddingFields { input, dimensions, .. } = fields;
    let most = embedder.model().context_tokens();
    let texts = beside(embedder.model().file(), move |model| texts(model, input, most, truncate));
    let texts = texts.await?;
    let tokens = texts.iter().map(Vec::len).sum();
    let mut vectors = embedder.model().embed_ids_async(texts).await?;
    for vector in &mut vectors {
        if let Some(dimensions) = dimensions {
            if !(1..=vector.len()).contains(&dimensions) {
                let message = format!("expected 1 to {} dimensions", vector.len());
                return Err(ApiError::field("dimensions", message));
            }
            vector.truncate(dimensions);
        }
        Normalization::Norm(2).apply(vector);
    }
    Ok(Embedded { vectors, tokens })
}

/// The ids of each text.
fn texts(
    model: &Model,
    input: Option<TextOr<PromptItem>>,
    most_tokens: usize,
    truncate: bool,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let encode = |text: &str| model.tokenizer().encode(text, EncodeOptions::PROMPT);
    let mut texts = match input {
        None => return Err(ApiError::field("input", "expected a text or token ids")),
        Some(TextOr::Text(text)) => vec![encode(&text)],
        Some(TextOr::List(items)) => {
            let mut ids = Vec::new();
            let mut texts = Vec::new();
            for item in items {
                match item {
                    PromptItem::Id(id) => ids.push(id),
                    PromptItem::Ids(ids) => texts.push(ids),
                    PromptItem::Text(text) => texts.push(encode(&text)),
                }
            }
            if !ids.is_empty() {
                texts.push(ids);
            }
            texts
        }
    };
    if texts.is_empty() {
        return Err(ApiError::field("input", "the list is empty"));
    }
    let vocab_size = model.tokenizer().vocab_size();
    for (index, text) in texts.iter_mut().enumerate() {
        if truncate {
            text.truncate(most_tokens);
        }
        let problem = if text.is_empty() {
            "the text has no tokens".to_owned()
        } else if let Some(id) = text.iter().find(|id| **id >= vocab_size) {
            format!("token {id} is not in the vocabulary of {vocab_size}")
        } else if text.len() > most_tokens {
            let message = format!(
                "text {index} has {} tokens and there is room for {most_tokens}: split it",
                text.len()
            );
            return Err(ApiError::new(Kind::ContextExceeded, message));
        } else {
            continue;
        };
        return Err(ApiError::field(format!("input[{index}]"), problem));
    }
    Ok(texts)
}

/// The little-endian bytes of the numbers, which clients ask for because they are shorter.
fn base64(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_numbers_is_that_of_their_bytes() {
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.0]), "AACAPwAAAMA=");
        assert_eq!(base64(&[1.0, -2.0, 0.5]), "AACAPwAAAMAAAAA/");
        assert_eq!(base64(&[]), "");
    }
}
