//! `/v1/load_lora_adapter` and `/v1/unload_lora_adapter` of vLLM: adapters by name, from a folder
//! that the operator allows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::State;
use rocmforge::Adapter;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::body::Fields;
use crate::catalog::{MAX_ADAPTERS, NamedAdapter};
use crate::error::{ApiError, ApiErrorKind};
use crate::state::App;

/// The adapter to load.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct LoadFields {
    lora_name: Option<String>,
    /// A GGUF file below the folder of adapters.
    lora_path: Option<String>,
    /// Replaces an adapter of the same name.
    load_inplace: Option<bool>,
    /// The model that it changes. Absent: the first one.
    base_model_name: Option<String>,
}

/// The adapter to unload.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct UnloadFields {
    lora_name: Option<String>,
}

/// Loads an adapter, which requests then name as their model.
pub(crate) async fn load(State(app): State<Arc<App>>, fields: Fields) -> Result<String, ApiError> {
    let folder = adapter_folder(&app)?;
    let fields: LoadFields = fields.read()?;
    let name = required("lora_name", fields.lora_name)?;
    check_name(&name)?;
    let sent = required("lora_path", fields.lora_path)?;
    let path = resolve(folder, &sent)?;
    let base = fields.base_model_name;
    let replaces = fields.load_inplace.unwrap_or(false);
    let adapter = NamedAdapter { name: name.clone(), path: path.clone() };
    let change = move |adapters: &mut Vec<NamedAdapter>, is_taken: bool| {
        if let Some(same) = adapters.iter_mut().find(|same| same.name == adapter.name) {
            if replaces {
                *same = adapter;
                return Ok(());
            }
            let message = format!(
                "the adapter `{}` is loaded already: set `load_inplace` to replace it",
                adapter.name
            );
            return Err(ApiError::field("lora_name", message));
        }
        if is_taken {
            let message =
                format!("there is a model `{}`: give the adapter another name", adapter.name);
            return Err(ApiError::field("lora_name", message));
        }
        if adapters.len() == MAX_ADAPTERS {
            let message = format!("{MAX_ADAPTERS} adapters are loaded, the maximum: unload one");
            return Err(ApiError::field("lora_name", message));
        }
        adapters.push(adapter);
        Ok(())
    };
    let changed = app.catalog().change_adapters(base.as_deref(), &name, change).await;
    changed.map_err(|error| with_sent_path(error, &path, &sent))?;
    tracing::info!("an adapter was loaded");
    Ok(format!("Success: LoRA adapter '{name}' added successfully."))
}

/// Unloads an adapter.
pub(crate) async fn unload(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<String, ApiError> {
    adapter_folder(&app)?;
    let name = required("lora_name", fields.read::<UnloadFields>()?.lora_name)?;
    if !app.catalog().is_adapter(&name) {
        let message = format!("there is no adapter `{name}` to unload");
        return Err(ApiError::new(ApiErrorKind::NotFound, message));
    }
    let remove = |adapters: &mut Vec<NamedAdapter>, _| {
        adapters.retain(|adapter| adapter.name != name);
        Ok(())
    };
    app.catalog().change_adapters(Some(&name), &name, remove).await?;
    tracing::info!("an adapter was unloaded");
    Ok(format!("Success: LoRA adapter '{name}' removed successfully."))
}

/// The longest name of an adapter, in bytes.
const MAX_NAME: usize = 128;

fn required(field: &str, value: Option<String>) -> Result<String, ApiError> {
    value.filter(|text| !text.is_empty()).ok_or_else(|| ApiError::field(field, "expected a text"))
}

/// Names are in the log, in metrics, and in lists of adapters with commas between them.
fn check_name(name: &str) -> Result<(), ApiError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/@+".contains(&byte);
    if name.len() <= MAX_NAME && name.bytes().all(is_plain) {
        return Ok(());
    }
    let message = format!("expected at most {MAX_NAME} letters, digits and . _ - : / @ +");
    Err(ApiError::field("lora_name", message))
}

