//! `rf-cli perplexity`: how well a model predicts a text.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use rf_engine::{Engine, Feed, Outputs};
use rf_tokenizer::EncodeOptions;
use serde_json::json;

use crate::args::{ComputeArgs, ModelArgs};
use crate::device::DeviceArgs;
use crate::failure::{Interrupted, bad_input};
use crate::interrupt::Watch;
use crate::loading::Source;
use crate::{loading, sources, terminal};

/// Arguments of `rf-cli perplexity`.
#[derive(Debug, Args)]
#[command(after_help = "\
The tokens are cut into windows of the context size. Each token but the first of a window is scored \
with the window's tokens before it; perplexity is e to the power of the mean negative log-likelihood. \
(llama-perplexity scores the second half of each window only and leaves out an incomplete last one, so \
its figures differ.) Where the model asks for a BOS token, it takes the place of each window's first.

Examples:
  rf-cli perplexity -m model.gguf -f text.txt -c 2048
  rf-cli perplexity -m model.gguf -f ids.json --ids --json")]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// File with the text; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Tokens per window; 0 for the model's own context
    #[arg(short, long, value_name = "N", default_value_t = 512)]
    ctx_size: usize,
    /// The file holds token ids, separated by commas or spaces
    #[arg(long)]
    ids: bool,
    #[arg(long, help = "Print JSON: {\"tokens\": N, \"mean_nll\": X, \"perplexity\": Y}")]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// Runs `rf-cli perplexity`.
pub(crate) fn perplexity(arguments: &PerplexityArgs) -> Result<()> {
    if arguments.ctx_size == 1 {
        return Err(bad_input!("windows of 1 token have none to score: give -c 2 or more"));
    }
    let started = Instant::now();
    let model = loading::open_model(&arguments.model)?;
    let tokenizer = model.tokenizer();
    let (ids, bos) = if arguments.ids {
        (sources::ids(&sources::file_text(&arguments.file)?)?, None)
    } else {
        let bytes = sources::file_bytes(&arguments.file)?;
        let options = EncodeOptions { add_special: true, parse_special: false };
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        (tokenizer.encode_bytes(&bytes, options), bos)
    };
    if ids.len() < 2 {
        return Err(bad_input!(
            "'{}' has {} tokens and at least 2 are needed: give a longer text",
            arguments.file.display(),
            ids.len()
        ));
    }
    let cpu = loading::cpu_options(&arguments.compute)?;
    let options = loading::engine_options(&model, &arguments.compute, Some(arguments.ctx_size))?;
    let placement = arguments.device.open(cpu)?;
    let source = Source { path: arguments.model.model.as_deref(), started, quiet: false };
    let mut engine = loading::load(model, &placement, options, source)?.engine;

    let scoring = Instant::now();
    let score = score(&mut engine, &ids, bos, arguments.json)?;
    let mean_nll = score.nll_sum / score.tokens as f64;
    let mut out = io::stdout().lock();
    if arguments.json {
        let perplexity = mean_nll.exp();
        writeln!(
            out,
            "{}",
            json!({ "tokens": score.tokens, "mean_nll": mean_nll, "perplexity": perplexity })
        )?;
    } else {
        writeln!(
            out,
            "perplexity {:.4} (mean NLL {mean_nll:.6} over {} tokens)",
            mean_nll.exp(),
            score.tokens
        )?;
        let seconds = scoring.elapsed().as_secs_f64();
        terminal::note(format_args!("{seconds:.1} s, {:.1} t/s", ids.len() as f64 / seconds));
    }
    Ok(())
}

/// Sums over the scored tokens.
#[derive(Default)]
struct Score {
    tokens: usize,
    nll_sum: f64,
}

/// Logits held at once, in bytes: a vocabulary of 150 000 takes 0.6 MB per token.
const MAX_LOGITS_BYTES: usize = 64 << 20;

fn score(engine: &mut Engine, ids: &[u32], bos: Option<u32>, quiet: bool) -> Result<Score> {
    let vocab_size = engine.model().config().vocab_size;
    let chunk_tokens = (MAX_LOGITS_BYTES / (4 * vocab_size)).clamp(1, engine.batch_tokens());
    let show_progress = !quiet && io::stderr().is_terminal();
    let watch = Watch::new();
    let mut session = engine.session();
    let mut score = Score::default();
    for (index, window) in ids.chunks(engine.context_tokens()).enumerate() {
        session.reset();
        let mut window = window.to_vec();
        if let Some(bos) = bos {
            window[0] = bos;
        }
        // The last token predicts nothing that is there.
        let inputs = &window[..window.len() - 1];
        for (chunk, targets) in inputs.chunks(chunk_tokens).zip(window[1..].chunks(chunk_tokens)) {
            if watch.requested() {
                return Err(Interrupted.into());
            }
            let feed = Feed { session: &mut session, ids: chunk, outputs: Outputs::All };
            let logits = engine.forward(&mut [feed])?;
            for (row, &target) in logits.chunks_exact(vocab_size).zip(targets) {
                let Some(nll) = negative_log_likelihood(row, target) else {
                    return Err(bad_input!(
                        "token id {target} is not in the vocabulary of {vocab_size}"
                    ));
                };
                score.nll_sum += nll;
                score.tokens += 1;
            }
        }
        if show_progress && score.tokens > 0 {
            let perplexity = (score.nll_sum / score.tokens as f64).exp();
            terminal::note(format_args!("[{}] {perplexity:.4}", index + 1));
        }
    }
    Ok(score)
}

/// −log softmax(logits)\[target\]; `None` where there is no such logit.
fn negative_log_likelihood(logits: &[f32], target: u32) -> Option<f64> {
    let target = f64::from(*logits.get(target as usize)?);
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - f64::from(max)).exp()).sum();
    Some(f64::from(max) + sum.ln() - target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_share_the_probability() {
        let nll = negative_log_likelihood(&[5.0; 8], 3).unwrap();
        assert!((nll - 8.0_f64.ln()).abs() < 1e-12);
        assert_eq!(negative_log_likelihood(&[5.0; 8], 8), None);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let nll = negative_log_likelihood(&[1000.0, 0.0, -1000.0], 1).unwrap();
        assert!((nll - 1000.0).abs() < 1e-9);
    }
}
