//! `rf-cli serve`: models behind an HTTP server.

mod access;
mod config;
mod fleet;
mod made;
mod manage;
mod models;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use rf_server::{Manager, McpServer, Server, ServerOptions, StepTimeout};
use rocmforge::engine::sampling::SamplerConfig;
use rocmforge::engine::scheduler::SchedulerOptions;

use self::access::AccessArgs;
use self::fleet::FleetArgs;
use self::manage::Models;
use self::models::{ServedModelArgs, SharedSettings};
use crate::adapters::AdapterArgs;
use crate::args::{ComputeArgs, DeviceArgs, SamplingArgs, TemplateArgs};
use crate::drafts::DraftArgs;
use crate::failure::bad_input;
use crate::logging::LogFormat;
use crate::media::{self, ProjectorArgs};
use crate::{demo, device, loading, logging, terminal};

/// Arguments of `rf-cli serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Serves the APIs of OpenAI, Anthropic, Ollama and llama.cpp. Requests share batches (continuous batching). A \
beginning that several prompts have in common is computed once (prefix cache). With several models, each is \
loaded when a request names it, and unloaded when another one needs its memory. On SIGTERM or Ctrl-C the server \
finishes the running requests, then stops; a second signal stops it at once. SIGHUP reads the files of keys, of the \
certificate and of the models' options again; without such a file it stops the server, too. Each request is logged \
in one line on stderr; RUST_LOG=rf_server=warn turns this off.

Examples:
  rf-cli serve                                     all downloaded models, and the demo model
  rf-cli serve -m model.gguf -c 16384 --kv-size 65536
  rf-cli serve --models ~/models --keep-alive 10m   all models of a folder
  rf-cli serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt
  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    models: ServedModelArgs,
    /// Limit prompt and answer of a request to CTX tokens together; 0 = trained context [default:
    /// trained context, capped at 4096]
    #[arg(short, long, value_name = "CTX")]
    ctx_size: Option<usize>,
    /// Compute embeddings instead of text. Embedding models need no such flag
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
    projector: ProjectorArgs,
    #[command(flatten)]
    adapters: AdapterArgs,
    #[command(flatten)]
    fleet: FleetArgs,
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
    /// Listen on this address; 0.0.0.0 for all addresses of this machine
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Listen on this port; 0 selects a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Allow web pages of this origin to use the server; * for all (repeatable)
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Accept requests to the host NAME as well (repeatable). Without a key, a server on a loopback
    /// address accepts only localhost and IP addresses
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Let the chat page use the tools of the MCP server at URL (repeatable). The browser connects
    /// to it, and a person turns it on in the settings
    #[arg(long, value_name = "URL")]
    mcp: Vec<McpServer>,
    /// Fetch the pictures that requests name by an http or https URL. Hosts of this machine and of
    /// private networks are refused, and a picture may have 20 MiB and take 10 seconds
    #[arg(long)]
    allow_url_images: bool,
    /// Reject requests of more than N bytes
    #[arg(long, value_name = "N", default_value_t = 32 << 20)]
    max_body_bytes: usize,
    /// Wait at most SECONDS for running requests when the server stops
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain_timeout: u64,
    /// End the server if a step has not ended after SECONDS, because the GPU hangs; 0 never ends
    /// it [default: 10 times as long as the longest step, at least 30, for models on a GPU]
    #[arg(long, value_name = "SECONDS")]
    step_timeout: Option<u64>,
    /// Write the log in this form
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
}

/// Arguments of the scheduler.
#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduling")]
struct SchedulingArgs {
    /// Run at most N sequences at a time
    #[arg(long, visible_alias = "parallel", value_name = "N", default_value_t = SchedulerOptions::default().max_num_seqs)]
    max_num_seqs: usize,
    /// Run at most N sequences of one request at a time, of all its prompts and choices
    /// [default: as many as --max-num-seqs]
    #[arg(long, value_name = "N")]
    max_seqs_per_request: Option<usize>,
    /// Compute at most N tokens per step. The batch size (-b, -ub) also limits a step
    #[arg(long, value_name = "N", default_value_t = SchedulerOptions::default().max_batched_tokens)]
    max_num_batched_tokens: usize,
    /// Size the KV cache, which all requests share, for N tokens [default: as many as memory
    /// allows; on a CPU at most eight contexts; with several models four contexts each]
    #[arg(long, value_name = "N")]
    kv_size: Option<usize>,
    /// Use at most N MiB of host memory for pages and recurrent states of earlier prompts that no
    /// longer fit in the KV cache (-cram) [default: an eighth of the free memory, at most 8192, for
    /// models with recurrent layers on a GPU; else 0]
    #[arg(long, value_name = "N")]
    cache_ram: Option<u64>,
    /// Keep pages and recurrent states of prompts in DIR, in which a restarted server finds them
    #[arg(long, value_name = "DIR")]
    cache_disk: Option<PathBuf>,
    /// Use at most N MiB of the folder of --cache-disk
    #[arg(long, value_name = "N", default_value_t = 16384)]
    cache_disk_size: u64,
    /// When an answer fills the context, drop its older half and continue. An answer without a
    /// limit of tokens then ends at the trained context
    #[arg(long)]
    context_shift: bool,
    /// Save and restore slots in files of DIR (POST /slots/ID?action=save)
    #[arg(long, value_name = "DIR")]
    slot_save_path: Option<PathBuf>,
    /// Queue at most N requests; further requests are rejected with status 429
    #[arg(long, value_name = "N", default_value_t = SchedulerOptions::default().max_queued)]
    max_queued: usize,
    /// Disable the prefix cache: compute every prompt from its beginning
    #[arg(long)]
    no_prefix_cache: bool,
}

