//! `/v1/models`.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{Listed, Status};
use crate::error::ApiError;
use crate::state::{App, seconds_since_1970};

/// The list of models.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ModelList {
    object: &'static str,
    data: Vec<ModelJson>,
}

/// A model, with its state as llama.cpp tells it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub(crate) struct ModelJson {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    max_model_len: usize,
    status: ModelStatus,
    meta: ModelMeta,
}

#[derive(Serialize, JsonSchema)]
struct ModelStatus {
    value: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
struct ModelMeta {
    n_vocab: usize,
    n_ctx: usize,
    n_ctx_train: usize,
    n_embd: usize,
}

/// `GET /v1/models`.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: app.catalog().list().iter().map(entry).collect() })
}

/// `GET /v1/models/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ModelJson>, ApiError> {
    let Path(id) = id?;
    let (id, _) = app.catalog().details(Some(&id))?;
    let listed = app.catalog().list();
    let found = listed.iter().find(|listed| listed.id == id).map(entry);
    found.map(Json).ok_or_else(|| ApiError::internal(&"a model is not in its own list"))
}

fn entry(model: &Listed<'_>) -> ModelJson {
    let details = model.details;
    let (created, context_tokens) = match &model.status {
        Status::Loaded { service, .. } => (service.loaded(), service.context_tokens()),
        Status::Loading | Status::Unloaded { .. } => (UNIX_EPOCH, details.context_length),
    };
    ModelJson {
        id: model.id.to_owned(),
        object: "model",
        created: seconds_since_1970(created),
        owned_by: "rocmforge",
        max_model_len: context_tokens,
        status: ModelStatus::of(&model.status),
        meta: ModelMeta {
            n_vocab: details.vocab_size,
            n_ctx: context_tokens,
            n_ctx_train: details.context_length,
            n_embd: details.hidden_size,
        },
    }
}

impl ModelStatus {
    fn of(status: &Status) -> Self {
        let (value, error) = match status {
            Status::Loaded { .. } => ("loaded", None),
            Status::Loading => ("loading", None),
            Status::Unloaded { failure } => ("unloaded", failure.clone()),
        };
        Self { value, failed: error.is_some().then_some(true), error }
    }
}
