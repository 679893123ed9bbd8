//! `/v1/models`.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::catalog::{Listed, Status};
use crate::error::ApiError;
use crate::state::{App, seconds_since_1970};

/// `GET /v1/models`.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let entries: Vec<_> = app.catalog().list().iter().map(entry).collect();
    Json(json!({ "object": "list", "data": entries }))
}

/// `GET /v1/models/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let (id, _) = app.catalog().details(Some(&id))?;
    let listed = app.catalog().list();
    let found = listed.iter().find(|listed| listed.id == id).map(entry);
    found.map(Json).ok_or_else(|| ApiError::internal(&"a model is not in its own list"))
}

/// Returns true if a model is loaded is told in the form of llama.cpp.
fn entry(model: &Listed<'_>) -> Value {
    let details = model.details;
    let (created, status, context_tokens) = match &model.status {
        Status::Loaded { service, .. } => {
            (service.loaded(), json!({ "value": "loaded" }), service.context_tokens())
        }
        Status::Loading => (UNIX_EPOCH, json!({ "value": "loading" }), details.context_length),
        Status::Unloaded { failure: None } => {
            (UNIX_EPOCH, json!({ "value": "unloaded" }), details.context_length)
        }
        Status::Unloaded { failure: Some(failure) } => {
            let status = json!({ "value": "unloaded", "failed": true, "error": failure });
            (UNIX_EPOCH, status, details.context_length)
        }
    };
    json!({
        "id": model.id,
        "object": "model",
        "created": seconds_since_1970(created),
        "owned_by": "rocmforge",
        "max_model_len": context_tokens,
        "status": status,
        "meta": {
            "n_vocab": details.vocab_size,
            "n_ctx": context_tokens,
            "n_ctx_train": details.context_length,
            "n_embd": details.hidden_size,
        },
    })
}
