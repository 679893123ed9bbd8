//! `rf-cli pull`: downloads a model, or a newer list of names.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use rocmforge::hub::{ModelName, NameList};

use crate::failure::bad_input;
use crate::hub::{self, Companions};
use crate::terminal;

/// Arguments of `rf-cli pull`.
#[derive(Debug, Args)]
#[command(after_help = "\
Downloads the model into the cache folder of the Hugging Face hub, which other programs share, and prints the \
path of its file. A projector for pictures, if there is one, comes with it. A download that was stopped is resumed. Does nothing if the model is there and is the newest.

--names updates the list of names that `rf-cli list --all` prints. Its signature of minisign, LIST.minisig, is \
verified.

Examples:
  rf-cli pull qwen3.5:4b
  rf-cli pull unsloth/Qwen3-8B-GGUF:Q8_0
  rf-cli pull --names names.txt --public-key minisign.pub")]
pub(crate) struct PullArgs {
    #[arg(help = "Download this model: a name of `rf-cli list --all`, or OWNER/REPO[:QUANT]")]
    #[arg(value_name = "NAME", value_parser = hub::model_name)]
    #[arg(required_unless_present = "names", conflicts_with = "names")]
    name: Option<ModelName>,
    /// Use the names of this list, a file or a URL, if its signature is valid
    #[arg(long, value_name = "LIST")]
    names: Option<String>,
    /// Verify the signature with this public key, a file or the key itself, instead of the key of
    /// the program
    #[arg(long, value_name = "KEY", requires = "names")]
    public_key: Option<String>,
}

/// Runs `rf-cli pull`.
pub(crate) fn pull(arguments: &PullArgs) -> Result<()> {
    if let Some(list) = &arguments.names {
        let key = key(arguments.public_key.as_deref())?;
        let new = NameList::update(list, &key)?;
        terminal::note(format_args!(
            "using the names of {}: `rf-cli list --all` shows them",
            new.date()
        ));
        return Ok(());
    }
    hub::warn_of_names();
    let name = arguments.name.as_ref().context("clap requires a name")?;
    let path = hub::fetch(name, Companions::Projector)?;
    writeln!(io::stdout().lock(), "{}", path.display())?;
    Ok(())
}

/// The public key that is given, else that of the program.
fn key(given: Option<&str>) -> Result<String> {
    match given {
        Some(path) if Path::new(path).is_file() => {
            fs::read_to_string(path).with_context(|| format!("cannot read '{path}'"))
        }
        Some(key) => Ok(key.to_owned()),
        None => NameList::project_key().map(str::to_owned).ok_or_else(|| {
            bad_input!("this program has no key for lists of names: give --public-key")
        }),
    }
}
