//! `rf-cli serve`: models behind an HTTP server.

mod access;
mod models;

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use rf_server::{Server, ServerOptions};
use rocmforge::engine::sampling::SamplerConfig;
use rocmforge::engine::scheduler::SchedulerOptions;

use self::access::AccessArgs;
use self::models::{ServedModelArgs, Settings};
use crate::args::{ComputeArgs, DeviceArgs, SamplingArgs, TemplateArgs};
use crate::drafts::DraftArgs;
use crate::failure::bad_input;
use crate::logging::LogFormat;
use crate::{demo, device, loading, logging, terminal};

/// Arguments of `rf-cli serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Serves the APIs of OpenAI, Anthropic, Ollama and llama.cpp. Requests are computed together (continuous \
batching), and equal beginnings of prompts only once (prefix cache). Several models are loaded when a request \
names them, and unloaded where another one needs their memory. SIGTERM and Ctrl-C let running requests end, a \
second signal does not. SIGHUP reads the files of keys and of the certificate again; without them it is as SIGTERM. \
One line per request is logged on stderr; RUST_LOG=rf_server=warn turns that off.

Examples:
  rf-cli serve                                     the demo model on http://127.0.0.1:8080
  rf-cli serve -m model.gguf -c 16384 --kv-size 65536
  rf-cli serve --models ~/models --keep-alive 10m   all models of a folder
  rf-cli serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt
  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    models: ServedModelArgs,
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
    access: AccessArgs,
    #[command(flatten)]
    scheduling: SchedulingArgs,
    #[command(flatten)]
    drafts: DraftArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

/// The address of the server and what it takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
struct NetworkArgs {
    /// Listen on this address; 0.0.0.0 for all of this machine
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Listen on this port; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Let web pages of this origin use the server; * for all (repeatable)
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Answer requests that give NAME as their host, too; without a key, a server on a loopback
    /// address answers under localhost and IP addresses only (repeatable)
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Refuse requests with more than N bytes
    #[arg(long, value_name = "N", default_value_t = 32 << 20)]
    max_body_bytes: usize,
    /// Give running requests this many seconds to end when the server stops
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain_timeout: u64,
    /// Write the log in this form
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
}

/// Arguments of the scheduler.
#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduling")]
struct SchedulingArgs {
    /// Compute at most N sequences at a time
    #[arg(long, visible_alias = "parallel", value_name = "N", default_value_t = SchedulerOptions::default().max_num_seqs)]
    max_num_seqs: usize,
    /// Compute at most N sequences of one request at a time, of all its prompts and choices
    /// [default: those of --max-num-seqs]
    #[arg(long, value_name = "N")]
    max_seqs_per_request: Option<usize>,
    /// Compute at most N tokens per step; at most those of a batch (-b, -ub)
    #[arg(long, value_name = "N", default_value_t = SchedulerOptions::default().max_batched_tokens)]
    max_num_batched_tokens: usize,
    /// Give the KV cache, which all requests share, room for N tokens [default: what memory
    /// allows; on a CPU at most eight contexts; of several models, four contexts each]
    #[arg(long, value_name = "N")]
    kv_size: Option<usize>,
    /// Keep recurrent states of earlier prompts that the device has no room for in at most N MiB of
    /// host memory (-cram) [default: an eighth of what is free, at most 8192; 0 on a CPU, where all
    /// states are in host memory]
    #[arg(long, value_name = "N")]
    cache_ram: Option<u64>,
    /// Let at most N requests wait; more are refused with status 429
    #[arg(long, value_name = "N", default_value_t = SchedulerOptions::default().max_queued)]
    max_queued: usize,
    /// Compute every prompt from its beginning
    #[arg(long)]
    no_prefix_cache: bool,
}

/// Runs `rf-cli serve`.
pub(crate) fn serve(arguments: &ServeArgs) -> Result<()> {
    logging::set_format(arguments.network.log_format);
    loading::check_context(arguments.ctx_size)?;
    let mut options = arguments.server_options()?;
    let files = arguments.models.files()?;
    if arguments.drafts.has_model() && files.len() > 1 {
        return Err(bad_input!(
            "a draft model is for one model: serve one with -m, or leave out -md"
        ));
    }
    let placement = device::open(arguments.device.options(arguments.compute.cpu()?))?;
    options.memory_budget_bytes = match arguments.models.memory_budget_bytes()? {
        Some(bytes) => Some(bytes),
        None => placement.available_memory_bytes()?,
    };
    let settings = Settings {
        template: arguments.template.choice()?,
        placement,
        compute: arguments.compute.clone(),
        context: arguments.ctx_size,
        embeds: arguments.embedding,
        kv_size: arguments.scheduling.kv_size,
        cache_ram: arguments.scheduling.cache_ram,
        scheduler: arguments.scheduling.options(),
        drafts: arguments.drafts.clone(),
        is_single: files.len() == 1,
    };
    let names: Vec<String> = files.iter().map(|file| file.names[0].clone()).collect();
    let models = models::entries(files, settings, arguments.models.is_unloaded())?;
    let network = &arguments.network;
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let mut server = Server::bind((&network.host, network.port), models, options)?;
    if let Some(reload) = arguments.access.reload() {
        server = server.on_hangup(reload);
    }
    if server.is_open() {
        terminal::warn(
            "everyone in the network can use this server: require a key with --api-key or --api-key-file",
        );
    }
    terminal::note(format_args!(
        "serving {} on {scheme}://{}",
        names.join(", "),
        server.local_addr()?
    ));
    // Without the thread, the log is written as in every other command.
    let _log = logging::Queue::start().ok();
    server.run_until_signal()?;
    Ok(())
}

impl SchedulingArgs {
    fn options(&self) -> SchedulerOptions {
        SchedulerOptions::default()
            .with_max_num_seqs(self.max_num_seqs)
            .with_max_seqs_per_request(self.max_seqs_per_request.unwrap_or(self.max_num_seqs))
            .with_max_batched_tokens(self.max_num_batched_tokens)
            .with_max_queued(self.max_queued)
            .with_prefix_cache(!self.no_prefix_cache)
    }
}

impl ServeArgs {
    fn server_options(&self) -> Result<ServerOptions> {
        let temperature = if self.models.is_demo() {
            demo::TEMPERATURE
        } else {
            SamplerConfig::default().temperature
        };
        Ok(ServerOptions {
            keys: self.access.keys()?,
            tls: self.access.tls()?,
            metrics_key: self.access.metrics_key,
            cors_origins: self.network.cors_origin.clone(),
            allowed_hosts: self.network.allowed_host.clone(),
            sampling: self.sampling.config(temperature)?,
            max_body_bytes: self.network.max_body_bytes,
            drain_timeout: Duration::from_secs(self.network.drain_timeout),
            memory_budget_bytes: None,
            keep_alive: self.models.keep_alive.unwrap_or_default(),
        })
    }
}
