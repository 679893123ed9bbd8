//! The parser of generated text.

mod forms;
mod parsing;
mod splits;
