//! The management of models: `/api/pull`, `/api/create`, `/api/copy` and `/api/delete`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::body::Fields;
use crate::entry::ModelEntry;
use crate::error::{Api, ApiError, ApiErrorKind};
use crate::managed_models::{ManageError, ModelChange};
use crate::openapi::LINES;
use crate::state::App;

/// The time between two lines about the progress of a download.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The name of a model.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaNameFields")]
pub(crate) struct NameFields {
    model: Option<String>,
    name: Option<String>,
    stream: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaCopyFields")]
pub(crate) struct CopyFields {
    source: Option<String>,
    destination: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaCreateFields")]
pub(crate) struct CreateFields {
    from: Option<String>,
    system: Option<String>,
    template: Option<String>,
    #[serde(default)]
    parameters: Map<String, Value>,
    // What follows is refused.
    modelfile: Option<Value>,
    files: Option<Value>,
    adapters: Option<Value>,
    quantize: Option<Value>,
    messages: Option<Value>,
    license: Option<Value>,
}

/// What is done, and of a download how much.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaProgress")]
pub(crate) struct Progress {
    status: String,
    /// The name of what is downloaded. Clients tell downloads apart by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<u64>,
}

impl Progress {
    fn of(status: impl Into<String>) -> Self {
        Self { status: status.into(), digest: None, total: None, completed: None }
    }
}

impl NameFields {
    fn name(&self) -> Result<&str, ApiError> {
        named("model", self.model.as_deref().or(self.name.as_deref()))
    }
}

pub(crate) fn named<'a>(field: &'static str, name: Option<&'a str>) -> Result<&'a str, ApiError> {
    let name = name.map(str::trim).filter(|name| !name.is_empty());
    name.ok_or_else(|| ApiError::field(field, "expected the name of a model"))
}

/// The name of a new model, as it is listed. `*` would be a pattern.
fn new_name(app: &App, field: &'static str, name: Option<&str>) -> Result<String, ApiError> {
    const MOST: usize = 128;
    let name = named(field, name)?;
    let name = name.strip_suffix(":latest").unwrap_or(name);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    if name.is_empty() || name.len() > MOST || !name.chars().all(is_plain) {
        let message = format!("expected at most {MOST} letters, digits and -_.:/");
        return Err(ApiError::field(field, message));
    }
    if app.catalog().list().iter().any(|model| model.names().iter().any(|known| known == name)) {
        return Err(ApiError::field(field, format!("there is a model `{name}`: remove it first")));
    }
    Ok(name.to_owned())
}

/// `POST /api/pull`.
pub(crate) async fn pull(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let manager = app.manager()?;
    let request: NameFields = fields.read()?;
    let name = request.name()?.to_owned();
    let task = move |lines: &Lines| {
        lines.send(&Progress::of("pulling manifest"));
        let mut told = None::<Instant>;
        let entry = manager.pull(&name, &mut |completed, total| {
            let is_due = told.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY);
            if is_due || completed == total {
                told = Some(Instant::now());
                lines.send(&Progress {
                    digest: Some(name.clone()),
                    total: Some(total),
                    completed: Some(completed),
                    ..Progress::of(format!("pulling {name}"))
                });
            }
        })?;
        lines.send(&Progress::of("writing manifest"));
        add(&app, entry)
    };
    answer(request.stream.unwrap_or(true), task).await
}

/// `POST /api/create`.
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let manager = app.manager()?;
    let request: NameFields = fields.read()?;
    let name = new_name(&app, "model", Some(request.name()?))?;
    let wanted: CreateFields = fields.read()?;
    let CreateFields { modelfile, files, adapters, quantize, messages, license, .. } = &wanted;
    for (field, value) in [
        ("modelfile", modelfile),
        ("files", files),
        ("adapters", adapters),
        ("quantize", quantize),
        ("messages", messages),
        ("license", license),
    ] {
        if value.as_ref().is_some_and(|value| !value.is_null()) {
            let message = "a model is made of a listed one (`from`) with `system`, `template` and `parameters` only";
            return Err(ApiError::field(field, message));
        }
    }
    let from = source(&app, "from", wanted.from.as_deref())?;
    let change = ModelChange {
        system: wanted.system,
        template: wanted.template,
        parameters: wanted.parameters,
    };
    let task = move |lines: &Lines| {
        lines.send(&Progress::of(format!("using existing model {from}")));
        let entry = manager.make(&from, &name, &change)?;
        lines.send(&Progress::of("writing manifest"));
        add(&app, entry)
    };
    answer(request.stream.unwrap_or(true), task).await
}

/// `POST /api/copy`.
pub(crate) async fn copy(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let manager = app.manager()?;
    let request: CopyFields = fields.read()?;
    let name = new_name(&app, "destination", request.destination.as_deref())?;
    let from = source(&app, "source", request.source.as_deref())?;
    let task = move |_: &Lines| add(&app, manager.make(&from, &name, &ModelChange::default())?);
    answer(false, task).await
}

/// `DELETE /api/delete`.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Response, ApiError> {
    let manager = app.manager()?;
    let request: NameFields = fields.read()?;
    let id = source(&app, "model", Some(request.name()?))?;
    let task = move |_: &Lines| {
        manager.remove(&id)?;
        app.catalog().remove(&id)
    };
    answer(false, task).await
}

/// The listed name of a model that the key of the request may use.
pub(crate) fn source(
    app: &App,
    field: &'static str,
    name: Option<&str>,
) -> Result<String, ApiError> {
    let name = named(field, name)?;
    let kind = app.catalog().kind(Some(name))?;
    app.note_model(Some(name), kind)?;
    Ok(app.catalog().details(Some(name))?.0)
}

/// Lists a model. One that is listed already stays as it is.
pub(crate) fn add(app: &App, entry: ModelEntry) -> Result<(), ApiError> {
    if app.catalog().details(Some(&entry.id)).is_ok_and(|(id, _)| id == entry.id) {
        return Ok(());
    }
    app.catalog().add(entry).map_err(|error| ApiError::invalid(error.to_string()))
}

/// Runs a task that blocks, and answers with its lines, or with the last one.
async fn answer(
    streams: bool,
    task: impl FnOnce(&Lines) -> Result<(), ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let (lines, receiver) = unbounded_channel();
    let lines = Lines(lines);
    let run = move || {
        let outcome = task(&lines);
        match &outcome {
            Ok(()) => lines.send(&Progress::of("success")),
            Err(error) => lines.send(&error.body(Api::Ollama)),
        }
        outcome
    };
    let running = tokio::task::spawn_blocking(run);
    if streams {
        return Ok(([(CONTENT_TYPE, LINES)], Body::from_stream(Received(receiver))).into_response());
    }
    running.await.map_err(|error| ApiError::internal(&error))??;
    Ok(Json(Progress::of("success")).into_response())
}

/// Where the lines of an answer go. A client that left reads none.
struct Lines(UnboundedSender<Bytes>);

impl Lines {
    fn send(&self, line: &impl Serialize) {
        if let Ok(mut bytes) = serde_json::to_vec(line) {
            bytes.push(b'\n');
            drop(self.0.send(bytes.into()));
        }
    }
}

/// The lines of an answer as a body.
struct Received(UnboundedReceiver<Bytes>);

impl Stream for Received {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|line| line.map(Ok))
    }
}

impl From<ManageError> for ApiError {
    fn from(error: ManageError) -> Self {
        let kind = match error {
            ManageError::Unknown(_) => ApiErrorKind::NotFound,
            ManageError::Refused(_) => ApiErrorKind::InvalidRequest,
            ManageError::Failed(_) => ApiErrorKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}
