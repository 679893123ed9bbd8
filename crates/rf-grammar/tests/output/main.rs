//! Outputs of random models under constraints.

#![expect(clippy::unwrap_used, reason = "the vocabulary and the requests are sound")]

mod calls;
mod grammars;
mod limits;
mod sampling;
mod schemas;
mod suite;
mod vocabularies;
