//! The instruction sets: processors, families, decoding and disassembly.

mod arch;
mod decode;
mod forms;
pub mod instruction;
pub mod op;
mod table;
mod text;

pub use arch::{Arch, ProcessorFamily};
pub use decode::{DecodeError, decode};
pub use forms::{Form, forms};
pub use instruction::Instruction;
pub use table::OperandType;
pub use text::InstructionText;
pub(crate) use text::wait_fields;
