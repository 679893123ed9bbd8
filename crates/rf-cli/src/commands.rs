//! The commands, one file each.

mod answer;
pub(crate) mod bench;
mod chat;
pub(crate) mod completions;
#[cfg(feature = "gpu")]
pub(crate) mod devices;
mod display;
#[cfg(feature = "gpu")]
pub(crate) mod doctor;
pub(crate) mod embed;
pub(crate) mod fit;
pub(crate) mod gguf;
pub(crate) mod guide;
pub(crate) mod imatrix;
pub(crate) mod info;
mod input;
pub(crate) mod launch;
pub(crate) mod list;
pub(crate) mod perplexity;
#[cfg(feature = "gpu")]
pub(crate) mod probe;
pub(crate) mod profile;
mod prompt_cache;
pub(crate) mod pull;
pub(crate) mod quantize;
pub(crate) mod rerank;
pub(crate) mod rm;
pub(crate) mod run;
#[cfg(feature = "gpu")]
pub(crate) mod selftest;
pub(crate) mod serve;
pub(crate) mod tokenize;
#[cfg(feature = "gpu")]
pub(crate) mod tune;
