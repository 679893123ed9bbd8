//! Streams. Work runs when it is queued, so a stream only knows its device and its capture.

use super::copy::Fill;
use super::graph::GraphNode;
use super::launch::KernelLaunch;
use super::{Runtime, Transfer};
use crate::Status;

/// The flag of streams that do not wait for the legacy stream.
const NON_BLOCKING: u32 = 1;

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) device: usize,
    pub(super) flags: u32,
    /// The capture that records the stream's work.
    pub(super) capture: Option<u64>,
    /// The nodes that the stream added to its capture.
    pub(super) recorded: u64,
    /// True if no other stream of the capture waits for the last of them.
    pub(super) is_unjoined: bool,
}

/// A stream handle of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamId {
    /// The legacy default stream of the current device.
    Legacy,
    Created(u64),
}

impl StreamId {
    /// The stream of a handle: 0 and 1 are the legacy stream, 2 the thread's default stream, which
    /// is the same here because all work is done when a call returns.
    pub(crate) fn from_handle(handle: u64) -> Self {
        if handle <= 2 { Self::Legacy } else { Self::Created(handle) }
    }
}

impl Runtime {
    pub(crate) fn create_stream(&mut self, device: usize, flags: u32) -> Result<u64, Status> {
        self.memory(device)?;
        let handle = self.new_handle();
        let stream = Stream { device, flags, capture: None, recorded: 0, is_unjoined: false };
        self.streams.insert(handle, stream);
        Ok(handle)
    }

    pub(crate) fn destroy_stream(&mut self, stream: StreamId) -> Result<(), Status> {
        let StreamId::Created(handle) = stream else { return Err(Status::INVALID_HANDLE) };
        let stream = self.streams.remove(&handle).ok_or(Status::INVALID_HANDLE)?;
        if let Some(capture) = stream.capture {
            self.invalidate(capture);
        }
        Ok(())
    }

    /// Waits for a stream, which has nothing left to do.
    pub(crate) fn synchronize_stream(&mut self, stream: StreamId) -> Result<(), Status> {
        match self.capture_of(stream)? {
            None => Ok(()),
            Some(capture) => {
                self.invalidate(capture);
                Err(Status::CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Waits for a device. A wait during a capture invalidates it.
    pub(crate) fn synchronize_device(&mut self, device: usize) -> Result<(), Status> {
        let captures: Vec<_> = self
            .streams
            .values()
            .filter(|stream| stream.device == device)
            .filter_map(|stream| stream.capture)
            .collect();
        for &capture in &captures {
            self.invalidate(capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(Status::CAPTURE_UNSUPPORTED) }
    }

    pub(crate) fn stream_flags(&self, stream: StreamId) -> Result<u32, Status> {
        match stream {
            StreamId::Legacy => Ok(0),
            StreamId::Created(handle) => self.stream(handle).map(|stream| stream.flags),
        }
    }

    /// The device of a stream; that of the thread for the legacy stream.
    pub(crate) fn stream_device(&self, stream: StreamId, current: usize) -> Result<usize, Status> {
        match stream {
            StreamId::Legacy => Ok(current),
            StreamId::Created(handle) => self.stream(handle).map(|stream| stream.device),
        }
    }

    pub(super) fn stream(&self, handle: u64) -> Result<&Stream, Status> {
        self.streams.get(&handle).ok_or(Status::INVALID_HANDLE)
    }

    // ---- work

    pub(crate) fn queue_transfer(
        &mut self,
        stream: StreamId,
        transfer: Transfer,
    ) -> Result<(), Status> {
        if transfer.bytes == 0 {
            return Ok(());
        }
        self.check_transfer(&transfer)?;
        self.queue(stream, GraphNode::Transfer(transfer))
    }

    pub(crate) fn queue_fill(
        &mut self,
        stream: StreamId,
        address: u64,
        pattern: (u32, usize),
        count: u64,
    ) -> Result<(), Status> {
        if count == 0 {
            return Ok(());
        }
        let (value, pattern_bytes) = pattern;
        let fill = Fill { address, pattern: value.to_le_bytes(), pattern_bytes, count };
        self.check_fill(&fill)?;
        self.queue(stream, GraphNode::Fill(fill))
    }

    pub(crate) fn queue_launch(
        &mut self,
        stream: StreamId,
        launch: KernelLaunch,
    ) -> Result<(), Status> {
        self.queue(stream, GraphNode::Kernel(launch))
    }

    /// Runs the work, or records it if the stream captures.
    pub(super) fn queue(&mut self, stream: StreamId, node: GraphNode) -> Result<(), Status> {
        if let Some(capture) = self.capture_of(stream)? {
            return self.record(stream, capture, node);
        }
        if stream == StreamId::Legacy && self.captures_on_blocking_stream() {
            return Err(Status::CAPTURE_IMPLICIT);
        }
        self.execute(&node)
    }

    /// Runs one piece of work.
    pub(super) fn execute(&mut self, node: &GraphNode) -> Result<(), Status> {
        match node {
            GraphNode::Kernel(launch) => self.run_kernel(launch),
            GraphNode::Transfer(transfer) => self.transfer(transfer),
            GraphNode::Fill(fill) => self.fill(fill),
        }
    }

    fn captures_on_blocking_stream(&self) -> bool {
        self.streams
            .values()
            .any(|stream| stream.capture.is_some() && stream.flags & NON_BLOCKING == 0)
    }
}
