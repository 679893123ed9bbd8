//! Compiles GPU kernels with clang: `kernels/*.hip` to AMD code objects and PTX.
//!
//! The build script of `rf-kernels` and `cargo xtask kernels` share this crate and one cache, so
//! the report of `xtask` describes the code that programs embed. It is published because
//! `rf-kernels` is: other crates have no use for it.
//!
//! **Place in the layering.** On its own, and used at build time only. It needs clang and lld, but
//! neither ROCm nor CUDA.
//!
//! **Where to start.** [`Selection`], the targets to build, and [`compile_all`].
//!
//! **Invariants.**
//! - The same sources, compiler and target give the same entry of the cache.
//! - A missing compiler is an [`Error`], which a build script can turn into a build without code.
//!
//! # Examples
//!
//! Parse a list of targets, as in `ROCFORGE_KERNEL_TARGETS`:
//!
//! ```
//! use rf_kernels_build::{Error, Selection};
//!
//! let selection: Selection = "gfx1100, sm_80".parse()?;
//! let names: Vec<_> = selection.targets().iter().map(|target| target.name).collect();
//! assert_eq!(names, ["gfx1100", "sm_80"]);
//!
//! let unknown = "gfx1100,gfx803".parse::<Selection>().unwrap_err();
//! assert!(matches!(unknown, Error::UnknownTarget { name } if name == "gfx803"));
//! # Ok::<(), Error>(())
//! ```
//!
//! Compile all kernels for the targets of a release:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use rf_kernels_build::{Cache, Compiler, Error, Selection, Sources, compile_all};
//!
//! let sources = Sources::read(Path::new("kernels"))?;
//! let compiler = Compiler::find()?;
//! let supported = compiler.supported_targets(&Selection::Release)?;
//! let cache = Cache::open(Path::new("target/release"))?;
//! for object in compile_all(&compiler, &cache, &sources, &supported.targets, 4)? {
//!     println!("{} for {}: {}", object.unit.name, object.target.name, object.path.display());
//! }
//! # Ok::<(), Error>(())
//! ```

mod compile;
mod compiler;
mod delta;
mod error;
mod machine;
mod selection;
mod sources;
mod targets;

pub use compile::{Cache, ObjectFile, compile_all};
pub use compiler::{Compiler, SupportedTargets, UnsupportedTarget};
pub use delta::{delta, packed};
pub use error::Error;
pub use selection::Selection;
pub use sources::{Sources, Unit};
pub use targets::Target;
