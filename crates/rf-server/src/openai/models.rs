//! `/v1/models`.

use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::{Path, State};
use rf_engine::Model;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::{App, seconds_since_1970};

/// `GET /v1/models`.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": entries(&app) }))
}

/// `GET /v1/models/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    match entries(&app).into_iter().find(|entry| entry["id"] == id) {
        Some(entry) => Ok(Json(entry)),
        // The error names the models.
        None => Err(app.model(Some(&id)).err().unwrap_or_else(|| ApiError::internal(&id))),
    }
}

fn entries(app: &App) -> Vec<Value> {
    let generates = app.models().iter().map(|model| {
        let context_tokens = model.handle().max_sequence_tokens();
        entry(model.id(), model.model(), context_tokens, model.loaded())
    });
    let embeds = app.embedders().iter().map(|served| {
        let embedder = served.embedder();
        entry(served.id(), embedder.model(), embedder.context_tokens(), embedder.loaded())
    });
    generates.chain(embeds).collect()
}

fn entry(id: &str, model: &Model, context_tokens: usize, loaded: SystemTime) -> Value {
    let config = model.config();
    json!({
        "id": id,
        "object": "model",
        "created": seconds_since_1970(loaded),
        "owned_by": "rocmforge",
        "max_model_len": context_tokens,
        "status": { "value": "loaded" },
        "meta": {
            "n_vocab": config.vocab_size,
            "n_ctx": context_tokens,
            "n_ctx_train": config.context_length,
            "n_embd": config.hidden_size,
        },
    })
}
