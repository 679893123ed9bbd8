//! Options of the server.

use std::path::PathBuf;
use std::time::Duration;

use rocmforge::engine::sampling::SamplerConfig;

use crate::image_urls::ImageFetcher;
use crate::keep_alive::KeepAlive;
use crate::keys::ApiKeys;
use crate::kv_events::KvEvents;
use crate::managed_models::Manager;
use crate::mcp::McpServer;
use crate::setters::setters;
use crate::settings::SettingsSource;
use crate::step_timeout::StepTimeout;
use crate::tls::Tls;

/// Options of the server. Start with the default and change fields by the `with_` methods.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Keys that clients send; without any, the server is open to everyone who reaches it.
    pub keys: ApiKeys,
    /// The certificate for HTTPS; without it, the server speaks HTTP.
    pub tls: Option<Tls>,
    /// `/metrics` needs a key if true.
    pub metrics_key: bool,
    /// Origins of web pages that may use the server, such as `https://example.org`; `*` for all.
    pub cors_origins: Vec<String>,
    /// Names of this machine that requests may give as `Host`, where the server has no key and
    /// listens on a loopback address. IP addresses and `localhost` always may.
    pub allowed_hosts: Vec<String>,
    /// The servers of tools that the chat page may use. The page connects to them itself.
    pub mcp_servers: Vec<McpServer>,
    /// Sampling of requests that set no parameters.
    pub sampling: SamplerConfig,
    /// True if an answer that fills the context drops the older half of it and continues, instead
    /// of ending there.
    pub context_shift: bool,
    /// The source of settings of single models, when they are read again.
    pub settings: Option<SettingsSource>,
    /// Fetches the pictures that requests name by URL; without it, they must be in the requests.
    pub image_fetcher: Option<ImageFetcher>,
    /// What downloads, copies and removes models for clients of Ollama's API; `None`: nobody may.
    pub manager: Option<Manager>,
    /// The folder whose adapters (LoRA) clients may load by name, if they may manage models;
    /// `None`: they may load none.
    pub adapter_folder: Option<PathBuf>,
    /// The sockets that publish events of the prefix cache. Needs the feature `kv-events`.
    pub kv_events: Option<KvEvents>,
    /// The URL of a collector that gets traces of requests by OTLP over HTTP, with the feature
    /// `otel`. Only a [`Server`](crate::Server) sends them.
    pub otlp_traces_endpoint: Option<String>,
    /// The folder in which clients save and restore slots; `None`: nobody may.
    pub slot_save_path: Option<PathBuf>,
    /// The largest body of a request.
    pub max_body_bytes: usize,
    /// Memory for the models that are loaded on demand, in bytes of their memory plans. A model is
    /// unloaded where another one needs its room. One that needs more is loaded alone. `None`: no
    /// limit.
    pub memory_budget_bytes: Option<u64>,
    /// How long models that are loaded on demand stay loaded, unless a request tells.
    pub keep_alive: KeepAlive,
    /// How long running requests may take to end when the server stops.
    pub drain_timeout: Duration,
    /// How long a step may take before the server ends with [`Error::Hung`](crate::Error::Hung).
    pub step_timeout: StepTimeout,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            keys: ApiKeys::default(),
            tls: None,
            metrics_key: false,
            cors_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            mcp_servers: Vec::new(),
            sampling: SamplerConfig::default(),
            context_shift: false,
            settings: None,
            image_fetcher: None,
            manager: None,
            adapter_folder: None,
            kv_events: None,
            otlp_traces_endpoint: None,
            slot_save_path: None,
            max_body_bytes: 32 << 20,
            memory_budget_bytes: None,
            keep_alive: KeepAlive::FOREVER,
            drain_timeout: Duration::from_secs(30),
            step_timeout: StepTimeout::Auto,
        }
    }
}

impl ServerOptions {
    setters! {
        with_keys(keys: ApiKeys);
        with_tls(tls: impl Into<Option<Tls>>);
        with_metrics_key(metrics_key: bool);
        with_cors_origins(cors_origins: Vec<String>);
        with_allowed_hosts(allowed_hosts: Vec<String>);
        with_mcp_servers(mcp_servers: Vec<McpServer>);
        with_sampling(sampling: SamplerConfig);
        with_context_shift(context_shift: bool);
        with_settings(settings: impl Into<Option<SettingsSource>>);
        with_image_fetcher(image_fetcher: impl Into<Option<ImageFetcher>>);
        with_manager(manager: impl Into<Option<Manager>>);
        with_adapter_folder(adapter_folder: impl Into<Option<PathBuf>>);
        with_kv_events(kv_events: impl Into<Option<KvEvents>>);
        with_otlp_traces_endpoint(otlp_traces_endpoint: impl Into<Option<String>>);
        with_slot_save_path(slot_save_path: impl Into<Option<PathBuf>>);
        with_max_body_bytes(max_body_bytes: usize);
        with_memory_budget_bytes(memory_budget_bytes: impl Into<Option<u64>>);
        with_keep_alive(keep_alive: KeepAlive);
        with_drain_timeout(drain_timeout: Duration);
        with_step_timeout(step_timeout: StepTimeout);
    }
}
