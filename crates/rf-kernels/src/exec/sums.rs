//! Sums over the parts of a divided program ([`Op::AllReduce`]), each of which is on another
//! device.
//!
//! A step of a part has launches up to a sum, the sum, and further launches. The host queues all of
//! them and does not wait for a device:
//!
//! 1. A kernel copies the summand of this part to a slot, and an event follows.
//! 2. The threads of all parts meet and exchange their slots ([`Collective`]). A part that fails or
//!    does not come ends the step of all.
//! 3. The stream waits for the events of the others, and kernels add all summands in the order of
//!    the parts. So every part has the same bits.
//!
//! Slots of few values are in pinned host memory, which kernels of all devices access: the latency
//! counts. Slots of more are in device memory, from which the runtime copies to other devices: it
//! knows the fastest way.
//!
//! A part uses two slots in turn. When it writes to a slot again, its stream has waited for the
//! event of the sum between. The other parts recorded that event after their reads of the slot.
//!
//! [`Collective`]: rf_graph::Collective

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use rf_graph::{BackendError, Graph, Member, Op, QueuedRows, QueuedSummands};
use rf_hip::{Context, DeviceBuffer, Event, MappedBuffer, Stream};

use super::launches::SumPlace;
use crate::error::Error;
use crate::launch::{Gpu, LaunchList, Recording};
use crate::params::{Address, CopyRowsParams, Launch, PairParams};

/// The most values of a slot in host memory.
const MAX_HOST_FLOATS: usize = 16 << 10;

/// The time for which a host thread polls without a pause for the end of a step.
const POLL: Duration = Duration::from_millis(20);

/// The pause between later polls.
const PAUSE: Duration = Duration::from_micros(200);

/// The connection of a part to the others.
#[derive(Default)]
pub(super) struct Sums {
    member: Option<Member>,
    /// `None` if the program has no sums.
    memory: Option<Memory>,
    /// The slot of the next sum.
    next: usize,
    /// The slots of all parts in the last two sums, which this device may still read.
    held: [QueuedSummands; 2],
}

struct Memory {
    host: [Arc<Slot>; 2],
    device: [Arc<Slot>; 2],
    /// The summand of another part; empty if all are small.
    received: DeviceBuffer<f32>,
}

/// Memory for a summand.
#[derive(Debug)]
struct Slot {
    place: Place,
    /// Recorded after the launch that writes.
    written: Event,
}

#[derive(Debug)]
enum Place {
    Host(MappedBuffer<f32>),
    Device(DeviceBuffer<f32>),
}

/// The summand of a part in one sum.
#[derive(Debug)]
struct Summand {
    slot: Arc<Slot>,
    floats: usize,
}

impl Summand {
    /// The summand behind the trait, if a device can wait for it.
    fn of(rows: &Arc<dyn QueuedRows>, reader: &Context) -> Result<Arc<Self>, Error> {
        let any: Arc<dyn Any + Send + Sync> = Arc::<dyn QueuedRows>::clone(rows);
        let summand = any.downcast::<Self>().ok();
        let is_near = |summand: &Arc<Self>| summand.slot.written.context().shares_runtime(reader);
        summand.filter(is_near).ok_or_else(different_kinds)
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
            Place::Device(_) => Err(different_kinds().into()),
        }
    }
}

fn different_kinds() -> Error {
    Error::Unsupported { what: "sums over parts on devices of different kinds".to_owned() }
}

/// Values of the largest sum.
fn most_floats(graph: &Graph, max_tokens: usize) -> usize {
    let width = |op: &Op| match op {
        Op::AllReduce { x, .. } => graph.value(*x).width,
        _ => 0,
    };
    max_tokens * graph.ops().iter().map(width).max().unwrap_or(0)
}

/// Values of a buffer in device memory.
fn device_floats(most: usize) -> usize {
    if most > MAX_HOST_FLOATS { most } else { 0 }
}

impl Sums {
    /// The memory of a program's sums.
    pub(super) fn new(context: &Context, graph: &Graph, max_tokens: usize) -> Result<Self, Error> {
        let most = most_floats(graph, max_tokens);
        if most == 0 {
            return Ok(Self::default());
        }
        let slot = |place| {
            let written = Event::new(context, false)?;
            Ok::<_, Error>(Arc::new(Slot { place, written }))
        };
        let host = || slot(Place::Host(MappedBuffer::new(context, most.min(MAX_HOST_FLOATS))?));
        let device = || slot(Place::Device(DeviceBuffer::new(context, device_floats(most))?));
        let memory = Memory {
            host: [host()?, host()?],
            device: [device()?, device()?],
            received: DeviceBuffer::new(context, device_floats(most))?,
        };
        Ok(Self { memory: Some(memory), ..Self::default() })
    }

    /// Bytes of device memory of a program's sums.
    pub(super) fn bytes_for(graph: &Graph, max_tokens: usize) -> usize {
        3 * device_floats(most_floats(graph, max_tokens)) * size_of::<f32>()
    }

