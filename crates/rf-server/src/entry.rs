//! Models as the caller offers them to the server.

use std::sync::Arc;

use rf_engine::scheduler::Scheduler;
use rf_gguf::Gguf;
use rf_model::ModelConfig;

use crate::details::ModelDetails;
use crate::embedder::Embedder;
use crate::error::Error;

/// A loaded model, ready to serve.
#[derive(Debug)]
pub enum Service {
    /// It generates text.
    Generate(Scheduler),
    /// It makes embeddings.
    Embed(Embedder),
}

/// The product of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Text.
    Text,
    /// Embeddings.
    Embeddings,
}

impl ModelKind {
    /// The output of a model without further options.
    ///
    /// # Errors
    ///
    /// If the model is not supported.
    pub fn of(gguf: &Gguf) -> Result<Self, Error> {
        let generates = ModelConfig::from_gguf(gguf)?.generates();
        Ok(if generates { Self::Text } else { Self::Embeddings })
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
    fn load(&self, make_room: &mut dyn FnMut(u64)) -> Result<Service, LoadError>;
}

impl<F> ModelLoader for F
where
    F: Fn(&mut dyn FnMut(u64)) -> Result<Service, LoadError> + Send + Sync,
{
    fn load(&self, make_room: &mut dyn FnMut(u64)) -> Result<Service, LoadError> {
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
    Loaded(Service),
    /// It is loaded on demand.
    Loader(Arc<dyn ModelLoader>),
}

impl ModelEntry {
    /// A model that is loaded, and is never unloaded.
    pub fn loaded(name: impl Into<String>, service: Service) -> Self {
        let (kind, model) = match &service {
            Service::Generate(scheduler) => {
                (ModelKind::Text, Arc::clone(scheduler.handle().model()))
            }
            Service::Embed(embedder) => (ModelKind::Embeddings, Arc::clone(embedder.model())),
        };
        let details = ModelDetails::new(model.gguf(), model.config());
        Self { names: vec![name.into()], kind, details, origin: Origin::Loaded(service) }
    }

    /// A model that is loaded when a request names it. Its facts come from the open file.
    ///
    /// # Errors
    ///
    /// If the model is not supported.
    pub fn on_demand(
        name: impl Into<String>,
        kind: ModelKind,
        gguf: &Gguf,
        loader: impl ModelLoader + 'static,
    ) -> Result<Self, Error> {
        let details = ModelDetails::new(gguf, &ModelConfig::from_gguf(gguf)?);
        let origin = Origin::Loader(Arc::new(loader));
        Ok(Self { names: vec![name.into()], kind, details, origin })
    }

    /// Another name that requests may use.
    #[must_use]
    pub fn with_alias(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }
}
