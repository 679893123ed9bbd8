//! `POST /api/embed`.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::nanoseconds;
use crate::api::embeddings::{Embedded, EmbeddingFields, Vector};
use crate::body::Fields;
use crate::error::ApiError;
use crate::keep_alive::KeepAlive;
use crate::state::App;

/// The fields of a request, besides its texts.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EmbedFields {
    model: Option<String>,
    /// Cut texts that are too long.
    truncate: Option<bool>,
    /// A duration such as `5m`, or seconds.
    #[schemars(with = "Option<Value>")]
    keep_alive: Option<KeepAlive>,
}

/// The vectors of a request, with counts and times.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EmbedAnswer {
    model: String,
    embeddings: Vec<Vector>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

/// Makes the vectors of texts.
pub(crate) async fn embed(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<EmbedAnswer>, ApiError> {
    let arrival = Instant::now();
    let EmbedFields { model, truncate, keep_alive } = fields.read()?;
    let texts: EmbeddingFields = fields.read()?;
    drop(fields);
    let embedder = app.embedder(model.as_deref(), keep_alive).await?;
    let load_duration = nanoseconds(arrival);
    let truncate = truncate.unwrap_or(true);
    let embedded = crate::api::embeddings::embed(&embedder, texts, truncate).await?;
    let Embedded { vectors: embeddings, tokens: prompt_eval_count } = embedded;
    Ok(Json(EmbedAnswer {
        model: embedder.id().to_owned(),
        embeddings,
        total_duration: nanoseconds(arrival),
        load_duration,
        prompt_eval_count,
    }))
}
