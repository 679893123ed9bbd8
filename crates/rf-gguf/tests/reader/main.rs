//! The public interface of rf-gguf: accepted files, rejected files and their errors, written
//! files.
#![expect(clippy::unwrap_used, reason = "a test")]

mod corpus;
mod hostile;
mod metadata;
mod open;
mod raw;
mod real_files;
mod round_trip;
mod split;
