//! `rf-cli pull`: downloads a model.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use rocmforge::hub::ModelName;

use crate::hub::{self, Companions};

/// Arguments of `rf-cli pull`.
#[derive(Debug, Args)]
#[command(after_help = "\
Downloads the model into the cache folder of the Hugging Face hub, which other programs share, and prints the \
path of its file. A projector for pictures, if there is one, comes with it. A download that was stopped is resumed. Does nothing if the model is there and is the newest.

Examples:
  rf-cli pull qwen3.5:4b
  rf-cli pull unsloth/Qwen3-8B-GGUF:Q8_0")]
pub(crate) struct PullArgs {
    #[arg(help = "Download this model: a name of `rf-cli list --all`, or OWNER/REPO[:QUANT]")]
    #[arg(value_name = "NAME", value_parser = hub::model_name)]
    name: ModelName,
}

/// Runs `rf-cli pull`.
pub(crate) fn pull(arguments: &PullArgs) -> Result<()> {
    let path = hub::fetch(&arguments.name, Companions::Projector)?;
    writeln!(io::stdout().lock(), "{}", path.display())?;
    Ok(())
}
