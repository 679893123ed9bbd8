//! Runs AMD machine code (RDNA 2 to 4, wave32) on any machine and reports what is wrong with it.
//!
//! **Place in the layering.** At the bottom: the crate depends on no other crate of the workspace.
//!
//! **Where to start.** [`isa::Arch`] lists the processors.

pub mod isa;
