//! Architectures: GGUF metadata to config, weights and graph.
