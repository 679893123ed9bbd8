//! From `kernels/*.hip` to code objects: sources, compiler, targets, compilation.
//!
//! The build script of rf-kernels and `cargo xtask kernels` compile by this one description, into one cache,
//! so what the report looks at is what the program carries. Only the standard library is used here.

pub(crate) mod compile;
pub(crate) mod compiler;
#[path = "../../src/objects/digest.rs"]
mod digest;
pub(crate) mod sources;
pub(crate) mod targets;
