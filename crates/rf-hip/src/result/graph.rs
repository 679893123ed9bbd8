//! Graphs: recorded work that is launched with one call.

use super::Api;
use crate::sys::{
    GraphExecHandle, GraphHandle, GraphUpdateInfo, NodeHandle, StreamHandle, constants,
};
use crate::{Error, Platform};

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn begin_capture(api: &Api, stream: StreamHandle) -> Result<(), Error> {
    call!(api, capture_begin(stream, constants::CAPTURE_RELAXED))
}

/// Ends the capture; the graph is null if the capture was invalid.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn end_capture(api: &Api, stream: StreamHandle) -> Result<GraphHandle, Error> {
    let mut graph = GraphHandle::NULL;
    call!(api, capture_end(stream, &raw mut graph))?;
    Ok(graph)
}

/// # Safety
///
/// See [`super`]; the handle is not used again.
pub(crate) unsafe fn destroy(api: &Api, graph: GraphHandle) -> Result<(), Error> {
    call!(api, graph_destroy(graph))
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn node_count(api: &Api, graph: GraphHandle) -> Result<usize, Error> {
    let mut count = 0;
    call!(api, graph_nodes(graph, std::ptr::null_mut(), &raw mut count))?;
    Ok(count)
}

/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn instantiate(api: &Api, graph: GraphHandle) -> Result<GraphExecHandle, Error> {
    let mut exec = GraphExecHandle::NULL;
    if api.platform == Platform::Amd && api.functions.graph_instantiate.pointer.is_none() {
        let (mut failed, log) = (NodeHandle::NULL, std::ptr::null_mut());
        call!(api, hip_graph_instantiate(&raw mut exec, graph, &raw mut failed, log, 0))?;
    } else {
        call!(api, graph_instantiate(&raw mut exec, graph, 0))?;
    }
    Ok(exec)
}

/// # Safety
///
/// See [`super`]; the handle is not used again.
pub(crate) unsafe fn destroy_exec(api: &Api, exec: GraphExecHandle) -> Result<(), Error> {
    call!(api, graph_exec_destroy(exec))
}

/// # Safety
///
/// See [`super`]; the objects that the graph's nodes use are alive.
pub(crate) unsafe fn launch(
    api: &Api,
    exec: GraphExecHandle,
    stream: StreamHandle,
) -> Result<(), Error> {
    call!(api, graph_launch(exec, stream))
}

/// Replaces the parameters by those of `graph`; `false` if the graphs differ in more than that.
///
/// # Safety
///
/// See [`super`].
pub(crate) unsafe fn update(
    api: &Api,
    exec: GraphExecHandle,
    graph: GraphHandle,
) -> Result<bool, Error> {
    let outcome = match api.platform {
        Platform::Amd => {
            let (mut failed, mut result) = (NodeHandle::NULL, 0);
            call!(api, hip_graph_update(exec, graph, &raw mut failed, &raw mut result))
        }
        Platform::Nvidia => {
            let mut info = GraphUpdateInfo {
                result: 0,
                error_node: NodeHandle::NULL,
                error_from_node: NodeHandle::NULL,
            };
            call!(api, cuda_graph_update(exec, graph, &raw mut info))
        }
    };
    match outcome {
        Err(error) if error.status() == Some(constants::GRAPH_UPDATE_FAILURE) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}
