//! Settings of single models.

use std::fmt;
use std::sync::Arc;

use rocmforge::SamplerConfig;

use crate::error::LoadError;
use crate::generation_defaults::GenerationDefaults;
use crate::keep_alive::KeepAlive;
use crate::setters::setters;

/// The settings of a model that can change while the server runs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ModelSettings {
    /// Further names that requests may use. In them a `*` stands for any text.
    pub aliases: Vec<String>,
    /// Sampling of requests that set no parameters; `None` for that of the server.
    pub sampling: Option<SamplerConfig>,
    /// The other parameters of requests that set none.
    pub generation: GenerationDefaults,
    /// How long the model stays loaded, unless a request tells; `None` for the time of the server.
    pub keep_alive: Option<KeepAlive>,
    /// The system prompt of conversations without one.
    pub system: Option<String>,
}

impl ModelSettings {
    setters! {
        with_aliases(aliases: Vec<String>);
        with_sampling(sampling: impl Into<Option<SamplerConfig>>);
        with_generation(generation: GenerationDefaults);
        with_keep_alive(keep_alive: impl Into<Option<KeepAlive>>);
        with_system(system: impl Into<Option<String>>);
    }
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

    pub(crate) fn read(&self) -> Result<Vec<(String, ModelSettings)>, LoadError> {
        (self.0)()
    }
}

impl fmt::Debug for SettingsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettingsSource").finish_non_exhaustive()
    }
}
