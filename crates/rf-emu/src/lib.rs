//! Runs AMD machine code (RDNA 2 to 4, wave32) on any machine and reports what is wrong with it.
//!
//! **Place in the layering.** At the bottom: the crate depends on no other crate of the workspace.
//!
//! **Where to start.** [`isa::Arch`] lists the processors, [`isa::decode`] reads an instruction.
//! [`CodeObject`] reads a compiled file; [`Memory`] is the address space of a device, into which it
//! is loaded. [`Program`] is a kernel that is ready to run; it returns [`Counters`] or a [`Fault`].
//!
//! **Invariants.**
//! - No code object, no instruction and no argument makes this crate panic.
//! - Accesses are checked to the byte with any options.
//! - Workgroups run on as many threads as the options allow; memory is accessed by relaxed atomics.
//!
//! ```
//! use rf_emu::isa::{Arch, decode};
//!
//! let instruction = decode(Arch::Gfx1100, &[0x3244_0085])?;
//! assert_eq!(instruction.text(Arch::Gfx1100).to_string(), "v_lshrrev_b32_e32 v34, 5, v0");
//! # Ok::<(), rf_emu::isa::DecodeError>(())
//! ```
//!
//! A kernel runs, and a check finds that it lacks a barrier:
//!
//! ```
//! use rf_emu::{CodeObject, Grid, Launch, Memory, MemoryOptions, Options, dispatch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let code = CodeObject::parse(include_bytes!("../tests/fixtures/reverse.gfx1100.co"))?;
//! let memory = Memory::new(MemoryOptions::default());
//! let loaded = code.load(&memory)?;
//! let out = memory.allocate(64 * 4)?;
//!
//! let kernel = code.kernel("reverse")?;
//! let grid = Grid { workgroups: [1, 1, 1], workgroup_size: [64, 1, 1], dynamic_lds_bytes: 0 };
//! let segment = kernel.kernarg_segment(&out.to_le_bytes(), &grid)?;
//! let launch = Launch { grid, arguments: memory.allocate_arguments(&segment)? };
//! let mut options = Options::default();
//! options.checks = "lds-races".parse()?;
//! let fault = dispatch(&memory, &loaded, kernel, &launch, &options).unwrap_err();
//! assert!(fault.to_string().contains("[reverse.hip:5; "));
//! # Ok(())
//! # }
//! ```
//!
//! ```
//! use rf_emu::{CodeObject, Memory, MemoryOptions};
//!
//! # fn main() -> Result<(), rf_emu::Error> {
//! let file = include_bytes!("../tests/fixtures/two_kernels.gfx1100.co");
//! let code = CodeObject::parse(file)?;
//! assert_eq!(code.arch().name(), "gfx1100");
//! let scale = code.kernel("scale")?;
//! assert_eq!(scale.arguments.len(), 4);
//!
//! let memory = Memory::new(MemoryOptions::default());
//! let loaded = code.load(&memory)?;
//! assert!(loaded.address_of(scale) > 0);
//! # Ok(())
//! # }
//! ```

mod check;
mod code_object;
pub mod cost;
mod error;
mod execute;
mod fault;
pub mod isa;
mod memory;

pub use check::{Checks, UnknownCheck};
pub use code_object::{
    Argument, ArgumentKind, ArgumentMetadata, CodeObject, Grid, Hidden, Kernel, KernelMetadata,
    LoadedCode, SourceLines, UserSgpr, kernel_metadata, select_bundle,
};
pub use error::Error;
pub use execute::{Counters, Launch, Options, Program, dispatch};
pub use fault::{Fault, FaultKind, FaultPlace, RaceCause};
pub use isa::{Arch, ProcessorFamily};
pub use memory::{
    AccessFault, Allocation, AllocationKind, AllocationRange, Hint, Memory, MemoryOptions, Ranges,
    View,
};

/// The example of the documentation compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/emulator.md")]
struct Documentation;
