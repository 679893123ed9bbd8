//! The renewal of the settings of models while the server runs.

use std::sync::Arc;

use crate::error::LoadError;
use crate::state::App;

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
