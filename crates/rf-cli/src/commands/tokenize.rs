//! `rf-cli tokenize`: converts text to token ids and back.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rf_tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};
use rocmforge::engine::tokenizer_from_gguf;
use serde_json::json;

use crate::args::ModelArgs;
use crate::failure::bad_input;
use crate::loading::ModelFile;
use crate::{loading, sources};

/// Arguments of `rf-cli tokenize`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints a line `id -> 'text'` per token. With --ids, prints only the ids as [1, 2, 3]; with --json an object \
{\"ids\": [...], \"tokens\": [...]}. --decode prints the text unchanged, and with --json \
{\"text\": \"...\"}. The model file may be a vocabulary without tensors.

Examples:
  rf-cli tokenize \"Once upon a time\"
  rf-cli tokenize -m model.gguf --no-special -f text.txt --ids
  rf-cli tokenize -m model.gguf --decode 9707,1879")]
pub(crate) struct TokenizeArgs {
    /// Tokenize this text [default: -f, or standard input]
    #[arg(value_name = "TEXT", conflicts_with_all = ["file", "decode"])]
    text: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// Tokenize the bytes of FILE; - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "decode")]
    file: Option<PathBuf>,
    /// Convert these ids, separated by commas or spaces, to text
    #[arg(long, value_name = "IDS")]
    decode: Option<String>,
    /// Add no BOS and EOS, and treat special tokens in the text as plain text (with --decode: omit
    /// them)
    #[arg(long)]
    no_special: bool,
    /// Print only the ids
    #[arg(long)]
    ids: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `rf-cli tokenize`.
pub(crate) fn tokenize(arguments: &TokenizeArgs) -> Result<()> {
    let gguf = ModelFile::of(&arguments.model)?.open()?;
    let tokenizer = tokenizer_from_gguf(&gguf)?;
    loading::warn_of_tokenizer(&tokenizer);
    if let Some(ids) = &arguments.decode {
        return decode(&tokenizer, &sources::ids(ids)?, arguments);
    }
    let text = match (&arguments.text, &arguments.file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(file)) => sources::file_bytes(file)?,
        (None, None) if io::stdin().is_terminal() => {
            return Err(bad_input!("no text: give it as an argument, with -f FILE, or by a pipe"));
        }
        (None, None) => sources::stdin_bytes()?,
    };
    let special = !arguments.no_special;
    let options = EncodeOptions::PLAIN.with_add_special(special).with_parse_special(special);
    print(&tokenizer, &tokenizer.encode_bytes(&text, options), arguments)
}

fn decode(tokenizer: &Tokenizer, ids: &[u32], arguments: &TokenizeArgs) -> Result<()> {
    let options = DecodeOptions::default().with_render_special(!arguments.no_special);
    let bytes = tokenizer.decode_bytes(ids, options)?;
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", json!({ "text": String::from_utf8_lossy(&bytes) }))?;
        return Ok(());
    }
    out.write_all(&bytes)?;
    if out.is_terminal() {
        writeln!(out)?;
    }
    out.flush()?;
    Ok(())
}

fn print(tokenizer: &Tokenizer, ids: &[u32], arguments: &TokenizeArgs) -> Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if arguments.ids && !arguments.json {
        writeln!(out, "{ids:?}")?;
        out.flush()?;
        return Ok(());
    }
    let mut pieces = Vec::with_capacity(ids.len());
    for &id in ids {
        pieces.push(String::from_utf8_lossy(&tokenizer.piece(id)?).into_owned());
    }
    if arguments.json {
        writeln!(out, "{}", json!({ "ids": ids, "tokens": pieces }))?;
    } else {
        for (id, piece) in ids.iter().zip(&pieces) {
            writeln!(out, "{id:>6} -> '{}'", piece.escape_debug())?;
        }
    }
    out.flush()?;
    Ok(())
}
