//! Loads a model for a command, with a progress bar and notes on stderr.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use rocmforge::engine::Model;
use rocmforge::gguf::{Gguf, Value};
use rocmforge::{LoadEvent, LoadedModel, Loader, OpenModel, Source};

use crate::args::{ComputeArgs, ModelArgs};
use crate::device::Placement;
use crate::failure::{self, bad_input};
use crate::hub::{self, Companions};
use crate::terminal;

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
        Self::with_companions(arguments, Companions::None)
    }

    /// As [`of`](Self::of), with the files that are downloaded beside the model.
    pub(crate) fn with_companions(arguments: &ModelArgs, companions: Companions) -> Result<Self> {
        let path = match (&arguments.hf_repo, &arguments.model) {
            (Some(name), _) => Some(hub::fetch(name, companions)?),
            (None, Some(path)) => Some(hub::named(path, companions)?),
            (None, None) => None,
        };
        Ok(Self { path, overrides: arguments.override_kv.clone() })
    }

    /// Replaces the file, if another one or a short name is given, and keeps the metadata.
    pub(crate) fn or_path(self, path: Option<&Path>, companions: Companions) -> Result<Self> {
        let path = path.map(|path| hub::named(path, companions)).transpose()?;
        Ok(Self { path: path.or(self.path), ..self })
    }

    /// The source of the model for the library.
    pub(crate) fn source(&self) -> Source {
        self.path.clone().map_or(Source::Demo, Source::File)
    }

    /// Opens the container.
    pub(crate) fn open(&self) -> Result<Gguf> {
        let mut gguf = self.source().open(&mut |_| ())?;
        for (key, value) in &self.overrides {
            gguf.override_metadata(key, value.clone());
        }
        Ok(gguf)
    }

    /// The options of loading the model.
    pub(crate) fn loader(&self) -> Loader {
        let overrides = self.overrides.iter().cloned();
        overrides
            .fold(Loader::new(self.source()), |loader, (key, value)| loader.metadata(key, value))
    }
}

/// Opens a model: reads its header. Warns of a tokenizer that may make answers worse.
pub(crate) fn open(loader: Loader) -> Result<OpenModel> {
    let open = loader.open(&mut |_| ())?;
    warn_of_tokenizer(open.model().tokenizer());
    Ok(open)
}

/// Opens a model that generates text.
pub(crate) fn open_generator(loader: Loader) -> Result<OpenModel> {
    let open = open(loader)?;
    open.check_generates()?;
    Ok(open)
}

/// Opens a model that computes windows of a text. Without `context` they have 512 tokens, or as
/// many as the model was trained with.
pub(crate) fn open_windows(
    loader: Loader,
    compute: &ComputeArgs,
    context: Option<usize>,
) -> Result<OpenModel> {
    const WINDOW: usize = 512;
    let open = open_generator(sized(loader, compute, context)?)?;
    warn_of_context(open.model(), context);
    if context.is_some() {
        return Ok(open);
    }
    let trained = open.model().config().context_length;
    Ok(open.with(|loader| loader.context_tokens(WINDOW.min(trained))))
}

/// Warns of what may make answers worse.
pub(crate) fn warn_of_tokenizer(tokenizer: &rocmforge::engine::Tokenizer) {
    for (key, id) in tokenizer.ignored_ids() {
        let size = tokenizer.vocab_size();
        terminal::warn(format_args!(
            "{key} = {id} is not in the vocabulary of {size} tokens and is ignored: convert the model again"
        ));
    }
    if let Some(problem) = unknown_types(tokenizer) {
        terminal::warn(format_args!("{problem}: convert the model again"));
    }
    if tokenizer.pre_is_default() {
        terminal::warn(
            "the file names no pre-tokenizer (tokenizer.ggml.pre), so a generic one is used and answers may be \
             worse: convert the model again with a current converter",
        );
    }
}

/// The problem of tokens whose type has no meaning, if there are any.
pub(crate) fn unknown_types(tokenizer: &rocmforge::engine::Tokenizer) -> Option<String> {
    let types = tokenizer.unknown_types();
    let (id, token_type) = types.first()?;
    let others = match types.len() - 1 {
        0 => String::new(),
        others => format!(", as {others} more do"),
    };
    Some(format!(
        "token {id} has the unknown type {token_type} (tokenizer.ggml.token_type){others}, and counts as unused"
    ))
}

/// Warns of metadata that replace nothing.
pub(crate) fn warn_of_unused_overrides(model: &Model) {
    for key in model.gguf().metadata().unused_overrides() {
        terminal::warn(format_args!(
            "--override-kv {}: the file has no such key, and nothing reads it: `rf-cli info --metadata` shows \
             the keys",
            terminal::shown(key)
        ));
    }
}

/// Adds the sizes that the flags give. `context` is the value of `-c`: 0 is the context that the
/// model was trained with.
pub(crate) fn sized(
    loader: Loader,
    compute: &ComputeArgs,
    context: Option<usize>,
) -> Result<Loader> {
    let mut loader = loader.batch_tokens(compute.batch_tokens()?);
    if let Some(kv_type) = compute.kv_type()? {
        loader = loader.kv_type(kv_type);
    }
    Ok(match context {
        Some(tokens) => loader.context_tokens(tokens),
        None => loader,
    })
}

/// Warns of a context that is longer than the model was trained with.
pub(crate) fn warn_of_context(model: &Model, context: Option<usize>) {
    let trained = model.config().context_length;
    if let Some(tokens) = context.filter(|&tokens| tokens > trained) {
        terminal::warn(format_args!(
            "a context of {tokens} tokens exceeds the {trained} that the model was trained with: answers get \
             worse beyond them"
        ));
    }
}

/// Loads a model, with a progress bar if it takes long. Prints where its layers run, unless
/// `quiet`. `make_room` gets the bytes that the model is about to take.
pub(crate) fn load(
    open: &OpenModel,
    placement: &Placement,
    quiet: bool,
    make_room: &mut dyn FnMut(u64),
) -> Result<LoadedModel> {
    // A bar that shows for an instant only distracts.
    const DELAY: Duration = Duration::from_millis(200);
    warn_of_unused_overrides(open.model());
    let bar = terminal::byte_progress("loading", 0);
    let loading = Instant::now();
    let loaded = open.load_on(placement, &mut |event| match event {
        LoadEvent::MemoryNeed(need) => make_room(need.total_bytes()),
        LoadEvent::Placed(layers) if layers.gpu.is_some() && !quiet => terminal::note(layers),
        LoadEvent::Warning(warning) => terminal::warn(failure::device_warning(warning)),
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
