//! An audio encoder on a backend.

use rf_graph::{Backend, Executor, MemoryUse, Progress};

use super::Sound;
use super::projector::SoundProjector;
use crate::chunk::{Chunk, chunks};
use crate::error::Error;
use crate::network::{StageRunner, load};

/// An audio projector whose weights a backend has loaded.
pub struct SoundEncoder {
    projector: SoundProjector,
    executor: Box<dyn Executor>,
}

impl SoundEncoder {
    /// Loads the weights of a projector, and allocates buffers for the longest piece of a sound.
    ///
    /// # Errors
    ///
    /// If the backend does not support an op or a format of the projector, or memory is short.
    pub fn new(
        projector: SoundProjector,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let executor = load(projector.program(), backend, progress)?;
        Ok(Self { projector, executor })
    }

    /// The projector.
    pub fn projector(&self) -> &SoundProjector {
        &self.projector
    }

    /// Allocated memory, in bytes.
    pub fn memory(&self) -> MemoryUse {
        self.executor.memory()
    }

    /// Computes the embeddings of a sound. The chunks are those of [`SoundProjector::pieces`], each
    /// piece being computed separately.
    ///
    /// # Errors
    ///
    /// If the backend fails.
    pub fn encode(&mut self, sound: &Sound) -> Result<Vec<Chunk>, Error> {
        let pieces = self.projector.pieces(sound.samples().len());
        let spectrograms = self.projector.spectrograms(sound);
        let (network, width) = (self.projector.network(), self.projector.width());
        let mut run = StageRunner { executor: &mut *self.executor };
        chunks(pieces, spectrograms, width, |piece| network.encode(piece, &mut run))
    }
}
