//! `POST /models/load` and `POST /models/unload` of llama.cpp's router.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::body::Fields;
use crate::entry::ModelKind;
use crate::error::ApiError;
use crate::state::App;

/// The model to load or to unload.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct NamedModel {
    model: Option<String>,
}

/// The request is carried out. The status of the model is in `/models`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Done {
    success: bool,
}

impl Done {
    pub(super) fn new() -> Self {
        Self { success: true }
    }
}

impl NamedModel {
    /// The name and the kind of the model, if the key of the request may use it.
    fn find(self, app: &App) -> Result<(String, ModelKind), ApiError> {
        let missing = || ApiError::field("model", "expected the name of a model");
        let name = self.model.ok_or_else(missing)?;
        let kind = app.catalog().kind(Some(&name))?;
        app.note_model(Some(&name), kind)?;
        Ok((name, kind))
    }
}

/// Begins to load a model.
pub(crate) async fn load(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Done>, ApiError> {
    let (name, kind) = fields.read::<NamedModel>()?.find(&app)?;
    if app.catalog().is_loaded(Some(&name), kind)? {
        return Ok(Json(Done::new()));
    }
    tokio::spawn(async move {
        // The list of models has the reason of a failure.
        drop(app.catalog().acquire(Some(&name), kind, None).await);
    });
    Ok(Json(Done::new()))
}

/// Unloads a model as soon as its running requests have ended.
pub(crate) async fn unload(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Done>, ApiError> {
    let (name, kind) = fields.read::<NamedModel>()?.find(&app)?;
    app.catalog().unload(Some(&name), kind)?;
    Ok(Json(Done::new()))
}
