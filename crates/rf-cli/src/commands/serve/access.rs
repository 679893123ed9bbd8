//! Who may use a server: keys and the certificate, and reading their files again.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use rf_server::{ApiKeys, Control, Tls};

use crate::failure::{self, bad_input};
use crate::sources;

/// Keys and the certificate.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Access")]
pub(super) struct AccessArgs {
    /// Require this key of clients (repeatable)
    #[arg(long, value_name = "KEY", env = "ROCFORGE_API_KEY", hide_env_values = true)]
    api_key: Vec<String>,
    /// Require one of the keys in FILE: one per line, or in TOML with a name and limits each.
    /// SIGHUP reads it again
    #[arg(long, visible_alias = "api-keys-file", value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Require a key for /metrics, too
    #[arg(long)]
    pub(super) metrics_key: bool,
    /// Speak HTTPS with the certificates in FILE, in PEM format, that of the server first. SIGHUP
    /// reads them again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl AccessArgs {
    /// The keys of the options and of the file.
    pub(super) fn keys(&self) -> Result<ApiKeys> {
        if self.api_key.iter().any(|key| key.trim().is_empty()) {
            return Err(bad_input!("an API key is empty: leave --api-key out for none"));
        }
        let Some(file) = &self.api_key_file else { return Ok(ApiKeys::new(self.api_key.clone())) };
        let text = sources::file_text(file).context("cannot read the API keys")?;
        let text = text.trim_start_matches('\u{feff}');
        let lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let is_toml = file.extension().is_some_and(|extension| extension == "toml")
            || lines.clone().next().is_some_and(|line| line.starts_with('['));
        if is_toml {
            let keys = ApiKeys::from_toml(text)
                .map_err(|error| bad_input!("{}: {error}", file.display()))?;
            return Ok(ApiKeys::new(self.api_key.clone()).with(keys));
        }
        // Without this, a wrong file would open the server to everyone.
        if lines.clone().next().is_none() {
            return Err(bad_input!("{} has no API key: write one per line", file.display()));
        }
        let keys = self.api_key.iter().map(String::as_str).chain(lines);
        Ok(ApiKeys::new(keys.map(str::to_owned)))
    }

    pub(super) fn tls(&self) -> Result<Option<Tls>> {
        let Some((certificate, key)) = self.tls_cert.as_ref().zip(self.tls_key.as_ref()) else {
            return Ok(None);
        };
        let tls = Tls::from_files(certificate, key);
        Ok(Some(tls.map_err(|error| bad_input!("{error}: check --tls-cert and --tls-key"))?))
    }

    /// Reads the files again; `None` if there are none. What cannot be read stays as it is.
    pub(super) fn reload(&self) -> Option<impl Fn(&Control) + Send + Sync + use<>> {
        if self.api_key_file.is_none() && self.tls_cert.is_none() {
            return None;
        }
        let access = self.clone();
        Some(move |control: &Control| {
            let failed = |what: &str, error: anyhow::Error| {
                let error = failure::sentence(&error);
                tracing::error!(target: "rf_server", "the {what} stay as they are: {error}");
            };
            match access.keys() {
                Ok(keys) => {
                    tracing::info!(target: "rf_server", ?keys, "read the keys again");
                    control.set_keys(keys);
                }
                Err(error) => failed("keys", error),
            }
            match access.tls() {
                Ok(Some(tls)) => {
                    tracing::info!(target: "rf_server", "read the certificate again");
                    control.set_tls(tls);
                }
                Ok(None) => {}
                Err(error) => failed("certificates", error),
            }
        })
    }
}
