//! From the shared options to a model in memory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rf_cpu::{CpuBackend, CpuOptions};
use rf_engine::{Engine, EngineOptions, Model};
use rf_gguf::Gguf;

use crate::args::{ComputeArgs, ModelArgs};
use crate::demo;
use crate::failure::bad_input;
use crate::terminal;

/// A model that is ready to run.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    /// From opening the file to here.
    pub(crate) load_time: Duration,
}

/// Opens the container of a model file, or of the demo model.
pub(crate) fn open_gguf(path: Option<&Path>) -> Result<Gguf> {
    match path {
        Some(path) => Ok(Gguf::open(path)?),
        None => demo::open(),
    }
}

/// Opens a model and warns of what may make its answers worse.
pub(crate) fn open_model(arguments: &ModelArgs) -> Result<Model> {
    let model = Model::from_gguf(open_gguf(arguments.model.as_deref())?)?;
    warn_of_generic_pre_tokenizer(model.tokenizer());
    Ok(model)
}

pub(crate) fn warn_of_generic_pre_tokenizer(tokenizer: &rf_tokenizer::Tokenizer) {
    if tokenizer.pre_is_default() {
        terminal::warn(
            "the file names no pre-tokenizer (tokenizer.ggml.pre), so a generic one is used and answers may be \
             worse: convert the model again with a current converter",
        );
    }
}

/// The options of the engine; `context` is as for `-c`: 0 for the model's own context.
pub(crate) fn engine_options(
    model: &Model,
    compute: &ComputeArgs,
    context: Option<usize>,
) -> Result<EngineOptions> {
    let own = model.config().context_length;
    let context_tokens = context.map(|tokens| if tokens == 0 { own } else { tokens });
    if let Some(tokens) = context_tokens.filter(|&tokens| tokens > own) {
        terminal::warn(format_args!(
            "a context of {tokens} tokens is more than the {own} that the model was trained for: answers get worse \
             beyond that"
        ));
    }
    Ok(EngineOptions {
        context_tokens,
        batch_tokens: compute.batch_tokens()?,
        kv_type: compute.kv_type()?,
        ..EngineOptions::default()
    })
}

/// The CPU backend with the threads and the instruction set that were asked for.
pub(crate) fn backend(compute: &ComputeArgs, threads: Option<usize>) -> Result<CpuBackend> {
    Ok(CpuBackend::new(CpuOptions { threads, tier: compute.tier })?)
}

/// Loads a model, with a progress bar where it takes long. `started` is when opening it began.
pub(crate) fn load(
    model: Model,
    backend: &CpuBackend,
    options: EngineOptions,
    started: Instant,
) -> Result<Loaded> {
    // A bar that flashes by disturbs more than it tells.
    const PATIENCE: Duration = Duration::from_millis(200);
    let bar = terminal::byte_progress("loading", 0);
    let loading = Instant::now();
    let engine = Engine::load(model, backend, options, &mut |progress| {
        if loading.elapsed() > PATIENCE {
            bar.set_length(progress.total_bytes);
            bar.set_position(progress.done_bytes);
        }
    });
    bar.finish_and_clear();
    Ok(Loaded { engine: engine?, load_time: started.elapsed() })
}

/// The context of `-c`, which must hold a prompt and an answer.
pub(crate) fn check_context(context: Option<usize>) -> Result<()> {
    match context {
        Some(1) => {
            Err(bad_input!("a context of 1 token has no room for an answer: give 2 or more"))
        }
        _ => Ok(()),
    }
}
