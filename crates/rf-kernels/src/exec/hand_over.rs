//! Rows that a step hands over to an executor of another device.
//!
//! Between GPUs the host only queues the chunks of a prompt. `Executor::forward` may put the
//! outputs of a stage into `Output::queued` before they are computed, and the next executor takes
//! them as `Input::Queued`. A kernel of the first device writes the rows to pinned host memory. The
//! stream of the next device waits for an event, and a kernel there reads them. The host does not
//! wait.
//!
//! A step holds its rows until it is done; memory without a holder is used again. Four chunks may
//! be queued on each device, so up to four devices compute at once. When the host reads an output,
//! it waits for all devices and reports their failures. Steps of up to 64 tokens, other backends
//! and profiled steps hand over through the host, which waits for each stage.

use std::any::Any;
use std::sync::Arc;

use rf_graph::{BackendError, QueuedRows};
use rf_hip::{Context, Event, MappedBuffer, Stream};

use crate::error::Error;
use crate::params::Address;

/// The rows of one step.
#[derive(Debug)]
pub(super) struct HandedRows {
    values: MappedBuffer<f32>,
    /// The number of values of the step.
    floats: usize,
    /// Recorded after the step.
    written: Event,
}

impl HandedRows {
    fn new(context: &Context, floats: usize) -> Result<Self, Error> {
        // Kernels read pairs.
        let values = MappedBuffer::new(context, floats.next_multiple_of(2))?;
        Ok(Self { values, floats, written: Event::new(context, false)? })
    }

    /// The rows behind the trait, if a device can read them and wait for them.
    pub(super) fn of(rows: &Arc<dyn QueuedRows>, reader: &Context) -> Option<Arc<Self>> {
        let rows: Arc<dyn Any + Send + Sync> = Arc::<dyn QueuedRows>::clone(rows);
        let rows = rows.downcast::<Self>().ok()?;
        rows.values.context().shares_runtime(reader).then_some(rows)
    }

    /// The address for the kernels that write the rows.
    pub(super) fn address(&self) -> Address {
        self.values.device_address()
    }

    /// The address for the kernels of another device.
    pub(super) fn address_on(&self, reader: &Context) -> Result<Address, Error> {
        Ok(self.values.address_on(reader)?)
    }

    /// The event after the step.
    pub(super) fn written(&self) -> &Event {
        &self.written
    }

    /// Marks the end of the step.
    pub(super) fn mark_written(&self, stream: &Stream) -> Result<(), Error> {
        Ok(stream.record(&self.written)?)
    }
}

impl QueuedRows for HandedRows {
    fn floats(&self) -> usize {
        self.floats
    }

    fn wait(&self) -> Result<&[f32], BackendError> {
        self.written.synchronize().map_err(Error::from)?;
        Ok(&self.values[..self.floats])
    }
}

/// The memory of handed rows. There is as much as is in use at once.
#[derive(Default)]
pub(super) struct HandOvers {
    rows: Vec<Arc<HandedRows>>,
}

impl HandOvers {
    /// Memory for `floats` values that nobody else holds. New memory has room for `most` values.
    pub(super) fn take(
        &mut self,
        context: &Context,
        floats: usize,
        most: usize,
    ) -> Result<Arc<HandedRows>, Error> {
        for rows in &mut self.rows {
            if let Some(free) = Arc::get_mut(rows).filter(|free| free.values.len() >= floats) {
                free.floats = floats;
                return Ok(Arc::clone(rows));
            }
        }
        let rows = Arc::new(HandedRows { floats, ..HandedRows::new(context, most.max(floats))? });
        self.rows.push(Arc::clone(&rows));
        Ok(rows)
    }
}
