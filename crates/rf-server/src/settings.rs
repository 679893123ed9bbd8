//! Settings of single models, and their renewal while the server runs.

use std::fmt;
use std::sync::Arc;

use rocmforge::SamplerConfig;

use crate::entry::LoadError;
use crate::keep_alive::KeepAlive;
use crate::state::App;

/// The settings of a model that can change while the server runs.
#[derive(Clone, Debug, Default)]
pub struct ModelSettings {
    /// Further names that requests may use. In them a `*` stands for any text.
    pub aliases: Vec<String>,
    /// Sampling of requests that set no parameters; `None` for that of the server.
    pub sampling: Option<SamplerConfig>,
    /// How long the model stays loaded, unless a request tells; `None` for the time of the server.
    pub keep_alive: Option<KeepAlive>,
}

/// Where a server gets the settings of its models from when it renews them: their names, each with
/// its settings. Models that are left out keep theirs.
#[derive(Clone)]
pub struct SettingsSource(Arc<ReadSettings>);

type ReadSettings = dyn Fn() -> Result<Vec<(String, ModelSettings)>, LoadError> + Send + Sync;

impl SettingsSource {
    /// Reads the settings by this function.
    pub fn new(
        read: impl Fn() -> Result<Vec<(String, ModelSettings)>, LoadError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(read))
    }

    fn read(&self) -> Result<Vec<(String, ModelSettings)>, LoadError> {
        (self.0)()
    }
}

impl fmt::Debug for SettingsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettingsSource").finish_non_exhaustive()
    }
}

/// Renews the settings of the models of a server.
#[derive(Clone, Debug)]
pub struct Reloader {
    app: Arc<App>,
}

impl Reloader {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    /// Reads the settings of all models again. Without a
    /// [source](crate::ServerOptions::settings) nothing changes.
    ///
    /// # Errors
    ///
    /// If the settings cannot be read, or two models would have the same name. All models keep
    /// theirs then.
    pub fn reload(&self) -> Result<(), LoadError> {
        let Some(source) = &self.app.options().settings else { return Ok(()) };
        Ok(self.app.catalog().renew(source.read()?)?)
    }
}