    /// Bytes of device memory.
    pub(super) fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| 3 * memory.received.size_bytes())
    }

    /// See [`Executor::join`](rf_graph::Executor::join).
    pub(super) fn join(&mut self, member: Member) {
        self.member = Some(member);
    }

    /// Queues a sum.
    pub(super) fn queue(
        &mut self,
        gpu: &Gpu,
        stream: &Stream,
        sum: &SumPlace,
    ) -> Result<(), Error> {
        let (Some(member), Some(memory)) = (&self.member, &self.memory) else {
            let what = "a part of a model without the others".to_owned();
            return Err(Error::Unsupported { what });
        };
        let slots = if sum.floats > MAX_HOST_FLOATS { &memory.device } else { &memory.host };
        let slot = &slots[self.next];
        let to = match &slot.place {
            Place::Host(values) => values.device_address(),
            Place::Device(values) => values.address(),
        };
        copy(gpu, stream, sum.x, to, sum.floats)?;
        stream.record(&slot.written)?;
        let own = Summand { slot: Arc::clone(slot), floats: sum.floats };

        let summands = member.collective.gather(member.part, Arc::new(own));
        let summands = summands.map_err(Error::OtherPart)?;
        self.next = 1 - self.next;
        if self.held[0].is_empty() {
            allow_access(gpu.context(), &summands)?;
        }
        let mut sum_so_far = None;
        for (part, rows) in summands.iter().enumerate() {
            let is_own = part == member.part;
            let b = if is_own { sum.x } else { memory.receive(gpu, stream, rows)? };
            sum_so_far = Some(match sum_so_far {
                Some(a) => {
                    let params = PairParams { a, b, out: sum.out, count: sum.floats as u64 };
                    launch(gpu, stream, params.add(), params)?;
                    sum.out
                }
                // The next summand takes the place of one that was received.
                None if !is_own && part + 1 != member.part => {
                    copy(gpu, stream, b, sum.out, sum.floats)?;
                    sum.out
                }
                None => b,
            });
        }
        if summands.len() == 1 {
            copy(gpu, stream, sum.x, sum.out, sum.floats)?;
        }
        self.held.swap(0, 1);
        self.held[0] = summands;
        Ok(())
    }

    /// Waits for the queued work of a part, which waits for that of the others: no longer than
    /// these wait for each other. Without sums there is nothing to wait for.
    ///
    /// # Errors
    ///
    /// If the device fails, or it or another one does not come to the end of its work.
    pub(super) fn wait(&self, stream: &Stream) -> Result<(), Error> {
        let (Some(member), false) = (&self.member, self.held[0].is_empty()) else { return Ok(()) };
        let (start, limit) = (Instant::now(), member.collective.limit());
        while !stream.is_idle()? {
            let waited = start.elapsed();
            if waited > limit {
                let what = format!(
                    "part {} of the model did not end a step within {} s",
                    member.part + 1,
                    limit.as_secs_f32()
                );
                return Err(Error::OtherPart(BackendError::Device(what)));
            }
            if waited < POLL {
                std::thread::yield_now();
            } else {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

impl Memory {
    /// Lets the stream wait for the summand of another part. Returns its address for kernels of
    /// this device, valid until the next one is received.
    fn receive(
        &self,
        gpu: &Gpu,
        stream: &Stream,
        rows: &Arc<dyn QueuedRows>,
    ) -> Result<Address, Error> {
        let summand = Summand::of(rows, gpu.context())?;
        stream.wait(&summand.slot.written)?;
        match &summand.slot.place {
            Place::Host(values) => Ok(values.address_on(gpu.context())?),
            Place::Device(values) => {
                self.received.copy_from_device(stream, 0, values, 0..summand.floats)?;
                Ok(self.received.address())
            }
        }
    }
}

/// Allows direct copies from the memory of other devices. Where no path connects two devices, the
/// runtime copies through host memory.
fn allow_access(context: &Context, summands: &[Arc<dyn QueuedRows>]) -> Result<(), Error> {
    for rows in summands {
        let summand = Summand::of(rows, context)?;
        let other = summand.slot.written.context();
        if let Err(error) = context.enable_peer_access(other) {
            tracing::debug!("no direct copies from GPU {}: {error}", other.info().ordinal);
        }
    }
    Ok(())
}

/// Queues a copy of values in memory that kernels of the device access.
fn copy(
    gpu: &Gpu,
    stream: &Stream,
    from: Address,
    to: Address,
    floats: usize,
) -> Result<(), Error> {
    let params = CopyRowsParams::of_floats(from, to, floats);
    launch(gpu, stream, params.launch(), params)
}

/// Queues a launch after all work before it.
fn launch<P: Pod + Send>(
    gpu: &Gpu,
    stream: &Stream,
    launch: Launch,
    params: P,
) -> Result<(), Error> {
    let mut launches = LaunchList::default();
    launches.push(launch, params);
    Ok(Recording::load(gpu, launches)?.starting_in_order().queue(stream)?)
}
