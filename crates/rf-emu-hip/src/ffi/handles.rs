//! Handles of the program's objects: numbers instead of addresses.

/// `hipStream_t`
pub(super) type StreamHandle = u64;
/// `hipEvent_t`
pub(super) type EventHandle = u64;
/// `hipModule_t`
pub(super) type ModuleHandle = u64;
/// `hipFunction_t`
pub(super) type FunctionHandle = u64;
/// `hipGraph_t`
pub(super) type GraphHandle = u64;
/// `hipGraphExec_t`
pub(super) type ExecHandle = u64;
/// `hipGraphNode_t`
pub(super) type NodeHandle = u64;
