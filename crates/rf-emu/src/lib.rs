//! Runs AMD machine code (RDNA 2 to 4, wave32) on any machine and reports what is wrong with it.
//!
//! **Place in the layering.** At the bottom: the crate depends on no other crate of the workspace.
//!
//! **Where to start.** [`isa::Arch`] lists the processors, [`isa::decode`] reads an instruction.
//!
//! ```
//! use rf_emu::isa::{Arch, decode};
//!
//! let instruction = decode(Arch::Gfx1100, &[0x3244_0085])?;
//! assert_eq!(instruction.text(Arch::Gfx1100).to_string(), "v_lshrrev_b32_e32 v34, 5, v0");
//! # Ok::<(), rf_emu::isa::DecodeError>(())
//! ```

pub mod isa;
