//! Models as the caller offers them to the server.

use std::path::PathBuf;
use std::sync::Arc;

use rocmforge::{Model, ModelDetails};

use crate::error::LoadError;
use crate::settings::ModelSettings;

/// The product of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Text.
    Text,
    /// Embeddings.
    Embeddings,
    /// Scores of documents.
    Scores,
}

impl ModelKind {
    /// The product of a model without further options.
    pub fn of(details: &ModelDetails) -> Self {
        match details {
            ModelDetails { reranks: true, .. } => Self::Scores,
            ModelDetails { generates: true, .. } => Self::Text,
            _ => Self::Embeddings,
        }
    }

    /// The product of a loaded model.
    pub(crate) fn of_loaded(model: &Model) -> Self {
        match Self::of(&model.details()) {
            Self::Scores => Self::Scores,
            _ if model.handle().is_some() => Self::Text,
            _ => Self::Embeddings,
        }
    }
}

/// Loads a model when a request needs it. Closures of the same signature implement it.
pub trait ModelLoader: Send + Sync {
    /// Loads the model. Call `make_room` with the bytes of the memory plan before the memory is
    /// taken: it unloads other models, and waits for their requests.
    ///
    /// # Errors
    ///
    /// If the model cannot be loaded. The requests that wait for it get the message.
    fn load(&self, make_room: &mut dyn FnMut(u64)) -> Result<Model, LoadError>;

    /// Loads the model with further adapters (LoRA), which are off until a request names them. They
    /// come after the model's own, in this order. Loaders that do not implement it load none.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load), and if the model cannot have the adapters.
    fn load_with_adapters(
        &self,
        adapters: &[PathBuf],
        make_room: &mut dyn FnMut(u64),
    ) -> Result<Model, LoadError> {
        match adapters {
            [] => self.load(make_room),
            _ => Err("the model cannot be loaded with adapters".into()),
        }
    }
}

impl<F> ModelLoader for F
where
    F: Fn(&mut dyn FnMut(u64)) -> Result<Model, LoadError> + Send + Sync,
{
    fn load(&self, make_room: &mut dyn FnMut(u64)) -> Result<Model, LoadError> {
        self(make_room)
    }
}

/// A model that the server offers.
pub struct ModelEntry {
    /// The name in answers.
    pub(crate) id: String,
    pub(crate) kind: ModelKind,
    pub(crate) details: ModelDetails,
    pub(crate) origin: Origin,
    pub(crate) settings: ModelSettings,
    /// True if the model is loaded when the server starts.
    pub(crate) is_preloaded: bool,
}

/// How the server comes by a model.
pub(crate) enum Origin {
    /// It is loaded and stays so.
    Loaded(Model),
    /// It is loaded on demand.
    Loader(Arc<dyn ModelLoader>),
}

impl ModelEntry {
    /// A model that is loaded, and is never unloaded.
    pub fn loaded(name: impl Into<String>, model: Model) -> Self {
        Self {
            id: name.into(),
            kind: ModelKind::of_loaded(&model),
            details: model.details(),
            origin: Origin::Loaded(model),
            settings: ModelSettings::default(),
            is_preloaded: false,
        }
    }

    /// A model that is loaded when a request names it.
    pub fn on_demand(
        name: impl Into<String>,
        kind: ModelKind,
        details: ModelDetails,
        loader: impl ModelLoader + 'static,
    ) -> Self {
        let origin = Origin::Loader(Arc::new(loader));
        let (id, settings) = (name.into(), ModelSettings::default());
        Self { id, kind, details, origin, settings, is_preloaded: false }
    }

    /// Another name that requests may use. In it a `*` stands for any text.
    #[must_use]
    pub fn with_alias(mut self, name: impl Into<String>) -> Self {
        self.settings.aliases.push(name.into());
        self
    }

    /// Sets the settings, and with them all aliases.
    #[must_use]
    pub fn with_settings(mut self, settings: ModelSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Loads the model when the server starts, if it is loaded on demand.
    #[must_use]
    pub fn preloaded(mut self) -> Self {
        self.is_preloaded = true;
        self
    }
}
