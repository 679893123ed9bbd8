//! The public face of rf-gguf: what it reads, what it refuses and how it says so, what it writes.
#![expect(clippy::unwrap_used, reason = "a test")]

mod corpus;
mod hostile;
mod metadata;
mod open;
mod raw;
mod real_files;
mod round_trip;
mod split;
