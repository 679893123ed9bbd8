//! Options for servers that are one of several, behind a router.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rf_server::KvEvents;

use crate::failure::bad_input;

/// Arguments for routers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Routers")]
pub(super) struct FleetArgs {
    /// Let programs of this machine, and keys with `manage_models`, load the adapters (LoRA) of the
    /// folder DIR by name while the server runs. A single model is then loaded after the start
    #[arg(long, value_name = "DIR")]
    pub(super) lora_dir: Option<PathBuf>,
    /// Publish which blocks the prefix cache holds at ENDPOINT, such as tcp://*:5557, as vLLM does.
    /// For a single model, in a build with the feature `kv-events`
    #[arg(long, value_name = "ENDPOINT")]
    kv_events: Option<String>,
    /// Send earlier events again to those who ask at ENDPOINT
    #[arg(long, value_name = "ENDPOINT", requires = "kv_events")]
    kv_events_replay: Option<String>,
    /// Publish with the topic TOPIC [default: none]
    #[arg(long, value_name = "TOPIC", requires = "kv_events")]
    kv_events_topic: Option<String>,
    /// Send traces of requests to the collector of OpenTelemetry at the http URL, by OTLP with
    /// JSON; without a path to /v1/traces. In a build with the feature `otel`
    #[arg(long, value_name = "URL")]
    pub(super) otlp_traces_endpoint: Option<String>,
}

impl FleetArgs {
    /// Returns the sockets that publish events of the prefix cache.
    pub(super) fn kv_events(&self) -> Option<KvEvents> {
        let endpoint = self.kv_events.as_ref()?;
        let topic = self.kv_events_topic.clone().unwrap_or_default();
        let replay_endpoint = self.kv_events_replay.clone();
        Some(KvEvents { replay_endpoint, topic, ..KvEvents::new(endpoint) })
    }

    /// The folder of adapters.
    ///
    /// # Errors
    ///
    /// If it does not exist.
    pub(super) fn adapter_folder(&self) -> Result<Option<PathBuf>> {
        existing_folder("--lora-dir", self.lora_dir.as_ref())
    }
}

/// Returns the folder of a flag, or an error if it does not exist.
pub(super) fn existing_folder(flag: &str, folder: Option<&PathBuf>) -> Result<Option<PathBuf>> {
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(bad_input!("{flag} {}: there is no such folder", folder.display()))
        }
        folder => Ok(folder.cloned()),
    }
}
