//! `POST /slots/{id}`: sequences in files of a folder that the operator names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use std::{fs, io};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use rocmforge::engine::{Engine, Error as EngineError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::body::Fields;
use crate::error::{ApiError, ApiErrorKind};
use crate::generator::Generator;
use crate::path::Id;
use crate::state::App;

/// The longest name of a file, in bytes, with the end of an unfinished one.
const MAX_NAME_BYTES: usize = 200;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct SlotQuery {
    action: Option<String>,
    model: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct SlotFields {
    /// A file in the folder of the server. Not for `erase`.
    filename: Option<String>,
    model: Option<String>,
}

/// The result of an action on a slot.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum SlotAnswer {
    Saved {
        id_slot: usize,
        filename: String,
        /// Number of tokens in the file.
        n_saved: usize,
        /// Bytes that were written.
        n_written: usize,
        timings: SaveTimings,
    },
    Restored {
        id_slot: usize,
        filename: String,
        /// Number of tokens in the file.
        n_restored: usize,
        /// Bytes that were read.
        n_read: usize,
        timings: RestoreTimings,
    },
    Erased {
        id_slot: usize,
        /// Number of tokens that the slot had.
        n_erased: usize,
    },
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SaveTimings {
    save_ms: f64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RestoreTimings {
    restore_ms: f64,
}

/// `POST /slots/{id}?action=save`, `restore` or `erase`.
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    Id(id): Id,
    query: Result<Query<SlotQuery>, QueryRejection>,
    fields: Fields,
) -> Result<Json<SlotAnswer>, ApiError> {
    let Query(query) = query?;
    let SlotFields { filename, model } = fields.read()?;
    let Some(folder) = app.options().slot_save_path.clone() else {
        let message = "this server does not save slots: start it with --slot-save-path";
        return Err(ApiError::new(ApiErrorKind::NotSupported, message));
    };
    let model = app.loaded_model(query.model.or(model).as_deref())?;
    let slots = model.handle().max_num_seqs();
    let id_slot =
        id.parse().ok().filter(|id| *id < slots).ok_or_else(|| {
            ApiError::field("id_slot", format!("expected a number below {slots}"))
        })?;
    let action: fn(&Generator, usize, &Path, String) -> Result<SlotAnswer, ApiError> =
        match query.action.as_deref() {
            Some("save") => save,
            Some("restore") => restore,
            Some("erase") => erase,
            _ => return Err(ApiError::field("action", "expected save, restore or erase")),
        };
    let work = move || action(&model, id_slot, &folder, filename.unwrap_or_default());
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::internal(&error))?.map(Json)
}

fn save(
    model: &Generator,
    id_slot: usize,
    folder: &Path,
    filename: String,
) -> Result<SlotAnswer, ApiError> {
    let (start, path) = (Instant::now(), file(folder, &filename)?);
    let (n_saved, bytes) = on_engine(model, move |engine| {
        let mut bytes = Vec::new();
        engine.save_slot(id_slot, &mut bytes).map(|tokens| (tokens, bytes))
    })?;
    // The name never stands for a part of a slot.
    let unfinished = folder.join(format!("{filename}.{}-{id_slot}.tmp", std::process::id()));
    let written = fs::write(&unfinished, &bytes).and_then(|()| fs::rename(&unfinished, &path));
    if let Err(error) = written {
        drop(fs::remove_file(&unfinished));
        return Err(ApiError::internal(&format!("cannot write {}: {error}", path.display())));
    }
    let timings = SaveTimings { save_ms: milliseconds(start) };
    Ok(SlotAnswer::Saved { id_slot, filename, n_saved, n_written: bytes.len(), timings })
}

fn restore(
    model: &Generator,
    id_slot: usize,
    folder: &Path,
    filename: String,
) -> Result<SlotAnswer, ApiError> {
    let (start, path) = (Instant::now(), file(folder, &filename)?);
    let bytes = fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ApiError::field("filename", "there is no such file"),
        _ => ApiError::internal(&format!("cannot read {}: {error}", path.display())),
    })?;
    let n_read = bytes.len();
    let n_restored = on_engine(model, move |engine| engine.restore_slot(id_slot, &bytes))?;
    let timings = RestoreTimings { restore_ms: milliseconds(start) };
    Ok(SlotAnswer::Restored { id_slot, filename, n_restored, n_read, timings })
}

fn erase(model: &Generator, id_slot: usize, _: &Path, _: String) -> Result<SlotAnswer, ApiError> {
    let n_erased = on_engine(model, move |engine| Ok(engine.erase_slot(id_slot)))?;
    Ok(SlotAnswer::Erased { id_slot, n_erased })
}

/// Calls `work` between two steps of the model.
fn on_engine<R: Send + 'static>(
    model: &Generator,
    work: impl FnOnce(&mut Engine) -> Result<R, EngineError> + Send + 'static,
) -> Result<R, ApiError> {
    let done = model.handle().call(work);
    let done = done.map_err(|error| ApiError::new(ApiErrorKind::Unavailable, error.to_string()))?;
    done.map_err(|error| refused(&error))
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

/// A file of the folder. A name that could lead out of it is an error.
fn file(folder: &Path, name: &str) -> Result<PathBuf, ApiError> {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | ':');
    let is_name = !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain);
    if !is_name || name.len() > MAX_NAME_BYTES {
        let problem = "expected the name of a file, without folders and without a leading dot";
        return Err(ApiError::field("filename", problem));
    }
    Ok(folder.join(name))
}

/// An error of the engine that the client can act on, or one of the server.
fn refused(error: &EngineError) -> ApiError {
    match error {
        EngineError::Saved(_) | EngineError::PromptTooLong { .. } | EngineError::Adapters(_) => {
            ApiError::field("filename", error)
        }
        EngineError::OutOfPages(_) => ApiError::new(ApiErrorKind::Unavailable, error.to_string()),
        error => ApiError::internal(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_but_into_the_folder() {
        let folder = Path::new("slots");
        assert_eq!(file(folder, "my chat-1.bin").unwrap(), folder.join("my chat-1.bin"));
        let long = "a".repeat(MAX_NAME_BYTES + 1);
        for name in
            ["", ".", "..", "../a", "a/b", "/etc/passwd", "a\\b", "c:a", "a\0", "a\n", ".a", &long]
        {
            assert!(file(folder, name).is_err(), "{name:?}");
        }
    }
}
