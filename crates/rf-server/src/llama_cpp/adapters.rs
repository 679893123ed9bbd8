//! `/lora-adapters`: the adapters of a model, and their scales for requests that state none.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use rocmforge::engine::Model;
use rocmforge::{Adapter, AdapterScales};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ModelQuery;
use super::models::Done;
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

/// The scale of an adapter.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub(crate) struct AdapterScale {
    /// The place of the adapter on the command line, counted from 0.
    id: usize,
    /// 0 turns the adapter off, 1 is its strength as it was trained.
    scale: f32,
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

/// The scales of the adapters of a model. Those that the list leaves out are turned off.
pub(crate) fn scales(list: &[AdapterScale], model: &Model) -> Result<AdapterScales, ApiError> {
    let count = model.adapters().len();
    let mut scales = vec![0.0; count];
    for AdapterScale { id, scale } in list {
        let Some(place) = scales.get_mut(*id) else {
            let message =
                format!("there is no adapter with id {id}: the model was loaded with {count}");
            return Err(ApiError::field("lora", message));
        };
        *place = *scale;
    }
    let scales = AdapterScales::new(&scales);
    scales.check(count).map_err(|error| ApiError::field("lora", error))?;
    Ok(scales)
}
