//! From the shared options to a model in memory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rf_cpu::CpuOptions;
use rf_engine::hybrid::{self, HybridBackend};
use rf_engine::{Engine, EngineOptions, Error, Model};
use rf_gguf::Gguf;
use rf_graph::{Backend, BackendError};

use crate::args::{ComputeArgs, ModelArgs};
use crate::device::{GpuLayers, OpenGpu, Placement};
use crate::failure::bad_input;
use crate::terminal;
use crate::{demo, failure};

/// A model that is ready to run.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    /// From opening the file to here.
    pub(crate) load_time: Duration,
    pub(crate) placed: Placed,
}

/// What runs where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placed {
    /// `CPU`, `GPU`, `GPU,CPU`.
    pub(crate) backends: String,
    /// Threads of the CPU; the one that drives the GPU where the CPU has no part.
    pub(crate) threads: usize,
    /// The GPU's name, if it has a part.
    pub(crate) gpu: Option<String>,
    /// Layers on it, the output counting as one.
    pub(crate) gpu_layers: usize,
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

/// How the CPU takes part.
pub(crate) fn cpu_options(compute: &ComputeArgs) -> Result<CpuOptions> {
    Ok(CpuOptions { threads: compute.threads()?, isa: compute.tier })
}

/// Where a model comes from, and what is said while it is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// `None` for the demo model.
    pub(crate) path: Option<&'a Path>,
    /// When opening it began.
    pub(crate) started: Instant,
    /// Say nothing of what runs where.
    pub(crate) quiet: bool,
}

impl Source<'_> {
    /// The model once more, after loading it has failed; what there was to warn of has been said.
    fn reopen(self) -> Result<Model> {
        Ok(Model::from_gguf(open_gguf(self.path)?)?)
    }
}

/// Loads a model where `placement` says, with a progress bar where it takes long, and says what runs where.
/// Where the choice is ours and the GPU fails, the CPU takes over, with a warning.
pub(crate) fn load(
    model: Model,
    placement: &Placement,
    options: EngineOptions,
    source: Source<'_>,
) -> Result<Loaded> {
    let Some(gpu) = placement.gpu() else {
        return load_on_cpu(model, placement, options, source);
    };
    match load_with_gpu(model, placement, gpu, options, source) {
        Err(error) if placement.is_auto() && is_of_backend(&error) => {
            let why = failure::sentence(&error);
            terminal::warn(format_args!("{gpu} is not used, the model runs on the CPU: {why}"));
            load_on_cpu(source.reopen()?, placement, options, source)
        }
        outcome => outcome,
    }
}

/// Loads a model on the GPU, or its last layers there and the others on the CPU.
fn load_with_gpu(
    model: Model,
    placement: &Placement,
    gpu: &OpenGpu,
    options: EngineOptions,
    source: Source<'_>,
) -> Result<Loaded> {
    let all = hybrid::layer_count(&model);
    let free_bytes = gpu.backend.available_memory_bytes();
    let (mut layers, is_ours) = match placement.gpu_layers() {
        GpuLayers::All => (all, false),
        GpuLayers::Last(count) => (count.min(all), false),
        GpuLayers::Auto => {
            (hybrid::layers_that_fit(&model, &options, free_bytes.unwrap_or(u64::MAX))?, true)
        }
    };
    let mut model = Some(model);
    loop {
        if layers == 0 {
            let free = free_bytes.map(terminal::bytes).unwrap_or_default();
            return Err(BackendError::Device(format!(
                "not even the output's matrix fits in the {free} that are free on {gpu}: give a smaller \
                 context (-c), or --device cpu"
            ))
            .into());
        }
        let model = model.take().map_or_else(|| source.reopen(), Ok)?;
        let outcome = load_layers(model, placement, gpu, layers, options, source);
        match outcome {
            // The plan is an estimate.
            Err(error) if is_ours && is_of_memory(&error) => {
                layers -= (layers / 8).max(1);
                let why = failure::sentence(&error);
                terminal::warn(format_args!("{why}; trying with {layers} layers on the GPU"));
            }
            Err(error) if is_of_memory(&error) => {
                let why = failure::sentence(&error);
                return Err(bad_input!(
                    "{why}: -ngl auto puts as many layers on the GPU as fit, -c and -ctk q8_0 make the cache smaller"
                ));
            }
            outcome => return outcome,
        }
    }
}

/// Loads the last `layers` layers, the output being one, on the GPU.
fn load_layers(
    model: Model,
    placement: &Placement,
    gpu: &OpenGpu,
    layers: usize,
    options: EngineOptions,
    source: Source<'_>,
) -> Result<Loaded> {
    let placed = |backends: &str, threads| Placed {
        backends: backends.to_owned(),
        threads,
        gpu: Some(gpu.name.clone()),
        gpu_layers: layers,
    };
    let first_layers = hybrid::layer_count(&model).saturating_sub(layers);
    if first_layers == 0 {
        if !source.quiet {
            terminal::note(format_args!("running on {gpu}"));
        }
        return load_on(model, &*gpu.backend, placed(gpu.backend.name(), 1), options, source);
    }
    let cpu = placement.cpu()?;
    if !source.quiet {
        let num_layers = model.config().num_layers;
        terminal::note(format_args!(
            "running {} on {gpu}, {} on the CPU ({})",
            names(first_layers, num_layers, "the output"),
            names(0, first_layers, "the embedding"),
            cpu.description()
        ));
    }
    let backend = HybridBackend::new(&cpu, &*gpu.backend, first_layers);
    let names = format!("{},{}", gpu.backend.name(), cpu.name());
    load_on(model, &backend, placed(&names, cpu.threads()), options, source)
}

/// `layers 3 to 6 and the output`.
fn names(first: usize, end: usize, rest: &str) -> String {
    match end - first {
        0 => rest.to_owned(),
        1 => format!("layer {first} and {rest}"),
        _ => format!("layers {first} to {} and {rest}", end - 1),
    }
}

fn load_on_cpu(
    model: Model,
    placement: &Placement,
    options: EngineOptions,
    source: Source<'_>,
) -> Result<Loaded> {
    let cpu = placement.cpu()?;
    let placed =
        Placed { backends: cpu.name().to_owned(), threads: cpu.threads(), ..Placed::default() };
    load_on(model, &cpu, placed, options, source)
}

fn load_on(
    model: Model,
    backend: &dyn Backend,
    placed: Placed,
    options: EngineOptions,
    source: Source<'_>,
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
    Ok(Loaded { engine: engine?, load_time: source.started.elapsed(), placed })
}

/// Whether the device is to blame, not the model or the options.
fn is_of_backend(error: &anyhow::Error) -> bool {
    backend_error(error).is_some() || is_of_memory(error)
}

/// Whether memory was short.
fn is_of_memory(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::DoesNotFit { .. }))
        || matches!(backend_error(error), Some(BackendError::OutOfMemory { .. }))
}

fn backend_error(error: &anyhow::Error) -> Option<&BackendError> {
    match error.downcast_ref() {
        Some(Error::Backend(error)) => Some(error),
        _ => error.downcast_ref(),
    }
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
