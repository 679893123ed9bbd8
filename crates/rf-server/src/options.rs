//! Options of the server.

use std::time::Duration;

use rf_engine::sampling::SamplerConfig;

use crate::keys::ApiKeys;

/// Options of the server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Keys that clients send; without any, the server is open to everyone who reaches it.
    pub keys: ApiKeys,
    /// `/metrics` needs a key if true.
    pub metrics_key: bool,
    /// Origins of web pages that may use the server, such as `https://example.org`; `*` for all.
    pub cors_origins: Vec<String>,
    /// Sampling of requests that set no parameters.
    pub sampling: SamplerConfig,
    /// The largest body of a request.
    pub max_body_bytes: usize,
    /// How long running requests may take to end when the server stops.
    pub drain_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            keys: ApiKeys::default(),
            metrics_key: false,
            cors_origins: Vec::new(),
            sampling: SamplerConfig::default(),
            max_body_bytes: 64 << 20,
            drain_timeout: Duration::from_secs(30),
        }
    }
}
