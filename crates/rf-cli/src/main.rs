//! Run GGUF language models from the command line.
fn main() {}
