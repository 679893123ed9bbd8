//! Models and the version, as Ollama lists them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, SecondsFormat, Utc};
use rocmforge::ModelDetails;
use rocmforge::messages::ChatTemplate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::body::Fields;
use crate::catalog::{Listed, LoadStatus};
use crate::error::ApiError;
use crate::state::App;

/// A version.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Version {
    version: &'static str,
}

/// Some of the models.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Models {
    models: Vec<ModelJson>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OllamaModel")]
struct ModelJson {
    name: String,
    model: String,
    modified_at: String,
    size: u64,
    digest: &'static str,
    details: Details,
    #[serde(flatten)]
    residence: Option<Residence>,
}

/// The fields of a model that is loaded.
#[derive(Serialize, JsonSchema)]
struct Residence {
    expires_at: String,
    size_vram: u64,
    context_length: usize,
}

#[derive(Serialize, JsonSchema)]
struct Details {
    parent_model: &'static str,
    format: &'static str,
    family: String,
    families: [String; 1],
    parameter_size: String,
    quantization_level: &'static str,
}

/// The facts about a model that its file has.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ShownModel {
    license: String,
    modelfile: &'static str,
    parameters: &'static str,
    template: String,
    details: Details,
    model_info: Map<String, Value>,
    capabilities: Vec<&'static str>,
    modified_at: Option<String>,
    /// The system prompt that requests without one get.
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
}

/// `GET /api/version`: the version of Ollama whose API this is. Clients refuse servers that are too
/// old for them.
pub(crate) async fn version() -> Json<Version> {
    Json(Version { version: "0.13.0" })
}

/// `GET /api/tags`: all models.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Json<Models> {
    Json(Models { models: app.visible_models().iter().map(entry).collect() })
}

/// `GET /api/ps`: loaded models.
pub(crate) async fn ps(State(app): State<Arc<App>>) -> Json<Models> {
    let loaded = |model: &Listed| {
        let LoadStatus::Loaded { service, expires, bytes } = &model.status else { return None };
        let mut entry = entry(model);
        if *bytes > 0 {
            entry.size = *bytes;
        }
        entry.residence = Some(Residence {
            // Clients need a time also where there is none.
            expires_at: expires.map_or_else(|| "2318-01-01T00:00:00Z".to_owned(), timestamp),
            size_vram: 0,
            context_length: service.context_tokens(),
        });
        Some(entry)
    };
    Json(Models { models: app.visible_models().iter().filter_map(loaded).collect() })
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ShowFields {
    model: Option<String>,
    name: Option<String>,
}

/// `POST /api/show`: what is known of a model, from its file.
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<ShownModel>, ApiError> {
    let ShowFields { model, name } = fields.read()?;
    let (id, known) = app.catalog().details(model.or(name).as_deref())?;
    let listed = app.catalog().list();
    let listed = listed.iter().find(|listed| listed.id == id);
    // A loaded model may have another template than its file.
    let generator = listed.and_then(Listed::generator);
    let template = match &generator {
        Some(generator) => generator.model().chat_template().map_or("", ChatTemplate::source),
        None => &known.chat_template,
    };
    let mut capabilities = vec!["completion"];
    if known.fills_gaps {
        capabilities.push("insert");
    }
    if template.contains("tools") {
        capabilities.push("tools");
    }
    Ok(Json(ShownModel {
        license: known.license.clone(),
        modelfile: "",
        parameters: "",
        template: template.to_owned(),
        details: details(&known),
        model_info: model_info(&known),
        system: listed.and_then(|listed| listed.settings.system.clone()),
        capabilities,
        modified_at: listed.map(modified),
    }))
}

fn entry(model: &Listed) -> ModelJson {
    ModelJson {
        name: model.id.clone(),
        model: model.id.clone(),
        modified_at: modified(model),
        size: model.details.file_bytes,
        digest: "",
        details: details(&model.details),
        residence: None,
    }
}

fn modified(model: &Listed) -> String {
    match &model.status {
        LoadStatus::Loaded { service, .. } => timestamp(service.loaded()),
        LoadStatus::Loading | LoadStatus::Unloaded { .. } => timestamp(UNIX_EPOCH),
    }
}

fn timestamp(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn details(model: &ModelDetails) -> Details {
    Details {
        parent_model: "",
        format: "gguf",
        family: model.architecture.clone(),
        families: [model.architecture.clone()],
        parameter_size: parameter_size(model.parameters),
        quantization_level: model.quantization,
    }
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
fn model_info(model: &ModelDetails) -> Map<String, Value> {
    let architecture = &model.architecture;
    let mut info = Map::new();
    info.insert("general.architecture".into(), Value::from(architecture.as_str()));
    info.insert("general.parameter_count".into(), Value::from(model.parameters));
    for (name, value) in [
        ("context_length", model.context_length),
        ("embedding_length", model.hidden_size),
        ("block_count", model.num_layers),
        ("vocab_size", model.vocab_size),
    ] {
        info.insert(format!("{architecture}.{name}"), Value::from(value));
    }
    info
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
