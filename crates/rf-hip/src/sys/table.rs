//! The table of foreign functions, resolved once per loaded library.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use libloading::Library;

use super::constants::Status;
use super::handles::{
    AttributedLaunch, ContextHandle, EventHandle, FunctionHandle, GraphExecHandle, GraphHandle,
    GraphUpdateInfo, ModuleHandle, NodeHandle, PoolHandle, ProgramHandle, StreamHandle,
};
use crate::Platform;

// Device addresses and pointers have one size only on 64-bit targets: see `functions`.
const _: () = assert!(size_of::<*const c_void>() == 8, "the GPU runtimes are 64-bit only");

/// One foreign function: its symbol, and its address if the library has it.
#[derive(Debug)]
pub(crate) struct ForeignFunction<F> {
    /// Empty if the platform has no such function.
    pub(crate) symbol: &'static str,
    pub(crate) pointer: Option<F>,
}

impl<F: Copy> ForeignFunction<F> {
    fn resolve(library: &Library, symbol: &'static str) -> Self {
        if symbol.is_empty() {
            return Self { symbol, pointer: None };
        }
        // SAFETY: `F` is the signature of the symbol in `functions`; `abi-check` compares it with
        // the published bindings.
        let pointer = unsafe { library.get::<F>(symbol) }.ok().map(|found| *found);
        Self { symbol, pointer }
    }
}

macro_rules! define_table {
    ($table:ident; $(
        $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty
            [$($amd:ident)?] [$($nvidia:ident)?];
    )*) => {
        /// The foreign functions of a library; see [`super::functions`].
        #[derive(Debug)]
        pub(crate) struct $table {
            $(pub(crate) $name:
                ForeignFunction<unsafe extern "C" fn($($arg: $type),*) -> $result>,)*
        }

        impl $table {
            /// Resolves all symbols; a missing symbol is an error only when it is called.
            pub(crate) fn resolve(platform: Platform, library: &Library) -> Self {
                Self {$(
                    $name: ForeignFunction::resolve(library, match platform {
                        Platform::Amd => concat!($(stringify!($amd))?),
                        Platform::Nvidia => concat!($(stringify!($nvidia))?),
                    }),
                )*}
            }
        }
    };
}

functions!(define_table);
compiler_functions!(define_table);
