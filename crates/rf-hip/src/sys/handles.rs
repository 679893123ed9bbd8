//! Handles of the runtime's objects, and the structures that are passed by address.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name(*mut c_void);

        impl $name {
            /// No object.
            pub(crate) const NULL: Self = Self(ptr::null_mut());
        }

        // SAFETY: an opaque handle; both APIs allow any thread to use it.
        unsafe impl Send for $name {}
        // SAFETY: as above; nothing is written through the handle.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// `CUcontext`; NULL on AMD, which identifies a context by its device.
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
    /// `hiprtcProgram`
    ProgramHandle;
}

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
pub(crate) struct GraphUpdateInfo {
    pub(crate) result: c_int,
    pub(crate) error_node: NodeHandle,
    pub(crate) error_from_node: NodeHandle,
}

/// `CUlaunchConfig`
#[repr(C)]
pub(crate) struct AttributedLaunch {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) lds_bytes: c_uint,
    pub(crate) stream: StreamHandle,
    pub(crate) attributes: *mut LaunchAttribute,
    pub(crate) num_attributes: c_uint,
}

/// `CUlaunchAttribute`. The value is a union of 64 bytes.
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_int,
    pub(crate) padding: c_int,
    pub(crate) value: [c_int; 16],
}
