//! `/v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::{App, ServedModel};

/// `GET /v1/models`.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<_> = app.models().iter().map(|model| entry(model)).collect();
    Json(json!({ "object": "list", "data": models }))
}

/// `GET /v1/models/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(entry(app.model(Some(&id))?)))
}

fn entry(model: &ServedModel) -> Value {
    let config = model.model().config();
    json!({
        "id": model.id(),
        "object": "model",
        "created": model.loaded_seconds(),
        "owned_by": "rocmforge",
        "max_model_len": model.handle().max_sequence_tokens(),
        "status": { "value": "loaded" },
        "meta": {
            "n_vocab": config.vocab_size,
            "n_ctx": model.handle().max_sequence_tokens(),
            "n_ctx_train": config.context_length,
            "n_embd": config.hidden_size,
        },
    })
}
