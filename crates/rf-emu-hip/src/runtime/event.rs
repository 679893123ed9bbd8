//! Events: a time, or a place in a capture.

use super::Runtime;
use super::stream::StreamId;
use crate::Status;

/// The flag of events without a time.
const DISABLE_TIMING: u32 = 2;

/// An event.
#[derive(Debug)]
pub(super) struct EmulatedEvent {
    flags: u32,
    recorded: Recorded,
}

#[derive(Debug, Clone, Copy)]
enum Recorded {
    Never,
    /// Milliseconds since the start.
    At(f64),
    /// Recorded in a capture, after so many nodes of the stream.
    Captured {
        capture: u64,
        stream: u64,
        nodes: u64,
    },
}

impl Runtime {
    pub(crate) fn create_event(&mut self, flags: u32) -> u64 {
        let handle = self.new_handle();
        self.events.insert(handle, EmulatedEvent { flags, recorded: Recorded::Never });
        handle
    }

    pub(crate) fn destroy_event(&mut self, event: u64) -> Result<(), Status> {
        self.events.remove(&event).map(drop).ok_or(Status::INVALID_HANDLE)
    }

    pub(crate) fn record_event(&mut self, event: u64, stream: StreamId) -> Result<(), Status> {
        let now = self.started.elapsed().as_secs_f64() * 1e3;
        let recorded = match (stream, self.capture_of(stream)?) {
            (StreamId::Created(stream), Some(capture)) => {
                Recorded::Captured { capture, stream, nodes: self.stream(stream)?.recorded }
            }
            _ => Recorded::At(now),
        };
        self.events.get_mut(&event).ok_or(Status::INVALID_HANDLE)?.recorded = recorded;
        Ok(())
    }

    /// Waits for an event, or asks whether it is reached: both are done at once.
    pub(crate) fn await_event(&self, event: u64) -> Result<(), Status> {
        match self.event(event)?.recorded {
            Recorded::Captured { .. } => Err(Status::CAPTURED_EVENT),
            Recorded::Never | Recorded::At(_) => Ok(()),
        }
    }

    pub(crate) fn elapsed_ms(&self, start: u64, end: u64) -> Result<f32, Status> {
        let time = |event: u64| {
            let event = self.event(event)?;
            match event.recorded {
                Recorded::At(time) if event.flags & DISABLE_TIMING == 0 => Ok(time),
                _ => Err(Status::INVALID_HANDLE),
            }
        };
        Ok((time(end)? - time(start)?) as f32)
    }

    /// Makes a stream wait for an event. Within a capture the stream joins it.
    pub(crate) fn wait_event(&mut self, stream: StreamId, event: u64) -> Result<(), Status> {
        let own = self.capture_of(stream)?;
        let Recorded::Captured { capture, stream: of, nodes } = self.event(event)?.recorded else {
            return Ok(());
        };
        if !self.captures.contains_key(&capture) {
            return Ok(());
        }
        match own {
            Some(own) if own != capture => return Err(Status::CAPTURE_MERGE),
            None => self.join_capture(stream, capture)?,
            Some(_) => {}
        }
        let joined = self.streams.get_mut(&of).filter(|of| of.recorded == nodes);
        if let Some(joined) = joined.filter(|_| stream != StreamId::Created(of)) {
            joined.is_unjoined = false;
        }
        Ok(())
    }

    fn event(&self, event: u64) -> Result<&EmulatedEvent, Status> {
        self.events.get(&event).ok_or(Status::INVALID_HANDLE)
    }
}
