//! Loading in one call: open the file and the devices, load the weights, start the thread.

use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;

use crate::error::Error;
use crate::load_event::LoadEvent;
use crate::loader::Loader;
use crate::model::Model;
use crate::source::Source;

impl Loader {
    /// Loads the model and starts its thread.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open), and if the model does not fit in memory.
    pub fn load(self) -> Result<Model, Error> {
        self.load_with(&mut |_| ())
    }

    /// [`load`](Self::load) with a callback for the progress.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load).
    pub fn load_with(self, observe: &mut dyn FnMut(LoadEvent<'_>)) -> Result<Model, Error> {
        let placement = self.placement()?;
        placement.warnings().iter().for_each(|warning| observe(LoadEvent::Warning(warning)));
        self.open(observe)?.load_on(&placement, observe)?.start()
    }

    /// [`load`](Self::load) for async code. A thread loads the model and ends. If the future is
    /// dropped, the model is dropped as soon as it is loaded.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load), and if the thread cannot be started.
    pub async fn load_async(self) -> Result<Model, Error> {
        let (reply, loaded) = oneshot::channel();
        let load = move || drop(reply.send(self.load()));
        thread::Builder::new()
            .name("rf-load".to_owned())
            .spawn(load)
            .map_err(|error| Error::Thread(Arc::new(error)))?;
        loaded.await.unwrap_or(Err(Error::ShuttingDown))
    }
}

/// Loading with default options.
impl Model {
    /// Loads a model with default options: a path, or `OWNER/REPO[:QUANT]` of the hub. See
    /// [`Source`].
    ///
    /// # Errors
    ///
    /// If the model cannot be found, is not supported, or does not fit in memory.
    pub fn load(source: impl Into<Source>) -> Result<Self, Error> {
        Loader::new(source).load()
    }

    /// [`load`](Self::load) for async code. See [`Loader::load_async`].
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load), and if a thread cannot be started.
    pub async fn load_async(source: impl Into<Source>) -> Result<Self, Error> {
        Loader::new(source).load_async().await
    }

    /// Loads the built-in demo model, which writes short stories.
    ///
    /// # Errors
    ///
    /// If this crate was built without the feature `demo-model`, or memory is short.
    pub fn demo() -> Result<Self, Error> {
        Loader::new(Source::Demo).load()
    }

    /// The options of loading a model.
    pub fn loader(source: impl Into<Source>) -> Loader {
        Loader::new(source)
    }
}
