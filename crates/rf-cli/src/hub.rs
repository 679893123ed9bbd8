//! Models of the Hugging Face hub, with a progress bar.

use std::path::PathBuf;

use anyhow::Result;
use rocmforge::hub::{Event, Hub, ModelName};

use crate::terminal;

/// Returns the path of the model's file. Downloads it unless it is cached.
pub(crate) fn fetch(name: &ModelName) -> Result<PathBuf> {
    let hub = Hub::from_env()?;
    let bar = terminal::byte_progress("downloading", 0);
    let outcome = hub.fetch(name, &mut |event| match event {
        Event::Progress { done_bytes, total_bytes } => {
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
        Event::Unreachable(error) => {
            terminal::warn(format_args!("using the cached {name}: {error}"));
        }
        _ => {}
    });
    bar.finish_and_clear();
    Ok(outcome?)
}
