//! The parts of a prompt that a picture becomes: text between rows of embeddings.

use crate::error::Error;

/// A part of a picture in the prompt, with its embeddings.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    /// Text that the caller tokenizes with special tokens and without a BOS token. It stands for
    /// separate tokens: a tokenizer must not join it with the text around the picture.
    Text(String),
    /// Rows in place of token embeddings.
    Rows(Embeddings),
}

/// A part of a picture in the prompt, known from the size of the picture alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As [`Chunk::Text`].
    Text(String),
    /// A group of rows, which are not computed yet.
    Rows(RowGroup),
}

/// Rows of embeddings that belong together: a picture, or a tile of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// Number of rows.
    pub rows: usize,
    /// The grid whose cells are the rows, row by row, if the text model has a position per axis
    /// (M-RoPE). The row at `(y, x)` of a picture that begins at position `p` has the positions
    /// `(t, y, x) = (p, p + y, p + x)`.
    pub grid: Option<Grid>,
    /// True if the rows of the group see each other in both directions, in the layers where the
    /// text model supports it.
    pub non_causal: bool,
}

/// A grid of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows of embeddings from left to right.
    pub columns: usize,
    /// Rows of embeddings from top to bottom.
    pub rows: usize,
}

/// Embeddings of a group of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    /// Number of rows, grid and mask.
    pub group: RowGroup,
    /// Elements per row: the input width of the text model, times one plus its deepstack layers.
    pub width: usize,
    /// `[rows, width]`.
    pub values: Vec<f32>,
}

/// Computes the chunks of pieces. `inputs` has the input of each group of rows, and `encode`
/// computes the embeddings of an input.
pub(crate) fn chunks<T>(
    pieces: Vec<Piece>,
    inputs: Vec<T>,
    width: usize,
    mut encode: impl FnMut(&T) -> Result<Vec<f32>, Error>,
) -> Result<Vec<Chunk>, Error> {
    let mut inputs = inputs.into_iter();
    let chunk = |piece| match piece {
        Piece::Text(text) => Ok(Chunk::Text(text)),
        Piece::Rows(group) => {
            let input = inputs.next().expect("an input for each group of rows");
            let values = encode(&input)?;
            assert_eq!(values.len(), group.rows * width, "rows as announced");
            Ok(Chunk::Rows(Embeddings { group, width, values }))
        }
    };
    pieces.into_iter().map(chunk).collect()
}

impl RowGroup {
    /// The number of positions by which the rows advance the text that follows.
    pub fn positions(&self) -> usize {
        self.grid.map_or(self.rows, |grid| grid.columns.max(grid.rows))
    }
}

impl Grid {
    /// Number of cells.
    pub fn cells(self) -> usize {
        self.columns * self.rows
    }
}
