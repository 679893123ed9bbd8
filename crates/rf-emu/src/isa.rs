//! The instruction sets: processors, families, decoding and disassembly.

mod arch;

pub use arch::{Arch, Family};
