//! Images and sounds to embeddings for language models: decoding, exact preprocessing, and the
//! encoders of GGUF projectors (`mmproj` files).
//!
//! [`decode()`] reads an image file within limits. A [`Projector`] is an opened file: it says into
//! which pieces of text and rows a picture becomes, from the size of the picture alone. An
//! [`Encoder`] has its weights on a backend and computes the rows.
//!
//! Start reading at [`Projector`]; `encoders/` has one file per type. A type is a `ProjectorKind`:
//! its rule for sizes and tiles (`sizing`), the text around its rows (`layout`), and its network. A
//! network is a few stages of one `rf_graph` program, between which it rearranges rows on the host,
//! so that backends need no ops of their own for pictures. The convolution of patches is a matmul.
//! A window of attention is a span of a batch. Layers run one after the other and share one layer
//! of the cache.
//!
//! [`decode_sound`], [`SoundProjector`] and [`SoundEncoder`] are the same for sounds (`sound`).
//!
//! The crate stands on rf-graph and rf-gguf, as rf-model does.
//!
//! Invariants: this crate names no backend and no text model; pixels equal those of the reference
//! bit for bit; nothing is allocated for a picture before its size is checked.
//!
//! The place of a picture in the prompt follows from its size:
//!
//! ```
//! use rf_vision::{Piece, Projector};
//!
//! let gguf = rf_gguf::Gguf::open("../../golden/vision/pixtral/mmproj.gguf")?;
//! let pieces = Projector::open(&gguf)?.pieces([64, 48], 0)?;
//! let [Piece::Rows(group), Piece::Text(end)] = &pieces[..] else { panic!("{pieces:?}") };
//! // 8 by 6 patches, and a row between the rows of patches.
//! assert_eq!(group.rows, 8 * 6 + 5);
//! assert_eq!(end, "[IMG_END]");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build;
mod chunk;
mod config;
mod decode;
mod encoder;
mod encoders;
mod error;
mod kind;
mod layout;
mod modality;
mod network;
mod plan;
mod positions;
mod projector;
mod resample;
mod rgb;
mod rows;
mod sizing;
mod sound;
mod weights;

pub use chunk::{Chunk, Embeddings, Grid, Piece, RowGroup};
pub use config::TokenLimits;
pub use decode::{DecodeLimits, decode, dimensions};
pub use encoder::Encoder;
pub use error::{Error, ImageError, SoundError};
pub use projector::Projector;
pub use rgb::Rgb;
pub use sound::{Sound, SoundEncoder, SoundLimits, SoundProjector, Spectrogram, decode_sound};
/// The crates of the files and the backends in the types of this one.
pub use {rf_gguf, rf_graph};
