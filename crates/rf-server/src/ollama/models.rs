//! Models and the version, as Ollama lists them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::body::Fields;
use crate::catalog::{Listed, Status};
use crate::error::ApiError;
use crate::state::App;
use rocmforge::ModelDetails;

/// `GET /api/version`: the version of Ollama whose API this is. Clients refuse servers that are too
/// old for them.
pub(crate) async fn version() -> Json<Value> {
    Json(json!({ "version": "0.13.0" }))
}

/// `GET /api/tags`: all models.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<_> = app.catalog().list().iter().map(entry).collect();
    Json(json!({ "models": models }))
}

/// `GET /api/ps`: loaded models.
pub(crate) async fn ps(State(app): State<Arc<App>>) -> Json<Value> {
    let loaded = |model: &Listed<'_>| {
        let Status::Loaded { service, expires, bytes } = &model.status else { return None };
        let mut entry = entry(model);
        // Clients need a time also where there is none.
        let expires = expires.map_or_else(|| "2318-01-01T00:00:00Z".to_owned(), timestamp);
        entry["expires_at"] = json!(expires);
        entry["size_vram"] = json!(0);
        entry["context_length"] = json!(service.context_tokens());
        if *bytes > 0 {
            entry["size"] = json!(bytes);
        }
        Some(entry)
    };
    let models: Vec<_> = app.catalog().list().iter().filter_map(loaded).collect();
    Json(json!({ "models": models }))
}

#[derive(Deserialize)]
struct ShowFields {
    model: Option<String>,
    name: Option<String>,
}

/// `POST /api/show`: what is known of a model, from its file.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let ShowFields { model, name } = fields.read()?;
    let (id, known) = app.catalog().details(model.or(name).as_deref())?;
    let listed = app.catalog().list();
    let listed = listed.iter().find(|listed| listed.id == id);
    let mut capabilities = vec!["completion"];
    if known.fills_gaps {
        capabilities.push("insert");
    }
    if known.chat_template.contains("tools") {
        capabilities.push("tools");
    }
    Ok(Json(json!({
        "license": known.license,
        "modelfile": "",
        "parameters": "",
        "template": known.chat_template,
        "details": details(known),
        "model_info": model_info(known),
        "capabilities": capabilities,
        "modified_at": listed.map(modified),
    })))
}

fn entry(model: &Listed<'_>) -> Value {
    json!({
        "name": model.id,
        "model": model.id,
        "modified_at": modified(model),
        "size": model.details.file_bytes,
        "digest": "",
        "details": details(model.details),
    })
}

fn modified(model: &Listed<'_>) -> String {
    match &model.status {
        Status::Loaded { service, .. } => timestamp(service.loaded()),
        Status::Loading | Status::Unloaded { .. } => timestamp(UNIX_EPOCH),
    }
}

fn timestamp(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn details(model: &ModelDetails) -> Value {
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": model.architecture,
        "families": [model.architecture],
        "parameter_size": parameter_size(model.parameters),
        "quantization_level": model.quantization,
    })
}

/// Such as `7.3M` or `8.0B`.
fn parameter_size(parameters: u64) -> String {
    let parameters = parameters as f64;
    if parameters < 1e9 {
        format!("{:.1}M", parameters / 1e6)
    } else {
        format!("{:.1}B", parameters / 1e9)
    }
}

/// The keys that clients look for: the context length is named by the architecture.
fn model_info(model: &ModelDetails) -> Value {
    let architecture = &model.architecture;
    let mut info = Map::new();
    info.insert("general.architecture".into(), json!(architecture));
    info.insert("general.parameter_count".into(), json!(model.parameters));
    for (name, value) in [
        ("context_length", model.context_length),
        ("embedding_length", model.hidden_size),
        ("block_count", model.num_layers),
        ("vocab_size", model.vocab_size),
    ] {
        info.insert(format!("{architecture}.{name}"), json!(value));
    }
    Value::Object(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal() {
        assert_eq!(parameter_size(7_340_000), "7.3M");
        assert_eq!(parameter_size(8_030_000_000), "8.0B");
    }
}
