//! `rf-cli perplexity`: measures how well a model predicts a text.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use rocmforge::Purpose;
use rocmforge::engine::{EncodeOptions, Engine, Perplexity, PerplexityScore};
use serde_json::json;

use crate::adapters::AdapterArgs;
use crate::args::{ComputeArgs, DeviceArgs, ModelArgs};
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::loading::ModelFile;
use crate::{device, loading, sources, terminal};

/// Arguments of `rf-cli perplexity`.
#[derive(Debug, Args)]
#[command(after_help = "\
Cuts the tokens into windows of the context size. Each token but the first of a window is scored with the \
tokens before it in the window; perplexity is e to the power of the mean negative log-likelihood (NLL). \
llama-perplexity scores only the second half of each window and skips an incomplete last one, so its results \
differ. If the model needs a BOS token, it replaces the first token of each window.

Examples:
  rf-cli perplexity -m model.gguf -f text.txt -c 2048
  rf-cli perplexity -m model.gguf -f ids.json --ids --json")]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Read the text from FILE; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Score windows of N tokens; 0 = trained context [default: 512, or the trained context if it
    /// is shorter]
    #[arg(short, long, value_name = "N")]
    ctx_size: Option<usize>,
    /// Score only the first N windows; -1 scores all
    #[arg(long, value_name = "N", default_value_t = -1)]
    chunks: i64,
    /// Read token ids instead of text, separated by commas or spaces
    #[arg(long)]
    ids: bool,
    #[arg(long, help = "Print JSON: {\"tokens\": N, \"mean_nll\": X, \"perplexity\": Y}")]
    json: bool,
    #[command(flatten)]
    adapters: AdapterArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// Runs `rf-cli perplexity`.
pub(crate) fn perplexity(arguments: &PerplexityArgs) -> Result<()> {
    if arguments.ctx_size == Some(1) {
        return Err(bad_input!("a window of 1 token has no token to score: give -c 2 or more"));
    }
    let loader = ModelFile::of(&arguments.model)?.loader().purpose(Purpose::Texts);
    let loader = arguments.adapters.add_to(loader);
    let open = loading::open_windows(loader, &arguments.compute, arguments.ctx_size)?;
    let model = open.model();
    let tokenizer = model.tokenizer();
    let (ids, bos) = if arguments.ids {
        (sources::ids(&sources::file_text(&arguments.file)?)?, None)
    } else {
        let bytes = sources::file_bytes(&arguments.file)?;
        let options = EncodeOptions::PLAIN.with_add_special(true);
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        (tokenizer.encode_bytes(&bytes, options), bos)
    };
    let ids = match usize::try_from(arguments.chunks) {
        Ok(0) => return Err(bad_input!("--chunks 0 scores nothing: give 1 or more")),
        Ok(chunks) => &ids[..ids.len().min(open.context_tokens().saturating_mul(chunks))],
        Err(_) => &ids[..],
    };
    if ids.len() < 2 {
        return Err(bad_input!(
            "{} has {} tokens, but at least 2 are needed: give a longer text",
            sources::named(&arguments.file),
            ids.len()
        ));
    }
    // A window is never longer than the text, and takes no more memory.
    let window = open.context_tokens().min(ids.len());
    let open = open.with(|loader| loader.context_tokens(window));
    let cpu = arguments.compute.cpu()?;
    let placement = device::open(arguments.device.options(cpu))?;
    let mut engine = loading::load(&open, &placement, false, &mut |_| ())?.engine;

    let scoring = Instant::now();
    let score = score(&mut engine, ids, bos, arguments.json)?;
    let mean_nll = score.mean_nll();
    let mut out = io::stdout().lock();
    if arguments.json {
        let perplexity = score.perplexity();
        writeln!(
            out,
            "{}",
            json!({ "tokens": score.tokens, "mean_nll": mean_nll, "perplexity": perplexity })
        )?;
    } else {
        writeln!(
            out,
            "perplexity {:.4} (mean NLL {mean_nll:.6} over {} tokens)",
            score.perplexity(),
            score.tokens
        )?;
        let seconds = scoring.elapsed().as_secs_f64();
        terminal::note(format_args!("{seconds:.1} s, {:.1} t/s", ids.len() as f64 / seconds));
    }
    Ok(())
}

/// Scores all tokens, with the perplexity so far on stderr after each window.
fn score(
    engine: &mut Engine,
    ids: &[u32],
    bos: Option<u32>,
    quiet: bool,
) -> Result<PerplexityScore> {
    let show_progress = !quiet && io::stderr().is_terminal();
    let watch = Watch::new();
    let mut run = Perplexity::new(engine, ids, bos)?;
    let mut shown = 0;
    while run.step()? {
        if watch.requested() {
            return Err(Interrupted.into());
        }
        if show_progress && run.windows_done() > shown {
            shown = run.windows_done();
            terminal::note(format_args!("[{shown}] {:.4}", run.score().perplexity()));
        }
    }
    Ok(run.score())
}