/// The folder of adapters, if the request may load one.
fn adapter_folder(app: &App) -> Result<&Path, ApiError> {
    let Some(folder) = &app.options().adapter_folder else {
        let message = "this server loads no adapters: start it with --lora-dir";
        return Err(ApiError::new(ApiErrorKind::Forbidden, message));
    };
    app.check_may_manage()?;
    Ok(folder)
}

/// The adapter file that a path means, which must be below the folder. A path outside is refused as
/// if there were none, so that nobody learns which files exist.
fn resolve(folder: &Path, path: &str) -> Result<PathBuf, ApiError> {
    let missing = || {
        ApiError::new(
            ApiErrorKind::NotFound,
            "there is no file `lora_path` in the folder of adapters",
        )
    };
    let folder = folder.canonicalize().map_err(|_| missing())?;
    // Links are followed first.
    let file = folder.join(path).canonicalize().map_err(|_| missing())?;
    if !file.starts_with(&folder) {
        return Err(missing());
    }
    if file.is_dir() {
        let message = "expected a GGUF file: convert_lora_to_gguf.py of llama.cpp makes one from \
                       the folder of an adapter of PEFT";
        return Err(ApiError::field("lora_path", message));
    }
    // The model is not disturbed by a file that is no adapter. The message may name the whole path.
    Adapter::open(&file).map_err(|error| {
        tracing::warn!(%error, "an adapter was refused");
        ApiError::field("lora_path", "the file is damaged, or is no adapter (LoRA)")
    })?;
    Ok(file)
}

/// Names an adapter file in an error by the path that the client sent. It knows no other path of
/// the server.
fn with_sent_path(mut error: ApiError, file: &Path, sent: &str) -> ApiError {
    let file = file.display().to_string();
    let is_separator = |c: char| c.is_whitespace() || "'\"`,;()".contains(c);
    let others = error.message.replace(&file, "");
    let is_path = |word: &str| word.len() > 1 && Path::new(word).is_absolute();
    error.message = if others.split(is_separator).any(|word| is_path(word.trim_end_matches(':'))) {
        "the model cannot be loaded with the adapter; the log of the server has the cause".into()
    } else {
        error.message.replace(&file, sent)
    };
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_of_the_folder_are_as_if_they_were_not_there() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("adapters");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(root.path().join("secret.gguf"), "x").unwrap();
        std::fs::write(folder.join("no-adapter.gguf"), "x").unwrap();
        let outside = root.path().join("secret.gguf").display().to_string();
        let refused = |path: &str| resolve(&folder, path).unwrap_err().kind;
        for path in
            ["../secret.gguf", &outside, "missing.gguf", "/etc/passwd", "a/../../secret.gguf"]
        {
            assert_eq!(refused(path), ApiErrorKind::NotFound, "{path}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&outside, folder.join("link.gguf")).unwrap();
            assert_eq!(refused("link.gguf"), ApiErrorKind::NotFound);
        }
        assert_eq!(refused("no-adapter.gguf"), ApiErrorKind::InvalidRequest);
        assert_eq!(refused("."), ApiErrorKind::InvalidRequest);
    }

    #[test]
    #[cfg(unix)]
    fn errors_have_the_path_of_the_client_only() {
        let shown = |message: &str| {
            let file = Path::new("/srv/lora/a b.gguf");
            with_sent_path(ApiError::invalid(message.to_owned()), file, "./a b.gguf").message
        };
        let message = "adapter '/srv/lora/a b.gguf' is for 'llama' (m/s)";
        assert_eq!(shown(message), "adapter './a b.gguf' is for 'llama' (m/s)");
        for message in ["'/srv/model.gguf' is damaged", "/srv/lora/other.gguf: no such file"] {
            assert!(!shown(message).contains("srv"), "{message}");
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        for name in ["style", "org/style-v1.2", "a:b@c+d_e"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "x".repeat(MAX_NAME + 1);
        for name in ["a,b", "a b", "a\n", "\"", "ä", &long] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
