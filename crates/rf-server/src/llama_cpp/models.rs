//! The routes by which clients of llama.cpp's router list, load, download and remove models.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ModelQuery;
use crate::body::Fields;
use crate::entry::ModelKind;
use crate::error::{ApiError, ApiErrorKind};
use crate::model_events::ModelEvent;
use crate::ollama::manage::{add, named, source};
use crate::openai::models::ModelListing;
use crate::reload::Reloader;
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

/// Whether the settings of the models are read again before they are listed.
#[derive(Deserialize)]
pub(crate) struct ReloadQuery {
    reload: Option<String>,
}

/// `GET /models`.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<ReloadQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Json<ModelListing>, ApiError> {
    let Query(query) = query?;
    if query.reload.is_some_and(|value| !matches!(value.as_str(), "" | "0" | "false")) {
        app.check_may_manage()?;
        let reloader = Reloader::new(Arc::clone(&app));
        blocking(move || {
            reloader.reload().map_err(|error| {
                tracing::error!(%error, "the settings of the models were not read again");
                let message = "the settings of the models cannot be read again; the log has the \
                               cause";
                ApiError::new(ApiErrorKind::Unavailable, message)
            })
        })
        .await?;
        app.model_events().send(ModelEvent::reload());
    }
    Ok(crate::openai::models::list(State(app), headers).await)
}

/// The time between two events about the progress of a download.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// `POST /models`: begins to download a model. `/models/sse` has the progress and the end.
pub(crate) async fn download(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Done>, ApiError> {
    let manager = app.manager()?;
    let request: NamedModel = fields.read()?;
    let name = named("model", request.model.as_deref())?.to_owned();
    if !app.model_events().begin_download(&name) {
        return Err(ApiError::field("model", "it is being downloaded already"));
    }
    tokio::task::spawn_blocking(move || {
        let events = app.model_events();
        let mut told = None::<Instant>;
        let mut progress = |done: u64, total: u64| {
            if done == total || told.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY) {
                told = Some(Instant::now());
                events.send(ModelEvent::progress(&name, done, total));
            }
        };
        let pulled = manager.pull(&name, &mut progress).map_err(ApiError::from);
        let outcome = pulled.and_then(|entry| add(&app, entry));
        events.end_download(&name);
        events.send(match outcome {
            Ok(()) => ModelEvent::finished(&name),
            Err(error) => ModelEvent::failed(&name, error.message),
        });
    });
    Ok(Json(Done::new()))
}

/// `DELETE /models`: removes a downloaded model.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    query: Result<Query<ModelQuery>, QueryRejection>,
) -> Result<Json<Done>, ApiError> {
    let Query(query) = query?;
    let manager = app.manager()?;
    let id = source(&app, "model", query.model.as_deref())?;
    blocking(move || {
        manager.remove(&id)?;
        app.catalog().remove(&id)
    })
    .await?;
    Ok(Json(Done::new()))
}

/// Runs work that may wait for files, away from the threads that serve sockets.
async fn blocking(
    work: impl FnOnce() -> Result<(), ApiError> + Send + 'static,
) -> Result<(), ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::internal(&error))?
}
