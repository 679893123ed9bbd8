//! `rf-cli gguf edit`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use rf_convert::{Change, Changes, Edit};
use rf_gguf::Gguf;

use super::copied::{copied, failure};
use crate::commands::info::metadata_json;
use crate::sources;
use crate::terminal::{self, Palette};

/// Arguments of `rf-cli gguf edit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys are removed first, then renamed, then set. `rf-cli info --metadata FILE` lists them. A key of the file keeps \
its type. A new key names it, as in u32:5 or string[]:[\"a\", \"b\"]; the types are u8, i8, u16, i16, u32, i32, u64, \
i64, f32, f64, bool and string. The value of an array is a JSON list. A key is given another type by --remove and \
--set.

Without -o, FILE is replaced at the end, and the old one stays as FILE.bak.

Examples:
  rf-cli gguf edit --set general.name=Fox model.gguf
  rf-cli gguf edit --set tokenizer.chat_template=@template.jinja model.gguf -o new.gguf
  rf-cli gguf edit --set tokenizer.ggml.add_bos_token=bool:false --remove general.url model.gguf")]
pub(crate) struct EditArgs {
    /// Change this file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Set KEY to VALUE, or to the text of a file with @FILE (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Remove KEY (repeatable)
    #[arg(long, value_name = "KEY")]
    remove: Vec<String>,
    /// Rename the key OLD to NEW (repeatable)
    #[arg(long, value_name = "OLD=NEW", value_parser = pair)]
    rename: Vec<(String, String)>,
    /// Write the changed file to OUT and leave FILE as it is
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Print the changes and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs `rf-cli gguf edit`.
pub(super) fn edit(arguments: &EditArgs) -> Result<()> {
    let set = arguments.set.iter().map(|(key, text)| match text.strip_prefix('@') {
        Some(file) => Ok((key.clone(), sources::file_text(Path::new(file))?)),
        None => Ok((key.clone(), text.clone())),
    });
    let changes = Changes {
        remove: arguments.remove.clone(),
        rename: arguments.rename.clone(),
        set: set.collect::<Result<_>>()?,
    };
    let gguf = Gguf::open(&arguments.file)?;
    let plan = Edit::plan(&gguf, &changes).map_err(|error| failure(error, &gguf))?;
    let file = terminal::shown(&arguments.file.display().to_string());
    let note = if plan.changes().is_empty() {
        Some(format!("{file}: nothing changes, so nothing is written"))
    } else if arguments.dry_run {
        None
    } else if let Some(output) = &arguments.output {
        copied(&gguf, |progress| plan.write(output, progress))?;
        let output = terminal::shown(&output.display().to_string());
        Some(Palette::stderr().bold(output))
    } else {
        let backup = copied(&gguf, |progress| plan.write_in_place(progress))?;
        let backup = terminal::shown(&backup.display().to_string());
        let file = Palette::stderr().bold(file);
        Some(format!("{file}: changed, and the old file is {backup}"))
    };
    let mut out = io::stdout().lock();
    for change in plan.changes() {
        writeln!(out, "{}", line(change))?;
    }
    note.into_iter().for_each(terminal::note);
    Ok(())
}

/// `KEY: OLD -> NEW`.
fn line(change: &Change) -> String {
    let key = terminal::shown(&change.key);
    let name = if change.key == change.new_key {
        key
    } else {
        format!("{key} -> {}", terminal::shown(&change.new_key))
    };
    let shown = |value| terminal::shown(&metadata_json(value).to_string());
    match (&change.old, &change.new) {
        (Some(old), Some(new)) if old == new => name,
        (Some(old), Some(new)) => format!("{name}: {} -> {}", shown(old), shown(new)),
        (None, Some(new)) => format!("{name}: added, {}", shown(new)),
        (Some(old), None) => format!("{name}: removed, {}", shown(old)),
        (None, None) => name,
    }
}

fn pair(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or("expected a key, = and a text, as in general.name=Fox")?;
    Ok((key.to_owned(), value.to_owned()))
}
