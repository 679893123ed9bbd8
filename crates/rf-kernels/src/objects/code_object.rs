//! Code objects in host memory.

use std::borrow::Cow;

/// The code of one translation unit, `kernels/NAME.hip`.
#[derive(Clone, Debug)]
pub struct CodeObject {
    /// Name of the source file without its extension.
    pub unit: &'static str,
    /// An AMD code object, or PTX as text without a NUL at the end.
    pub code: Cow<'static, [u8]>,
}
