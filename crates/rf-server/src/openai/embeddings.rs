//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::embeddings::{Embedded, EmbeddingFields, Vector, embed};
use crate::body::Fields;
use crate::error::ApiError;
use crate::keep_alive::KeepAlive;
use crate::state::App;

/// The fields of a request, besides its texts.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct FormatFields {
    model: Option<String>,
    encoding_format: Option<EncodingFormat>,
    /// A duration such as `5m`, or seconds.
    #[schemars(with = "Option<Value>")]
    keep_alive: Option<KeepAlive>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum EncodingFormat {
    Float,
    Base64,
}

/// The vectors of a request.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EmbeddingList {
    object: &'static str,
    data: Vec<EmbeddingEntry>,
    model: String,
    usage: EmbeddingUsage,
}

#[derive(Serialize, JsonSchema)]
struct EmbeddingEntry {
    object: &'static str,
    index: usize,
    embedding: Encoded,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Encoded {
    Float(Vector),
    Base64(String),
}

#[derive(Serialize, JsonSchema)]
struct EmbeddingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// `POST /v1/embeddings`.
pub(crate) async fn embeddings(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<EmbeddingList>, ApiError> {
    let FormatFields { model, encoding_format, keep_alive } = fields.read()?;
    let texts: EmbeddingFields = fields.read()?;
    drop(fields);
    let format = encoding_format.unwrap_or(EncodingFormat::Float);
    let embedder = app.embedder(model.as_deref(), keep_alive).await?;
    let Embedded { vectors, tokens } = embed(&embedder, texts, false).await?;
    if vectors.is_empty() {
        return Err(ApiError::field("input", "the list is empty"));
    }
    let entry = |(index, vector): (usize, Vector)| {
        let embedding = match format {
            EncodingFormat::Float => Encoded::Float(vector),
            EncodingFormat::Base64 => Encoded::Base64(base64(&vector.0)),
        };
        EmbeddingEntry { object: "embedding", index, embedding }
    };
    Ok(Json(EmbeddingList {
        object: "list",
        data: vectors.into_iter().enumerate().map(entry).collect(),
        model: embedder.id().to_owned(),
        usage: EmbeddingUsage { prompt_tokens: tokens, total_tokens: tokens },
    }))
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
