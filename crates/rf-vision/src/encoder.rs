//! An encoder on a backend.

use rf_graph::{Backend, Executor, MemoryUse, Progress};

use crate::chunk::{Chunk, chunks};
use crate::error::Error;
use crate::network::{StageRunner, load};
use crate::projector::Projector;
use crate::rgb::Rgb;

/// A projector whose weights a backend has loaded.
pub struct Encoder {
    projector: Projector,
    executor: Box<dyn Executor>,
}

impl Encoder {
    /// Loads the weights of a projector, and allocates buffers for the largest picture that its
    /// limits on tokens allow.
    ///
    /// # Errors
    ///
    /// If the backend does not support an op or a format of the projector, or memory is short.
    pub fn new(
        projector: Projector,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let executor = load(projector.program(), backend, progress)?;
        Ok(Self { projector, executor })
    }

    /// The projector.
    pub fn projector(&self) -> &Projector {
        &self.projector
    }

    /// Allocated memory, in bytes.
    pub fn memory(&self) -> MemoryUse {
        self.executor.memory()
    }

    /// Computes the embeddings of a picture. The chunks are those of
    /// [`Projector::pieces`], each tile being computed on its own.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyPatches`] for a picture that is too long and narrow, and if the backend
    /// fails.
    pub fn encode(&mut self, picture: &Rgb, index: usize) -> Result<Vec<Chunk>, Error> {
        let pieces = self.projector.pieces(picture.size(), index)?;
        let pictures = self.projector.resized(picture)?;
        let (network, width) = (self.projector.network(), self.projector.width());
        let mut run = StageRunner { executor: &mut *self.executor };
        chunks(pieces, pictures, width, |picture| network.encode(picture, &mut run))
    }
}
