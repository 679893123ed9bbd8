//! Captures: streams that record their work instead of running it.

use super::Runtime;
use super::graph::{GraphNode, WorkGraph};
use super::stream::StreamId;
use crate::Status;

/// An active capture.
#[derive(Debug)]
pub(super) struct Capture {
    /// The stream on which it began.
    origin: u64,
    nodes: Vec<GraphNode>,
    is_valid: bool,
}

impl Runtime {
    pub(crate) fn begin_capture(&mut self, stream: StreamId) -> Result<(), Status> {
        let StreamId::Created(origin) = stream else { return Err(Status::CAPTURE_UNSUPPORTED) };
        if self.capture_of(stream)?.is_some() {
            return Err(Status::ILLEGAL_STATE);
        }
        let capture = self.new_handle();
        self.captures.insert(capture, Capture { origin, nodes: Vec::new(), is_valid: true });
        self.join_capture(stream, capture)
    }

    /// Ends a capture and returns its graph.
    pub(crate) fn end_capture(&mut self, stream: StreamId) -> Result<u64, Status> {
        let capture = self.capture_of(stream)?.ok_or(Status::ILLEGAL_STATE)?;
        let origin = self.captures.get(&capture).map(|capture| capture.origin);
        if origin.map(StreamId::Created) != Some(stream) {
            return Err(Status::CAPTURE_UNMATCHED);
        }
        let mut unjoined = false;
        for (&handle, member) in &mut self.streams {
            if member.capture == Some(capture) {
                unjoined |= member.is_unjoined && Some(handle) != origin;
                member.capture = None;
            }
        }
        let recorded = self.captures.remove(&capture).ok_or(Status::ILLEGAL_STATE)?;
        if !recorded.is_valid {
            return Err(Status::CAPTURE_INVALIDATED);
        }
        if unjoined {
            return Err(Status::CAPTURE_UNJOINED);
        }
        let handle = self.new_handle();
        self.graphs.insert(handle, WorkGraph::new(recorded.nodes));
        Ok(handle)
    }

    /// `hipStreamCaptureStatus`: none, active, invalidated.
    pub(crate) fn capture_status(&self, stream: StreamId) -> Result<i32, Status> {
        let capture = self.capture_of(stream)?;
        Ok(match capture.and_then(|capture| self.captures.get(&capture)) {
            None => 0,
            Some(capture) if capture.is_valid => 1,
            Some(_) => 2,
        })
    }

    /// The capture that records the work of a stream.
    pub(crate) fn capture_of(&self, stream: StreamId) -> Result<Option<u64>, Status> {
        match stream {
            StreamId::Legacy => Ok(None),
            StreamId::Created(handle) => self.stream(handle).map(|stream| stream.capture),
        }
    }

    pub(super) fn join_capture(&mut self, stream: StreamId, capture: u64) -> Result<(), Status> {
        let StreamId::Created(handle) = stream else { return Err(Status::CAPTURE_IMPLICIT) };
        let stream = self.streams.get_mut(&handle).ok_or(Status::INVALID_HANDLE)?;
        stream.capture = Some(capture);
        stream.recorded = 0;
        stream.is_unjoined = true;
        Ok(())
    }

    /// Adds work to a capture.
    pub(super) fn record(
        &mut self,
        stream: StreamId,
        capture: u64,
        node: GraphNode,
    ) -> Result<(), Status> {
        let active = self.captures.get_mut(&capture).ok_or(Status::ILLEGAL_STATE)?;
        if !active.is_valid {
            return Err(Status::CAPTURE_INVALIDATED);
        }
        active.nodes.push(node);
        if let StreamId::Created(handle) = stream
            && let Some(stream) = self.streams.get_mut(&handle)
        {
            stream.recorded += 1;
            stream.is_unjoined = true;
        }
        Ok(())
    }

    /// Ends all captures without a graph.
    pub(super) fn discard_captures(&mut self) {
        self.captures.clear();
        for stream in self.streams.values_mut() {
            stream.capture = None;
        }
    }

    pub(super) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.is_valid = false;
        }
    }
}
