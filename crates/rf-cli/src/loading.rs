//! Loads a model for a command, with a progress bar and notes on stderr.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use rf_device::{LoadEvent, LoadedModel};
use rf_engine::{EngineOptions, Model};
use rf_gguf::{Gguf, Value};

use crate::args::{ComputeArgs, ModelArgs, TemplateChoice};
use crate::demo;
use crate::device::Placement;
use crate::failure::bad_input;
use crate::{hub, terminal};

/// The file of a model, and the metadata that replace those of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelFile {
    /// `None` for the demo model.
    pub(crate) path: Option<PathBuf>,
    overrides: Vec<(String, Value)>,
}

impl ModelFile {
    /// A file as it is.
    pub(crate) fn of_path(path: Option<PathBuf>) -> Self {
        Self { path, overrides: Vec::new() }
    }

    /// The file that the arguments name, which is downloaded if need be.
    pub(crate) fn of(arguments: &ModelArgs) -> Result<Self> {
        let path = match &arguments.hf_repo {
            Some(name) => Some(hub::fetch(name)?),
            None => arguments.model.clone(),
        };
        Ok(Self { path, overrides: arguments.override_kv.clone() })
    }

    /// Replaces the file, if another one is given, and keeps the metadata.
    pub(crate) fn or_path(self, path: Option<PathBuf>) -> Self {
        Self { path: path.or(self.path), ..self }
    }

    /// Opens the container.
    pub(crate) fn open(&self) -> Result<Gguf> {
        let mut gguf = match &self.path {
            Some(path) => Gguf::open(path)?,
            None => demo::open()?,
        };
        for (key, value) in &self.overrides {
            gguf.override_metadata(key, value.clone());
        }
        Ok(gguf)
    }
}

/// Opens a model file, or the demo model. Warns of a tokenizer that may make answers worse.
/// `template` is applied to it.
pub(crate) fn open_model(file: &ModelFile, template: Option<&TemplateChoice>) -> Result<Model> {
    let model = read_model(file, template)?;
    warn_of_tokenizer(model.tokenizer());
    Ok(model)
}

fn read_model(file: &ModelFile, template: Option<&TemplateChoice>) -> Result<Model> {
    let model = Model::from_gguf(file.open()?)?;
    match template {
        Some(template) => template.apply(model),
        None => Ok(model),
    }
}

/// Warns of what may make answers worse.
pub(crate) fn warn_of_tokenizer(tokenizer: &rf_tokenizer::Tokenizer) {
    for (key, id) in tokenizer.ignored_ids() {
        let size = tokenizer.vocab_size();
        terminal::warn(format_args!(
            "{key} = {id} is not in the vocabulary of {size} tokens and is ignored: convert the model again"
        ));
    }
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
    pub(crate) file: &'a ModelFile,
    pub(crate) template: Option<&'a TemplateChoice>,
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
    let reopen = || Ok(read_model(source.file, source.template)?);
    let loaded = placement.load(model, &reopen, options, &mut |event| match event {
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
    Ok(loaded?)
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
