//! GGUF tensor formats: block layouts, reference quantisation and dequantisation.

mod dtype;

pub use dtype::DType;
