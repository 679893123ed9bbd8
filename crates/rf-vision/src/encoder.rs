//! An encoder on a backend.

use rf_graph::{Backend, Executor, MemoryUse, Progress};

use crate::chunk::{Chunk, Embeddings, Piece, RowGroup};
use crate::error::Error;
use crate::network::Runner;
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
        let program = projector.program().fused_for(backend);
        backend.check_memory(&program)?;
        let executor = backend.compile(program, progress)?;
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
        let mut pictures = self.projector.resized(picture)?.into_iter();
        let mut chunks = Vec::with_capacity(pieces.len());
        for piece in pieces {
            chunks.push(match piece {
                Piece::Text(text) => Chunk::Text(text),
                Piece::Rows(group) => Chunk::Rows(self.embeddings(group, pictures.next())?),
            });
        }
        Ok(chunks)
    }

    /// The embeddings of a picture or tile, which there is for each group of rows.
    fn embeddings(&mut self, group: RowGroup, picture: Option<Rgb>) -> Result<Embeddings, Error> {
        let picture = picture.expect("a picture for each group of rows");
        let mut run = Runner { executor: &mut *self.executor };
        let values = self.projector.network().encode(&picture, &mut run)?;
        let width = self.projector.width();
        assert_eq!(values.len(), group.rows * width, "rows as announced");
        Ok(Embeddings { group, width, values })
    }
}
