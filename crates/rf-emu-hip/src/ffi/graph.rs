//! Graphs.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::slice;

use super::handles::{ExecHandle, GraphHandle, NodeHandle, StreamHandle};
use super::{call, current_device, store, store_optional};
use crate::Status;
use crate::runtime::StreamId;
use crate::runtime::Use::{Release, Work};

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGraphCreate(graph: *mut GraphHandle, _flags: c_uint) -> c_int {
    call("hipGraphCreate", Work, |runtime| {
        let handle = runtime.create_graph();
        // SAFETY: the caller's place.
        unsafe { store(graph, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipGraphDestroy(graph: GraphHandle) -> c_int {
    call("hipGraphDestroy", Release, |runtime| runtime.destroy_graph(graph))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGraphGetNodes(
    graph: GraphHandle,
    nodes: *mut NodeHandle,
    count: *mut usize,
) -> c_int {
    call("hipGraphGetNodes", Work, |runtime| {
        let handles = runtime.graph_nodes(graph)?;
        if !nodes.is_null() && !count.is_null() {
            // SAFETY: not null, so valid for a read.
            let room = unsafe { count.read_unaligned() }.min(handles.len());
            // SAFETY: the caller's array has room for as many handles.
            let place = unsafe { slice::from_raw_parts_mut(nodes, room) };
            place.copy_from_slice(&handles[..room]);
        }
        // SAFETY: the caller's place.
        unsafe { store(count, handles.len()) }
    })
}

unsafe fn instantiate(function: &'static str, exec: *mut ExecHandle, graph: GraphHandle) -> c_int {
    call(function, Work, |runtime| {
        let handle = runtime.instantiate(graph)?;
        // SAFETY: the caller's place.
        unsafe { store(exec, handle) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGraphInstantiate(
    exec: *mut ExecHandle,
    graph: GraphHandle,
    failed: *mut NodeHandle,
    log: *mut c_char,
    log_len: usize,
) -> c_int {
    // SAFETY: the caller's place.
    unsafe { store_optional(failed, 0) };
    if log_len > 0 {
        // SAFETY: the caller's buffer has at least one byte.
        unsafe { store_optional(log, 0) };
    }
    // SAFETY: forwarded.
    unsafe { instantiate("hipGraphInstantiate", exec, graph) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGraphInstantiateWithFlags(
    exec: *mut ExecHandle,
    graph: GraphHandle,
    _flags: c_ulonglong,
) -> c_int {
    // SAFETY: forwarded.
    unsafe { instantiate("hipGraphInstantiateWithFlags", exec, graph) }
}

#[unsafe(no_mangle)]
extern "C" fn hipGraphExecDestroy(exec: ExecHandle) -> c_int {
    call("hipGraphExecDestroy", Release, |runtime| runtime.destroy_exec(exec))
}

#[unsafe(no_mangle)]
extern "C" fn hipGraphUpload(_exec: ExecHandle, _stream: StreamHandle) -> c_int {
    call("hipGraphUpload", Work, |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn hipGraphLaunch(exec: ExecHandle, stream: StreamHandle) -> c_int {
    call("hipGraphLaunch", Work, |runtime| {
        runtime.launch_graph(exec, StreamId::from_handle(stream), current_device())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGraphExecUpdate(
    exec: ExecHandle,
    graph: GraphHandle,
    failed: *mut NodeHandle,
    result: *mut c_int,
) -> c_int {
    /// `hipGraphExecUpdateErrorTopologyChanged`
    const TOPOLOGY_CHANGED: c_int = 2;

    call("hipGraphExecUpdate", Work, |runtime| {
        let outcome = runtime.update_exec(exec, graph);
        let changed = outcome == Err(Status::GRAPH_UPDATE_FAILURE);
        // SAFETY: the caller's place.
        unsafe { store_optional(failed, 0) };
        // SAFETY: the caller's place.
        unsafe { store_optional(result, if changed { TOPOLOGY_CHANGED } else { 0 }) };
        outcome
    })
}
