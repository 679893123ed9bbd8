//! Loading a model with default options.

use crate::error::Error;
use crate::loader::Loader;
use crate::model::Model;
use crate::source::Source;

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
