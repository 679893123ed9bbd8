//! The GGUF container: header, metadata, tensor table, memory map, split files, writer.
