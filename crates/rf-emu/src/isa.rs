//! The instruction sets: processors, families, decoding and disassembly.

mod arch;
mod decode;
mod forms;
pub mod instruction;
pub mod op;
mod table;
mod text;

pub use arch::{Arch, Family};
pub use decode::{DecodeError, decode};
pub use forms::{Form, forms};
pub use instruction::Instruction;
pub use table::Kind;
pub use text::Text;
pub(crate) use text::wait_fields;
