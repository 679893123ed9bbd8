//! `/lora-adapters`: the adapters of a model, and their scales for requests that state none.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use rocmforge::Adapter;
use schemars::JsonSchema;
use serde::Serialize;

use super::ModelQuery;
use super::models::Done;
use crate::adapters::{AdapterScale, scales};
use crate::body::List;
use crate::error::ApiError;
use crate::state::App;

/// An adapter that was loaded with the model.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AdapterJson {
    id: usize,
    path: String,
    /// The scale for requests that state none.
    scale: f32,
    task_name: String,
    prompt_prefix: String,
}

/// `GET /lora-adapters`.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<ModelQuery>, QueryRejection>,
) -> Result<Json<Vec<AdapterJson>>, ApiError> {
    let Query(query) = query?;
    let served = app.loaded_model(query.model.as_deref())?;
    let model = served.loaded_model();
    let scales = model.adapter_scales().to_vec();
    let json = |(id, adapter): (usize, &Adapter)| {
        let scale = scales.get(id).copied().unwrap_or(0.0);
        let text = |key| adapter.gguf().metadata().str(key).ok().flatten().unwrap_or_default();
        AdapterJson {
            id,
            path: adapter.file().to_owned(),
            scale,
            task_name: text("adapter.lora.task_name").to_owned(),
            prompt_prefix: text("adapter.lora.prompt_prefix").to_owned(),
        }
    };
    Ok(Json(model.adapters().iter().enumerate().map(json).collect()))
}

/// `POST /lora-adapters`: sets the scales for later requests that state none. Adapters that the
/// list leaves out are turned off.
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    query: Result<Query<ModelQuery>, QueryRejection>,
    list: List,
) -> Result<Json<Done>, ApiError> {
    let Query(query) = query?;
    let served = app.loaded_model(query.model.as_deref())?;
    let scales = scales(&list.read::<AdapterScale>()?, served.model())?;
    served.loaded_model().set_adapter_scales(scales)?;
    Ok(Json(Done::new()))
}
