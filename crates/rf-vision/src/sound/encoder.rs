//! An audio encoder on a backend.

use rf_graph::{Backend, Executor, MemoryUse, Progress};

use super::Sound;
use super::mel::Spectrogram;
use super::projector::SoundProjector;
use crate::chunk::{Chunk, Embeddings, Piece, RowGroup};
use crate::error::Error;
use crate::network::Runner;

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
        let program = projector.program().fused_for(backend);
        backend.check_memory(&program)?;
        let executor = backend.compile(program, progress)?;
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
        let mut spectrograms = self.projector.spectrograms(sound).into_iter();
        let mut chunks = Vec::with_capacity(pieces.len());
        for piece in pieces {
            chunks.push(match piece {
                Piece::Text(text) => Chunk::Text(text),
                Piece::Rows(group) => Chunk::Rows(self.embeddings(group, spectrograms.next())?),
            });
        }
        Ok(chunks)
    }

    /// The embeddings of a piece of a sound, which there is for each group of rows.
    fn embeddings(
        &mut self,
        group: RowGroup,
        piece: Option<Spectrogram>,
    ) -> Result<Embeddings, Error> {
        let piece = piece.expect("a spectrogram for each group of rows");
        let mut run = Runner { executor: &mut *self.executor };
        let values = self.projector.network().encode(&piece, &mut run)?;
        let width = self.projector.width();
        assert_eq!(values.len(), group.rows * width, "rows as announced");
        Ok(Embeddings { group, width, values })
    }
}