/// Runs `rf-cli serve`.
pub(crate) fn serve(arguments: &ServeArgs) -> Result<()> {
    logging::set_format(arguments.network.log_format);
    loading::check_context(arguments.ctx_size)?;
    let files = arguments.models.files(arguments.projector.companions())?;
    let is_demo = arguments.models.is_demo() && files.len() == 1;
    let mut options = arguments.server_options(is_demo)?;
    if arguments.drafts.has_model() && files.len() > 1 {
        return Err(bad_input!(
            "a draft model cannot serve several models: serve one with -m, or leave out -md"
        ));
    }
    if arguments.projector.is_named() && files.len() > 1 {
        return Err(bad_input!(
            "--mmproj cannot serve several models: put each projector in the folder of its model"
        ));
    }
    arguments.adapters.check_single(files.len())?;
    let placement = device::open(arguments.device.options(arguments.compute.cpu()?))?;
    options.memory_budget_bytes = match arguments.models.memory_budget_bytes()? {
        Some(bytes) => Some(bytes),
        None => placement.available_memory_bytes()?,
    };
    let names: Vec<String> = files.iter().map(|file| file.names[0].clone()).collect();
    let settings = Arc::new(SharedSettings {
        template: arguments.template.choice()?,
        placement,
        compute: arguments.compute.clone(),
        context: arguments.ctx_size,
        embeds: arguments.embedding,
        kv_size: arguments.scheduling.kv_size,
        cache_ram: arguments.scheduling.cache_ram,
        cache_disk: arguments.scheduling.cache_disk.clone(),
        cache_disk_bytes: arguments.scheduling.cache_disk_size.saturating_mul(1 << 20),
        scheduler: arguments.scheduling.options(),
        drafts: arguments.drafts.clone(),
        projector: arguments.projector.clone(),
        adapters: arguments.adapters.clone(),
        is_single: files.len() == 1 && !arguments.models.manages(),
        sampling: options.sampling.clone(),
        config: Arc::new(arguments.models.config(&files)?),
    });
    let origin = (arguments.models.is_unloaded(), arguments.fleet.lora_dir.is_some());
    let (models, source, known) = models::entries(files, &settings, origin)?;
    options.settings = Some(source);
    let manager = || Manager::new(Models::new(settings, known));
    options.manager = arguments.models.manages().then(manager);
    let network = &arguments.network;
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let mut server = Server::bind((&network.host, network.port), models, options)?;
    let access = arguments.access.reload();
    if access.is_some() || arguments.models.has_config() {
        let models = server.reloader();
        server = server.on_hangup(move |control| {
            if let Some(reload) = &access {
                reload(control);
            }
            if let Err(error) = models.reload() {
                tracing::error!(target: "rf_server", "the options of models stay as they are: {error}");
            }
        });
    }
    if server.is_open() {
        terminal::warn(
            "everyone in the network can use this server: require a key with --api-key or --api-key-file",
        );
    }
    if arguments.models.is_demo() && arguments.models.manages() {
        terminal::note(
            "more models: `rf-cli fit` shows what fits, and `rf-cli pull NAME` or a client of Ollama's API \
             downloads it",
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
    fn server_options(&self, is_demo: bool) -> Result<ServerOptions> {
        let usual = SamplerConfig::default();
        let usual = if is_demo { usual.with_temperature(demo::TEMPERATURE) } else { usual };
        let step_timeout = match self.network.step_timeout {
            None => StepTimeout::Auto,
            Some(0) => StepTimeout::Never,
            Some(seconds) => StepTimeout::After(Duration::from_secs(seconds)),
        };
        let slots = self.scheduling.slot_save_path.as_ref();
        Ok(ServerOptions::default()
            .with_keys(self.access.keys()?)
            .with_tls(self.access.tls()?)
            .with_metrics_key(self.access.metrics_key)
            .with_cors_origins(self.network.cors_origin.clone())
            .with_allowed_hosts(self.network.allowed_host.clone())
            .with_mcp_servers(self.network.mcp.clone())
            .with_sampling(self.sampling.config(&usual)?)
            .with_context_shift(self.scheduling.context_shift)
            .with_image_fetcher(self.network.allow_url_images.then(media::image_fetcher))
            .with_max_body_bytes(self.network.max_body_bytes)
            .with_drain_timeout(Duration::from_secs(self.network.drain_timeout))
            .with_step_timeout(step_timeout)
            .with_adapter_folder(self.fleet.adapter_folder()?)
            .with_kv_events(self.fleet.kv_events())
            .with_otlp_traces_endpoint(self.fleet.otlp_traces_endpoint.clone())
            .with_keep_alive(self.models.keep_alive.unwrap_or_default())
            .with_slot_save_path(fleet::existing_folder("--slot-save-path", slots)?))
    }
}
