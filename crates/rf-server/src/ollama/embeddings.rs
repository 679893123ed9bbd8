//! `POST /api/embeddings`, which clients from before `/api/embed` send.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::embeddings::{EmbeddingFields, Vector, embed};
use crate::body::Fields;
use crate::error::ApiError;
use crate::keep_alive::KeepAlive;
use crate::state::App;

/// One text.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "OllamaEmbeddingFields")]
pub(crate) struct PromptFields {
    model: Option<String>,
    prompt: Option<String>,
    /// A duration such as `5m`, or seconds.
    #[schemars(with = "Option<Value>")]
    keep_alive: Option<KeepAlive>,
}

/// The vector of a text; empty for a request that only loads the model.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EmbeddingAnswer {
    embedding: Vector,
}

/// Makes the vector of a text.
pub(crate) async fn embeddings(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<EmbeddingAnswer>, ApiError> {
    let PromptFields { model, prompt, keep_alive } = fields.read()?;
    drop(fields);
    let embedder = app.embedder(model.as_deref(), keep_alive).await?;
    let Some(prompt) = prompt.filter(|prompt| !prompt.is_empty()) else {
        return Ok(Json(EmbeddingAnswer { embedding: Vector(Vec::new()) }));
    };
    let mut embedded = embed(&embedder, EmbeddingFields::of_text(prompt), true).await?;
    let embedding = embedded.vectors.pop().unwrap_or(Vector(Vec::new()));
    Ok(Json(EmbeddingAnswer { embedding }))
}
