//! `rf-cli serve`: a model behind an HTTP server.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use rf_engine::EngineOptions;
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{Scheduler, SchedulerOptions};
use rf_server::{ApiKeys, Embedder, Server, ServerOptions, Service};

use crate::args::{ComputeArgs, DeviceArgs, ModelArgs, SamplingArgs};
use crate::failure::bad_input;
use crate::loading::{self, Source};
use crate::{demo, device, sources, terminal};

/// Arguments of `rf-cli serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Serves the APIs of OpenAI, Anthropic, Ollama and llama.cpp. Requests are computed together (continuous \
batching), and equal beginnings of prompts only once (prefix cache). SIGTERM and Ctrl-C let running requests \
end. One line per request is logged on stderr; RUST_LOG=rf_server=warn turns that off.

Examples:
  rf-cli serve                                     the demo model on http://127.0.0.1:8080
  rf-cli serve -m model.gguf -c 16384 --kv-size 65536
  rf-cli serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt
  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Serve the model under this name [default: the name of the file]
    #[arg(short, long, value_name = "NAME")]
    alias: Option<String>,
    /// Allow N tokens per request, prompt and answer together; 0 for the context of the model
    /// [default: that, at most 4096]
    #[arg(short, long, value_name = "CTX")]
    ctx_size: Option<usize>,
    /// Make embeddings instead of text; models that generate nothing do so anyway
    #[arg(long, visible_alias = "embeddings")]
    embedding: bool,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    scheduling: SchedulingArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// Who may use the server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
struct NetworkArgs {
    /// Listen on this address; 0.0.0.0 for all of this machine
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Listen on this port; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Require this key of clients (repeatable)
    #[arg(long, value_name = "KEY", env = "ROCFORGE_API_KEY", hide_env_values = true)]
    api_key: Vec<String>,
    /// Require one of the keys in FILE, one per line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Require a key for /metrics, too
    #[arg(long)]
    metrics_key: bool,
    /// Let web pages of this origin use the server; * for all (repeatable)
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Refuse requests with more than N bytes
    #[arg(long, value_name = "N", default_value_t = 64 << 20)]
    max_body_bytes: usize,
    /// Give running requests this many seconds to end when the server stops
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain_timeout: u64,
}

/// Arguments of the scheduler.
#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduling")]
struct SchedulingArgs {
    /// Compute at most N sequences at a time
    #[arg(long, visible_alias = "parallel", value_name = "N", default_value_t = SchedulerOptions::default().max_num_seqs)]
    max_num_seqs: usize,
    /// Compute at most N tokens per step; at most those of a batch (-b, -ub)
    #[arg(long, value_name = "N", default_value_t = SchedulerOptions::default().max_batched_tokens)]
    max_num_batched_tokens: usize,
    /// Give the KV cache, which all requests share, room for N tokens [default: four contexts]
    #[arg(long, value_name = "N")]
    kv_size: Option<usize>,
    /// Let at most N requests wait; more are refused with status 429
    #[arg(long, value_name = "N", default_value_t = SchedulerOptions::default().max_queued)]
    max_queued: usize,
    /// Compute every prompt from its beginning
    #[arg(long)]
    no_prefix_cache: bool,
}

/// Runs `rf-cli serve`.
pub(crate) fn serve(arguments: &ServeArgs) -> Result<()> {
    loading::check_context(arguments.ctx_size)?;
    let options = arguments.server_options()?;
    let path = loading::model_file(&arguments.model)?;
    let path = path.as_deref();
    let source = Source { path, started: Instant::now(), quiet: false };
    let model = loading::open_model(path)?;
    let engine_options = loading::engine_options(&model, &arguments.compute, arguments.ctx_size)?;
    let context_tokens = model.context_tokens(&engine_options);
    let kv_tokens = arguments.scheduling.kv_size.or(context_tokens.checked_mul(DEFAULT_CONTEXTS));
    let embeds = arguments.embedding || !model.config().generates();
    let pooling = embeds.then(|| model.config().default_pooling());
    let engine_options = EngineOptions { kv_tokens, pooling, ..engine_options };
    let placement = device::open(arguments.device.options(arguments.compute.cpu()?))?;
    let loaded = loading::load(model, &placement, engine_options, source)?;
    // Dropped at the end, which stops its thread.
    let mut scheduler = None;
    let service = if embeds {
        Service::Embed(Embedder::start(loaded.engine)?)
    } else {
        let started = Scheduler::start(loaded.engine, arguments.scheduling.options())?;
        Service::Generate(scheduler.insert(started).handle())
    };

    let name = arguments.alias.clone().unwrap_or_else(|| model_name(path));
    let network = &arguments.network;
    let models = [(name.clone(), service)];
    let server = Server::bind((&network.host, network.port), models, options)?;
    if server.is_open() {
        terminal::warn(
            "everyone in the network can use this server: require a key with --api-key or --api-key-file",
        );
    }
    terminal::note(format_args!("serving {name} on http://{}", server.local_addr()?));
    server.run_until_signal()?;
    Ok(())
}

/// Contexts that the KV cache has room for, unless told otherwise.
const DEFAULT_CONTEXTS: usize = 4;

/// The name of a model file without its extension.
fn model_name(path: Option<&Path>) -> String {
    let stem = path.and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_else(|| "demo".to_owned())
}

impl SchedulingArgs {
    fn options(&self) -> SchedulerOptions {
        SchedulerOptions {
            max_num_seqs: self.max_num_seqs,
            max_batched_tokens: self.max_num_batched_tokens,
            max_queued: self.max_queued,
            prefix_cache: !self.no_prefix_cache,
        }
    }
}

impl ServeArgs {
    fn server_options(&self) -> Result<ServerOptions> {
        let temperature = if self.model.is_demo() {
            demo::TEMPERATURE
        } else {
            SamplerConfig::default().temperature
        };
        Ok(ServerOptions {
            keys: self.network.keys()?,
            metrics_key: self.network.metrics_key,
            cors_origins: self.network.cors_origin.clone(),
            sampling: self.sampling.config(temperature)?,
            max_body_bytes: self.network.max_body_bytes,
            drain_timeout: Duration::from_secs(self.network.drain_timeout),
        })
    }
}

impl NetworkArgs {
    fn keys(&self) -> Result<ApiKeys> {
        let mut keys = self.api_key.clone();
        if let Some(file) = &self.api_key_file {
            let text = sources::file_text(file).context("cannot read the API keys")?;
            let before = keys.len();
            keys.extend(
                text.lines().map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned),
            );
            // Without this, a wrong file would open the server to everyone.
            if keys.len() == before {
                return Err(bad_input!("{} has no API key: write one per line", file.display()));
            }
        }
        if keys.iter().any(String::is_empty) {
            return Err(bad_input!("an API key is empty: leave --api-key out for none"));
        }
        Ok(ApiKeys::new(keys))
    }
}
