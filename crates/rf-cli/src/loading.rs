//! Loads a model for a command, with a progress bar and notes on stderr.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use rf_device::{LayerPlacement, LoadEvent};
use rf_engine::{Engine, EngineOptions, Model};
use rf_gguf::Gguf;

use crate::args::{ComputeArgs, ModelArgs};
use crate::demo;
use crate::device::Placement;
use crate::failure::bad_input;
use crate::{hub, terminal};

/// A loaded model.
pub(crate) struct LoadedModel {
    pub(crate) engine: Engine,
    /// Time from opening the file to the end of loading.
    pub(crate) load_time: Duration,
    pub(crate) placement: LayerPlacement,
}

/// Opens the container of a model file, or of the demo model.
pub(crate) fn open_gguf(path: Option<&Path>) -> Result<Gguf> {
    match path {
        Some(path) => Ok(Gguf::open(path)?),
        None => demo::open(),
    }
}

/// The path of the model's file, which is downloaded if need be; `None` for the demo model.
pub(crate) fn model_file(arguments: &ModelArgs) -> Result<Option<PathBuf>> {
    match &arguments.hf_repo {
        Some(name) => Ok(Some(hub::fetch(name)?)),
        None => Ok(arguments.model.clone()),
    }
}

/// Opens a model file, or the demo model. Warns of a tokenizer that may make answers worse.
pub(crate) fn open_model(path: Option<&Path>) -> Result<Model> {
    let model = Model::from_gguf(open_gguf(path)?)?;
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

/// The options of the engine. `context` is the value of `-c`: 0 is the context of the model.
pub(crate) fn engine_options(
    model: &Model,
    compute: &ComputeArgs,
    context: Option<usize>,
) -> Result<EngineOptions> {
    let trained = model.config().context_length;
    let context_tokens = context.map(|tokens| if tokens == 0 { trained } else { tokens });
    if let Some(tokens) = context_tokens.filter(|&tokens| tokens > trained) {
        terminal::warn(format_args!(
            "a context of {tokens} tokens is more than the {trained} that the model was trained for: answers get \
             worse beyond that"
        ));
    }
    Ok(EngineOptions {
        context_tokens,
        batch_tokens: compute.batch_tokens()?,
        kv_type: compute.kv_type()?,
        ..EngineOptions::default()
    })
}

/// The file of a model, and what is printed while it is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// `None` for the demo model.
    pub(crate) path: Option<&'a Path>,
    /// The time at which opening the file began.
    pub(crate) started: Instant,
    /// Do not print where layers run.
    pub(crate) quiet: bool,
}

/// Loads a model, with a progress bar if it takes long, and prints where its layers run.
pub(crate) fn load(
    model: Model,
    placement: &Placement,
    options: EngineOptions,
    source: Source<'_>,
) -> Result<LoadedModel> {
    // A bar that shows for an instant only distracts.
    const DELAY: Duration = Duration::from_millis(200);
    let bar = terminal::byte_progress("loading", 0);
    let loading = Instant::now();
    let reopen = || Ok(Model::from_gguf(open_gguf(source.path)?)?);
    let outcome = placement.load(model, &reopen, options, &mut |event| match event {
        LoadEvent::Placed(layers) if layers.gpu.is_some() && !source.quiet => {
            terminal::note(layers);
        }
        LoadEvent::Warning(warning) => terminal::warn(warning),
        LoadEvent::Progress(progress) if loading.elapsed() > DELAY => {
            bar.set_length(progress.total_bytes);
            bar.set_position(progress.done_bytes);
        }
        _ => {}
    });
    bar.finish_and_clear();
    let rf_device::LoadedModel { engine, placement } = outcome?;
    Ok(LoadedModel { engine, load_time: source.started.elapsed(), placement })
}

/// Checks the context of `-c`, which holds a prompt and an answer.
pub(crate) fn check_context(context: Option<usize>) -> Result<()> {
    match context {
        Some(1) => {
            Err(bad_input!("a context of 1 token has no room for an answer: give -c 2 or more"))
        }
        _ => Ok(()),
    }
}
