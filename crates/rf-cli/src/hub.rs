//! Models of the Hugging Face hub, with a progress bar.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rocmforge::hub::{FetchEvent, Hub, ModelName, NameList, ShortName};

use crate::terminal;

/// Parses the name of a model of the hub: a short name, `OWNER/REPO` or `OWNER/REPO:QUANT`.
pub(crate) fn model_name(text: &str) -> Result<ModelName, String> {
    if let Some(short) = ShortName::find(text) {
        return Ok(short.model().clone());
    }
    text.parse().map_err(|_| {
        "it is no short name (`rf-cli list --all` shows them), and neither OWNER/REPO nor OWNER/REPO:QUANT"
            .to_owned()
    })
}

/// Warns if the stored list of names is damaged, so that the names are those of the program.
pub(crate) fn warn_of_names() {
    if let Some(error) = NameList::stored_error() {
        terminal::warn(format_args!("{error}: `rf-cli pull --names` stores a new one"));
    }
}

/// Parses `OWNER/REPO` or `OWNER/REPO:QUANT`, also at the end of the address of its page.
pub(crate) fn repository(text: &str) -> Result<ModelName, rocmforge::hub::Error> {
    let path = text.strip_prefix("https://").unwrap_or(text);
    let path = ["huggingface.co/", "hf.co/"].iter().find_map(|host| path.strip_prefix(host));
    path.unwrap_or(text).trim_end_matches('/').parse()
}

/// The path of a model that `-m` names: a file, or else a short name, whose file is downloaded
/// unless it is cached.
pub(crate) fn named(path: &Path, companions: Companions) -> Result<PathBuf> {
    match path.to_str().and_then(ShortName::find) {
        Some(short) if !path.exists() => fetch(short.model(), companions),
        _ => Ok(path.to_owned()),
    }
}

/// The files that are downloaded with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Companions {
    None,
    /// The projector, if the repository has one.
    Projector,
}

/// The hub of the environment, which downloads these files with a model.
pub(crate) fn of_environment(companions: Companions) -> Result<Hub, rocmforge::hub::Error> {
    Ok(Hub::from_env()?.with_projectors(companions == Companions::Projector))
}

/// Returns the path of the model's file. Downloads it unless it is cached.
pub(crate) fn fetch(name: &ModelName, companions: Companions) -> Result<PathBuf> {
    let hub = of_environment(companions)?;
    let bar = terminal::byte_progress("downloading", 0);
    let outcome = hub.fetch(name, &mut |event| match event {
        FetchEvent::Progress { done_bytes, total_bytes } => {
            if bar.length() != Some(total_bytes) {
                let size = terminal::bytes(total_bytes);
                let folder = hub.cache().display();
                terminal::note(format_args!("downloading {name} ({size}) to {folder}"));
                bar.set_length(total_bytes);
                // Bytes that were there already say nothing about the speed.
                bar.reset_eta();
            }
            bar.set_position(done_bytes);
        }
        FetchEvent::Retry { file, reason } => bar.suspend(|| {
            terminal::note(format_args!("downloading {file}: {reason}, trying again"));
        }),
        FetchEvent::Unreachable(error) => {
            terminal::warn(format_args!("using the cached {name}: {error}"));
        }
        _ => {}
    });
    bar.finish_and_clear();
    Ok(outcome?)
}
