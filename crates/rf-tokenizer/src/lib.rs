//! Text to token ids and back, special tokens, chat templates.
//!
//! A leaf of the workspace: it knows no file format. Whoever reads a model file fills a
//! [`VocabConfig`], and [`Tokenizer::new`] checks it. Start reading at [`Tokenizer::encode_bytes`]:
//! text is cut at special tokens, the rest goes to one of two families, byte-level BPE (split by
//! regular expressions, then merged) or SPM (merged by score). [`StreamDecoder`] goes the
//! other way, [`ChatTemplate`] makes the text from a conversation.
//!
//! The ids are those of `llama.cpp` for the same file. The invariants: nothing here panics on any
//! vocabulary, text or id; time is at most n log n in the length of a text; for BPE, decoding
//! returns exactly the bytes that were encoded.
//!
//! ```
//! use rf_tokenizer::{DecodeOptions, EncodeOptions, Tokenizer, VocabConfig};
//!
//! let tokens = ["<s>", "</s>", "a", "b", "ab", "Ġ", "Ġab"];
//! let tokenizer = Tokenizer::new(VocabConfig {
//!     model: "gpt2".into(),
//!     pre: Some("gpt-2".into()),
//!     tokens: tokens.map(String::from).into(),
//!     token_types: vec![3, 3, 1, 1, 1, 1, 1],
//!     merges: vec!["a b".into(), "Ġ ab".into()],
//!     eos_token_id: Some(1),
//!     ..VocabConfig::default()
//! })?;
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
//! (128,256 tokens, 280,147 merges; release build, 2 cores): building its BPE model takes 260 ms,
//! against about 75 ms in this crate (limit: 150 ms); it brings 85 further
//! crates into the build. Its semantics differ where `llama.cpp`'s do: it knows
//! `tokenizer.json`, so names of pre-tokenizers, special-token rules and SPM's score order would
//! still be ours. What is left is a merge loop of a hundred lines.

mod bpe;
mod byte_map;
mod chat;
mod config;
mod decode;
mod error;
mod partition;
mod pre_tokenizer;
mod special;
mod spm;
mod tokenizer;
mod vocab;

pub use chat::{ChatTemplate, Message, RenderOptions};
pub use config::VocabConfig;
pub use decode::{DecodeOptions, StreamDecoder};
pub use error::Error;
pub use tokenizer::{EncodeOptions, Tokenizer};
