//! Models as the caller offers them to the server.

use std::sync::Arc;

use rocmforge::{Model, ModelDetails};

/// The product of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Text.
    Text,
    /// Embeddings.
    Embeddings,
}

impl ModelKind {
    /// The product of a model without further options.
    pub fn of(details: &ModelDetails) -> Self {
        if details.generates { Self::Text } else { Self::Embeddings }
    }

    /// The product of a loaded model.
    pub(crate) fn of_loaded(model: &Model) -> Self {
        if model.handle().is_some() { Self::Text } else { Self::Embeddings }
    }
}

/// The reason why a model could not be loaded.
pub type LoadError = Box<dyn std::error::Error + Send + Sync>;

/// Loads a model when a request needs it. Closures of the same signature implement it.
pub trait ModelLoader: Send + Sync {
    /// Loads the model. Call `make_room` with the bytes of the memory plan before the memory is
    /// taken: it unloads other models, and waits for their requests.
    ///
    /// # Errors
    ///
    /// If the model cannot be loaded. The requests that wait for it get the message.
    fn load(&self, make_room: &mut dyn FnMut(u64)) -> Result<Model, LoadError>;
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
    /// The first one is the name in answers.
    pub(crate) names: Vec<String>,
    pub(crate) kind: ModelKind,
    pub(crate) details: ModelDetails,
    pub(crate) origin: Origin,
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
            names: vec![name.into()],
            kind: ModelKind::of_loaded(&model),
            details: model.details(),
            origin: Origin::Loaded(model),
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
        Self { names: vec![name.into()], kind, details, origin }
    }

    /// Another name that requests may use.
    #[must_use]
    pub fn with_alias(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }
}
