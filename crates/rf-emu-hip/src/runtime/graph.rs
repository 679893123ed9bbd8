//! Graphs: recorded work.

use super::Runtime;
use super::copy::{Fill, Transfer};
use super::launch::KernelLaunch;
use super::stream::StreamId;
use crate::Status;

/// One piece of work.
#[derive(Debug, Clone)]
pub(super) enum GraphNode {
    Kernel(KernelLaunch),
    Transfer(Transfer),
    Fill(Fill),
}

/// Work in an order that respects its dependencies.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkGraph {
    nodes: Vec<GraphNode>,
    /// The handles of the nodes.
    first_node: u64,
}

impl WorkGraph {
    pub(super) fn new(nodes: Vec<GraphNode>) -> Self {
        Self { nodes, first_node: 0 }
    }

    /// Returns true if both consist of the same kernels, copies and fills in the same order.
    fn has_shape_of(&self, other: &Self) -> bool {
        let same = |nodes: (&GraphNode, &GraphNode)| match nodes {
            (GraphNode::Kernel(one), GraphNode::Kernel(other)) => one.function == other.function,
            (GraphNode::Transfer(_), GraphNode::Transfer(_))
            | (GraphNode::Fill(_), GraphNode::Fill(_)) => true,
            _ => false,
        };
        self.nodes.len() == other.nodes.len() && self.nodes.iter().zip(&other.nodes).all(same)
    }
}

impl Runtime {
    pub(crate) fn create_graph(&mut self) -> u64 {
        let handle = self.new_handle();
        self.graphs.insert(handle, WorkGraph::default());
        handle
    }

    pub(crate) fn destroy_graph(&mut self, graph: u64) -> Result<(), Status> {
        self.graphs.remove(&graph).map(drop).ok_or(Status::INVALID_HANDLE)
    }

    /// The handles of the nodes of a graph.
    pub(crate) fn graph_nodes(&mut self, graph: u64) -> Result<Vec<u64>, Status> {
        let first = self.next_handle;
        let graph = self.graphs.get_mut(&graph).ok_or(Status::INVALID_HANDLE)?;
        let count = graph.nodes.len() as u64;
        if graph.first_node == 0 {
            graph.first_node = first + 0x10;
            self.next_handle += count * 0x10;
        }
        let first = graph.first_node;
        Ok((0..count).map(|node| first + node * 0x10).collect())
    }

    pub(crate) fn instantiate(&mut self, graph: u64) -> Result<u64, Status> {
        let exec = self.graphs.get(&graph).ok_or(Status::INVALID_HANDLE)?.clone();
        let handle = self.new_handle();
        self.execs.insert(handle, exec);
        Ok(handle)
    }

    pub(crate) fn destroy_exec(&mut self, exec: u64) -> Result<(), Status> {
        self.execs.remove(&exec).map(drop).ok_or(Status::INVALID_HANDLE)
    }

    /// Runs the work of an executable graph, up to a failure.
    pub(crate) fn launch_graph(
        &mut self,
        exec: u64,
        stream: StreamId,
        current: usize,
    ) -> Result<(), Status> {
        let exec = self.execs.get(&exec).ok_or(Status::INVALID_HANDLE)?.clone();
        let device = self.stream_device(stream, current)?;
        let (wrong, count) = (self.faults.next_replay(), exec.nodes.len());
        for (place, node) in exec.nodes.into_iter().enumerate() {
            if wrong.is_some_and(|wrong| wrong.skips(place, count)) {
                continue;
            }
            self.queue(stream, node)?;
            if self.is_lost(device) {
                break;
            }
        }
        Ok(())
    }

    /// Replaces the work of an executable graph by that of a graph of the same shape.
    pub(crate) fn update_exec(&mut self, exec: u64, graph: u64) -> Result<(), Status> {
        let graph = self.graphs.get(&graph).ok_or(Status::INVALID_HANDLE)?.clone();
        let exec = self.execs.get_mut(&exec).ok_or(Status::INVALID_HANDLE)?;
        if !exec.has_shape_of(&graph) {
            return Err(Status::GRAPH_UPDATE_FAILURE);
        }
        *exec = graph;
        Ok(())
    }
}
