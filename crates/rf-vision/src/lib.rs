//! Images to embeddings for language models: decoding, exact preprocessing, and the vision encoders
//! of GGUF projectors (`mmproj` files).

mod chunk;
mod error;

pub use chunk::{Chunk, Embeddings, Grid, Piece, RowGroup};
pub use error::{Error, ImageError};
