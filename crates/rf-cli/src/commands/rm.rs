//! `rf-cli rm`: removes downloaded models.

use anyhow::Result;
use clap::Args;
use rocmforge::hub::{Hub, ModelName};

use crate::{hub, terminal};

/// Arguments of `rf-cli rm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Removes files of the cache folder of the Hugging Face hub only. OWNER/REPO without QUANT removes all models of \
the repository.

Examples:
  rf-cli rm qwen3.5:4b
  rf-cli rm unsloth/Qwen3-8B-GGUF:Q8_0")]
pub(crate) struct RmArgs {
    /// Remove these models: names that `rf-cli list` prints
    #[arg(value_name = "NAME", required = true, value_parser = hub::model_name)]
    names: Vec<ModelName>,
}

/// Runs `rf-cli rm`.
pub(crate) fn rm(arguments: &RmArgs) -> Result<()> {
    let hub = Hub::from_env()?;
    for name in &arguments.names {
        let freed = hub.remove(name)?;
        terminal::note(format_args!("removed {name} ({})", terminal::bytes(freed)));
    }
    Ok(())
}
