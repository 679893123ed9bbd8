//! `/v1/models`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use chrono::{DateTime, SecondsFormat, Utc};
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{Listed, LoadStatus, NamedAdapter};
use crate::entry::ModelKind;
use crate::error::ApiError;
use crate::path::Id;
use crate::record::RequestRecord;
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
    /// The file of an adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<String>,
    /// The model that an adapter changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    max_model_len: usize,
    /// What the model makes: `completion`, `embedding` or `rerank`.
    capabilities: [&'static str; 1],
    status: ModelStatus,
    architecture: Architecture,
    meta: ModelMeta,
}

/// What a model reads and writes.
#[derive(Serialize, JsonSchema)]
struct Architecture {
    input_modalities: &'static [&'static str],
    output_modalities: &'static [&'static str],
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

/// The models in the form of `OpenAI`, or of Anthropic for its clients.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ModelListing {
    OpenAi(ModelList),
    Anthropic(AnthropicModels),
}

/// A model in the form of `OpenAI`, or of Anthropic for its clients.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AnyModel {
    OpenAi(Box<ModelJson>),
    Anthropic(AnthropicModel),
}

/// Anthropic's list of models. The server has one page, so `has_more` is always false.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AnthropicModels {
    data: Vec<AnthropicModel>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct AnthropicModel {
    #[serde(rename = "type")]
    kind: &'static str,
    id: String,
    display_name: String,
    created_at: String,
}

/// `GET /v1/models`.
pub(crate) async fn list(State(app): State<Arc<App>>, headers: HeaderMap) -> Json<ModelListing> {
    let listed = app.visible_models();
    if !is_anthropic(&headers) {
        let data = listed.iter().flat_map(with_adapters).map(|card| entry(&card)).collect();
        return Json(ModelListing::OpenAi(ModelList { object: "list", data }));
    }
    let data: Vec<_> =
        listed.iter().flat_map(with_adapters).map(|card| anthropic_entry(&card)).collect();
    let id = |model: Option<&AnthropicModel>| model.map(|model| model.id.clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    Json(ModelListing::Anthropic(AnthropicModels { data, has_more: false, first_id, last_id }))
}

/// `GET /v1/models/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Json<AnyModel>, ApiError> {
    let id = match app.catalog().adapter(Some(&id)) {
        Some(adapter) => adapter.to_owned(),
        None => app.catalog().details(Some(&id))?.0,
    };
    let listed = app.visible_models();
    let found = listed.iter().flat_map(with_adapters).find(|card| card.id() == id);
    let found = found.ok_or_else(|| RequestRecord::may_not_use(&id))?;
    Ok(Json(if is_anthropic(&headers) {
        AnyModel::Anthropic(anthropic_entry(&found))
    } else {
        AnyModel::OpenAi(Box::new(entry(&found)))
    }))
}

/// Returns true for a client of Anthropic's API, which has a list of models of the same path.
fn is_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

/// A model, or a model with one of its adapters.
struct Card<'a> {
    model: &'a Listed,
    adapter: Option<&'a NamedAdapter>,
}

impl Card<'_> {
    fn id(&self) -> &str {
        self.adapter.map_or(&self.model.id, |adapter| &adapter.name)
    }
}

/// A model, and then with each of its adapters.
fn with_adapters(model: &Listed) -> impl Iterator<Item = Card<'_>> {
    let adapters = model.adapters.iter().map(Some);
    std::iter::once(None).chain(adapters).map(move |adapter| Card { model, adapter })
}

fn created(model: &Listed) -> SystemTime {
    match &model.status {
        LoadStatus::Loaded { service, .. } => service.loaded(),
        LoadStatus::Loading | LoadStatus::Unloaded { .. } => UNIX_EPOCH,
    }
}

fn anthropic_entry(card: &Card<'_>) -> AnthropicModel {
    let created = DateTime::<Utc>::from(created(card.model));
    AnthropicModel {
        kind: "model",
        id: card.id().to_owned(),
        display_name: card.id().to_owned(),
        created_at: created.to_rfc3339_opts(SecondsFormat::Secs, true),
    }
}

fn entry(card: &Card<'_>) -> ModelJson {
    let model = card.model;
    let details = &model.details;
    let context_tokens = match &model.status {
        LoadStatus::Loaded { service, .. } => service.context_tokens(),
        LoadStatus::Loading | LoadStatus::Unloaded { .. } => details.context_length,
    };
    let (reads_images, hears) = match &model.status {
        LoadStatus::Loaded { service, .. } => (service.reads_images(), service.hears()),
        LoadStatus::Loading | LoadStatus::Unloaded { .. } => (false, false),
    };
    ModelJson {
        id: card.id().to_owned(),
        object: "model",
        created: seconds_since_1970(created(model)),
        owned_by: "rocmforge",
        root: card.adapter.map(file_name),
        parent: card.adapter.map(|_| model.id.clone()),
        max_model_len: context_tokens,
        capabilities: [match model.kind {
            ModelKind::Text => "completion",
            ModelKind::Embeddings => "embedding",
            ModelKind::Scores => "rerank",
        }],
        status: ModelStatus::of(&model.status),
        architecture: Architecture {
            input_modalities: match (reads_images, hears) {
                (false, false) => &["text"],
                (true, false) => &["text", "image"],
                (false, true) => &["text", "audio"],
                (true, true) => &["text", "image", "audio"],
            },
            output_modalities: &["text"],
        },
        meta: ModelMeta {
            n_vocab: details.vocab_size,
            n_ctx: context_tokens,
            n_ctx_train: details.context_length,
            n_embd: details.hidden_size,
        },
    }
}

/// The name of an adapter's file, without the folder.
fn file_name(adapter: &NamedAdapter) -> String {
    adapter.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The status of a model in the words of llama.cpp.
pub(crate) fn status_name(status: &LoadStatus) -> &'static str {
    match status {
        LoadStatus::Loaded { .. } => "loaded",
        LoadStatus::Loading => "loading",
        LoadStatus::Unloaded { .. } => "unloaded",
    }
}

impl ModelStatus {
    fn of(status: &LoadStatus) -> Self {
        let error = match status {
            LoadStatus::Unloaded { failure } => failure.clone(),
            LoadStatus::Loaded { .. } | LoadStatus::Loading => None,
        };
        Self { value: status_name(status), failed: error.is_some().then_some(true), error }
    }
}
