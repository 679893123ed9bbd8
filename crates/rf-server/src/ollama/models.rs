//! Models and the version, as Ollama lists them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, SecondsFormat, Utc};
use rf_engine::Model;
use rf_gguf::{TensorInfo, Value as Metadatum, file_type_name};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::body::Fields;
use crate::error::ApiError;
use crate::state::{App, ServedModel};

/// `GET /api/version`: the version of Ollama whose API this is. Clients refuse servers that are too
/// old for them.
pub(crate) async fn version() -> Json<Value> {
    Json(json!({ "version": "0.13.0" }))
}

/// `GET /api/tags`: all models.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<_> = app.models().iter().map(|model| entry(model)).collect();
    Json(json!({ "models": models }))
}

/// `GET /api/ps`: loaded models.
pub(crate) async fn ps(State(app): State<Arc<App>>) -> Json<Value> {
    let loaded = |model: &Arc<ServedModel>| {
        let mut entry = entry(model);
        // The server never unloads a model, and clients want a time.
        entry["expires_at"] = json!("2318-01-01T00:00:00Z");
        entry["size_vram"] = json!(0);
        entry["context_length"] = json!(model.handle().max_sequence_tokens());
        entry
    };
    Json(json!({ "models": app.models().iter().map(loaded).collect::<Vec<_>>() }))
}

#[derive(Deserialize)]
struct ShowFields {
    model: Option<String>,
    name: Option<String>,
}

/// `POST /api/show`: what is known of a model.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let ShowFields { model, name } = fields.read()?;
    let served = app.model(model.or(name).as_deref())?;
    let model = served.model();
    let template = model.tokenizer().chat_template().unwrap_or_default();
    let mut capabilities = vec!["completion"];
    if model.tokenizer().fim_mid().is_some() {
        capabilities.push("insert");
    }
    if template.contains("tools") {
        capabilities.push("tools");
    }
    Ok(Json(json!({
        "license": text(model, "general.license"),
        "modelfile": "",
        "parameters": "",
        "template": template,
        "details": details(model),
        "model_info": model_info(model),
        "capabilities": capabilities,
        "modified_at": modified(served),
    })))
}

fn entry(model: &ServedModel) -> Value {
    json!({
        "name": model.id(),
        "model": model.id(),
        "modified_at": modified(model),
        "size": model.model().gguf().file_bytes(),
        "digest": "",
        "details": details(model.model()),
    })
}

fn modified(model: &ServedModel) -> String {
    DateTime::<Utc>::from(model.loaded()).to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn details(model: &Model) -> Value {
    let architecture = text(model, "general.architecture");
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": architecture,
        "families": [architecture],
        "parameter_size": parameter_size(num_parameters(model)),
        "quantization_level": quantization(model),
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

fn text(model: &Model, key: &str) -> String {
    let value = model.gguf().metadata().get(key).and_then(Metadatum::as_str);
    value.unwrap_or_default().to_owned()
}

fn num_parameters(model: &Model) -> u64 {
    model.gguf().tensors().iter().map(TensorInfo::elements).sum()
}

fn quantization(model: &Model) -> &'static str {
    let number = model.gguf().metadata().get("general.file_type").and_then(Metadatum::as_integer);
    let name = number.and_then(|number| u32::try_from(number).ok()).and_then(file_type_name);
    name.unwrap_or("unknown")
}

/// The keys that clients look for: the context length is named by the architecture.
fn model_info(model: &Model) -> Value {
    let config = model.config();
    let architecture = text(model, "general.architecture");
    let mut info = Map::new();
    info.insert("general.architecture".into(), json!(architecture));
    info.insert("general.parameter_count".into(), json!(num_parameters(model)));
    for (name, value) in [
        ("context_length", config.context_length),
        ("embedding_length", config.hidden_size),
        ("block_count", config.num_layers()),
        ("vocab_size", config.vocab_size),
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
