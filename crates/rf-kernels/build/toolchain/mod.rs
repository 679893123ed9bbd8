//! From `kernels/*.hip` to code objects: sources, compiler, targets, compilation.
//!
//! The build script of rf-kernels and `cargo xtask kernels` compile by this one description, into one cache,
//! so what the report looks at is what the program carries. Only the standard library is used here.

mod compile;
mod compiler;
#[path = "../../src/objects/digest.rs"]
mod digest;
mod sources;
mod targets;

pub(crate) use self::{
    compile::{Cache, Object, compile_all},
    compiler::{Compiler, Search},
    sources::{Unit, include_folder, read_units},
    targets::{Selection, Target},
};
