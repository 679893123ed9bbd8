//! The summands of parts: memory that other devices read.

use std::any::Any;
use std::sync::Arc;

use rf_graph::{BackendError, QueuedRows};
use rf_hip::{Context, DeviceBuffer, Event, MappedBuffer};

use crate::error::Error;
use crate::params::Address;

/// Memory for a summand.
#[derive(Debug)]
pub(super) struct SummandSlot {
    pub(super) place: Place,
    /// Recorded after the launch that writes, unless that is followed by a signal.
    pub(super) written: Event,
}

#[derive(Debug)]
pub(super) enum Place {
    Host(MappedBuffer<f32>),
    Device {
        values: DeviceBuffer<f32>,
        /// The number of the last summand that is written.
        signal: DeviceBuffer<u32>,
    },
}

/// The summand of a part in one sum.
#[derive(Debug)]
pub(super) struct Summand {
    pub(super) slot: Arc<SummandSlot>,
    pub(super) floats: usize,
    /// The number of the signal after the launch that writes; `None` if an event follows it.
    pub(super) signal: Option<u32>,
    /// True if kernels of this part read the memory of all others; `None` if that is not known yet.
    pub(super) reads_others: Option<bool>,
}

impl SummandSlot {
    /// A slot in host memory that all devices access.
    pub(super) fn on_host(context: &Context, floats: usize) -> Result<Arc<Self>, Error> {
        Self::new(context, Place::Host(MappedBuffer::new(context, floats)?))
    }

    /// A slot in device memory.
    pub(super) fn on_device(context: &Context, floats: usize) -> Result<Arc<Self>, Error> {
        let values = DeviceBuffer::new(context, floats)?;
        let signal = DeviceBuffer::zeroed(context, 1)?;
        Self::new(context, Place::Device { values, signal })
    }

    fn new(context: &Context, place: Place) -> Result<Arc<Self>, Error> {
        let written = Event::new(context, false)?;
        Ok(Arc::new(Self { place, written }))
    }

    /// Bytes of device memory of a slot on the device.
    pub(super) fn bytes_on_device(floats: usize) -> usize {
        floats * size_of::<f32>() + size_of::<u32>()
    }

    /// The address for kernels of the part that writes.
    pub(super) fn address(&self) -> Address {
        match &self.place {
            Place::Host(values) => values.device_address(),
            Place::Device { values, .. } => values.address(),
        }
    }
}

impl Summand {
    /// The summand behind the trait, if a device can wait for it.
    pub(super) fn of(rows: &Arc<dyn QueuedRows>, reader: &Context) -> Result<Arc<Self>, Error> {
        let any: Arc<dyn Any + Send + Sync> = Arc::<dyn QueuedRows>::clone(rows);
        let summand = any.downcast::<Self>().ok();
        let is_near = |summand: &Arc<Self>| summand.context().shares_runtime(reader);
        summand.filter(is_near).ok_or_else(different_kinds)
    }

    /// The context of the part that writes.
    pub(super) fn context(&self) -> &Context {
        self.slot.written.context()
    }
}

impl QueuedRows for Summand {
    fn floats(&self) -> usize {
        self.floats
    }

    fn wait(&self) -> Result<&[f32], BackendError> {
        self.slot.written.synchronize().map_err(Error::from)?;
        match &self.slot.place {
            Place::Host(values) => Ok(&values[..self.floats]),
            Place::Device { .. } => Err(different_kinds().into()),
        }
    }
}

fn different_kinds() -> Error {
    Error::Unsupported { what: "sums over parts on devices of different kinds".to_owned() }
}
