//! Converts text to token ids and back, with special tokens.
//!
//! It knows no file format, except with the feature `gguf`. The reader of a model file fills a
//! [`VocabConfig`] (`VocabConfig::from_gguf`), and [`Tokenizer::new`] checks it. Start reading at
//! [`Tokenizer::encode_bytes`]. It cuts the text at special tokens and encodes the rest by one of
//! four algorithms: byte-level BPE (split by regular expressions, then merged), SPM (merged by
//! score), and for embedding models `WordPiece` (longest token first) and unigram (best total
//! score). [`StreamDecoder`] converts ids to text.
//!
//! Invariants:
//!
//! - The ids are those of `llama.cpp` for the same file. If llama.cpp's `WordPiece` or unigram
//!   differs from the library with which a model was trained, the ids are those of that library.
//! - No vocabulary, text or id makes this crate panic.
//! - Encoding takes at most O(n log n) time in the length of the text.
//! - BPE decoding returns exactly the bytes that were encoded.
//!
//! ```
//! use rf_tokenizer::{DecodeOptions, EncodeOptions, Tokenizer, VocabConfig};
//!
//! let tokens = ["<s>", "</s>", "a", "b", "ab", "Ġ", "Ġab"];
//! let config = VocabConfig::default()
//!     .with_model("gpt2")
//!     .with_pre(Some("gpt-2".into()))
//!     .with_tokens(tokens.map(String::from).into())
//!     .with_token_types(vec![3, 3, 1, 1, 1, 1, 1])
//!     .with_merges(vec!["a b".into(), "Ġ ab".into()])
//!     .with_eos_token_id(Some(1));
//! let tokenizer = Tokenizer::new(config)?;
//!
//! let ids = tokenizer.encode("ab ab</s>", EncodeOptions::PROMPT);
//! assert_eq!(ids, [4, 6, 1]);
//! assert!(tokenizer.is_eog(1));
//! assert_eq!(tokenizer.decode(&ids, DecodeOptions::default())?, "ab ab");
//! # Ok::<(), rf_tokenizer::Error>(())
//! ```
//!
//! # Why not the `tokenizers` crate
//!
//! Measured with version 0.23 (`default-features = false`, `fancy-regex`) on Llama 3's vocabulary
//! (128,256 tokens, 280,147 merges; release build, 2 cores): it builds the BPE model in 260 ms,
//! this crate in about 75 ms (limit: 150 ms). It adds 85 crates to the build. It reads
//! `tokenizer.json`, so the names of pre-tokenizers, the rules for special tokens and the score
//! order of SPM would still be ours. It would replace a merge loop of a hundred lines.

mod bpe;
mod byte_map;
mod charsmap;
mod config;
mod decode;
mod error;
#[cfg(feature = "gguf")]
mod gguf;
mod partition;
mod pre_tokenizer;
mod special;
mod spm;
mod tokenizer;
mod trie;
mod unigram;
mod vocab;
mod wordpiece;

pub use config::VocabConfig;
pub use decode::{DecodeOptions, StreamDecoder};
pub use error::Error;
/// The files that `VocabConfig::from_gguf` reads.
#[cfg(feature = "gguf")]
pub use rf_gguf;
pub use tokenizer::{EncodeOptions, Tokenizer};
