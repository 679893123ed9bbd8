//! The table of foreign functions, resolved once per loaded library.

use std::{
    ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void},
    ptr,
};

use libloading::Library;

use super::constants::Status;
use crate::Platform;

// Device addresses and pointers share registers and size only here: see `functions`.
const _: () = assert!(size_of::<*const c_void>() == 8, "the GPU runtimes are 64-bit only");

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name(*mut c_void);

        impl $name {
            pub(crate) const NULL: Self = Self(ptr::null_mut());
        }

        // SAFETY: an opaque name for an object of the runtime, which both APIs let any thread use.
        unsafe impl Send for $name {}
        // SAFETY: as above; the handle itself is never written through.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// `CUcontext`; NULL on AMD, where the device's number plays that part.
    ContextHandle;
    /// `hipStream_t`, `CUstream`
    StreamHandle;
    /// `hipEvent_t`, `CUevent`
    EventHandle;
    /// `hipModule_t`, `CUmodule`
    ModuleHandle;
    /// `hipFunction_t`, `CUfunction`
    FunctionHandle;
    /// `hipGraph_t`, `CUgraph`
    GraphHandle;
    /// `hipGraphExec_t`, `CUgraphExec`
    GraphExecHandle;
    /// `hipGraphNode_t`, `CUgraphNode`
    NodeHandle;
    /// `hipMemPool_t`, `CUmemoryPool`
    PoolHandle;
}

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
pub(crate) struct GraphUpdateInfo {
    pub(crate) result: c_int,
    pub(crate) error_node: NodeHandle,
    pub(crate) error_from_node: NodeHandle,
}

/// One foreign function: its symbol, and its address where the library has it.
#[derive(Debug)]
pub(crate) struct Entry<F> {
    /// Empty where the platform has no such function.
    pub(crate) symbol: &'static str,
    pub(crate) pointer: Option<F>,
}

impl<F: Copy> Entry<F> {
    fn resolve(library: &Library, symbol: &'static str) -> Self {
        if symbol.is_empty() {
            return Self { symbol, pointer: None };
        }
        // SAFETY: `F` is the signature that `functions` states for the symbol; `abi-check` compares
        // it with the public bindings.
        let pointer = unsafe { library.get::<F>(symbol) }.ok().map(|found| *found);
        Self { symbol, pointer }
    }
}

macro_rules! define_table {
    ($(
        $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty
            [$($amd:ident)?] [$($nvidia:ident)?];
    )*) => {
        /// Every foreign function; see [`super::functions`].
        #[derive(Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $name: Entry<unsafe extern "C" fn($($arg: $type),*) -> $result>,)*
        }

        impl Functions {
            /// Looks all symbols up; a missing one is no error until it is called.
            pub(crate) fn resolve(platform: Platform, library: &Library) -> Self {
                Self {$(
                    $name: Entry::resolve(library, match platform {
                        Platform::Amd => concat!($(stringify!($amd))?),
                        Platform::Nvidia => concat!($(stringify!($nvidia))?),
                    }),
                )*}
            }
        }
    };
}

functions!(define_table);
