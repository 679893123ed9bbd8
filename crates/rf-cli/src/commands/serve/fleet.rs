//! Options for servers that are one of several, behind a router.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::failure::bad_input;

/// Arguments for routers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Routers")]
pub(super) struct FleetArgs {
    /// Let programs of this machine, and keys with `manage_models`, load the adapters (LoRA) of the
    /// folder DIR by name while the server runs. A single model is then loaded after the start
    #[arg(long, value_name = "DIR")]
    pub(super) lora_dir: Option<PathBuf>,
}

impl FleetArgs {
    /// The folder of adapters, which must be there.
    pub(super) fn adapter_folder(&self) -> Result<Option<PathBuf>> {
        match &self.lora_dir {
            Some(folder) if !folder.is_dir() => {
                Err(bad_input!("--lora-dir {}: there is no such folder", folder.display()))
            }
            folder => Ok(folder.clone()),
        }
    }
}
