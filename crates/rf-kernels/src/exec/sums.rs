//! Sums over the parts of a divided program ([`Op::AllReduce`]), each of which is on another
//! device.
//!
//! A step of a part has launches up to a sum, the sum, and further launches. The host queues all of
//! them and does not wait for a device:
//!
//! 1. The last launch before the sum writes the summand of this part to a slot, and an event
//!    follows.
//! 2. The threads of all parts meet and exchange their slots ([`Collective`]). A part that fails or
//!    does not come ends the step of all.
//! 3. The stream waits for the events of the others. One kernel adds all summands in the order of
//!    the parts, so every part has the same bits. It also adds the residual and, for few rows,
//!    writes the norm that follows.
//!
//! Slots of few values are in pinned host memory, which kernels of all devices access: the latency
//! counts. Slots of more are in device memory, from which the runtime copies to other devices: it
//! knows the fastest way.
//!
//! A part uses two slots in turn. When it writes to a slot again, its stream has waited for the
//! event of the sum between. The other parts recorded that event after their reads of the slot.
//! Recorded launches write to the same slot in every step ([`Sums::direct`]). An even number of
//! them takes turns across steps, too. All other summands are copied to slots that take turns at
//! run time.
//!
//! [`Collective`]: rf_graph::Collective

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rf_graph::{BackendError, Graph, Member, Op, QueuedRows, QueuedSummands, Stage, ValueId};
use rf_hip::{Context, DeviceBuffer, Event, MappedBuffer, Stream};

use super::program::DirectSlot;
use super::step::StepShape;
use crate::error::Error;
use crate::launch::{Gpu, LoadedKernel};
use crate::params::{Address, CopyRowsParams, SumPartsParams};

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
    /// The slot of the next summand that is copied.
    next: usize,
    /// The slots of all parts in the last two sums, which this device may still read.
    held: [QueuedSummands; 2],
}

struct Memory {
    /// The summands that no op but a sum reads.
    read_once: HashSet<ValueId>,
    /// The slots that the launches before sums write, in host memory.
    direct: [Arc<Slot>; 2],
    /// The slots of summands that are copied.
    host: [Arc<Slot>; 2],
    device: [Arc<Slot>; 2],
    /// The summand of another part; empty if all are small.
    received: DeviceBuffer<f32>,
    copy_kernel: LoadedKernel,
    sum_kernel: LoadedKernel,
    /// The slots of other parts in host memory, with their addresses for this device.
    others: Vec<(Arc<Slot>, Address)>,
}

/// The place of an [`Op::AllReduce`] in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct SumPlace {
    /// Number of launches of ops before it.
    pub(super) at: usize,
    /// The summand of this part.
    pub(super) x: Address,
    /// The slot of `x` that the launches before the sum write; `None` if the sum copies `x`.
    pub(super) slot: Option<usize>,
    /// The launch, without its summands.
    pub(super) params: SumPartsParams,
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
    pub(super) fn new(gpu: &Gpu, graph: &Graph, max_tokens: usize) -> Result<Self, Error> {
        let (context, most) = (gpu.context(), most_floats(graph, max_tokens));
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
            read_once: read_once(graph),
            direct: [host()?, host()?],
            host: [host()?, host()?],
            device: [device()?, device()?],
            received: DeviceBuffer::new(context, device_floats(most))?,
            copy_kernel: gpu.kernel(CopyRowsParams::default().launch().kernel)?,
            sum_kernel: gpu.kernel(SumPartsParams::default().launch().kernel)?,
            others: Vec::new(),
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

    /// The summands of a stage that the launches before sums write to slots, which take turns.
    pub(super) fn direct(
        &self,
        graph: &Graph,
        stage: &Stage,
        shape: &StepShape,
    ) -> HashMap<ValueId, DirectSlot> {
        let Some(memory) = &self.memory else { return HashMap::new() };
        let slots = memory.direct.iter().map(|slot| slot.address()).enumerate().cycle();
        let slots = slots.map(|(index, address)| DirectSlot { index, address });
        direct_summands(graph, stage, shape, &memory.read_once).into_iter().zip(slots).collect()
    }

    /// Queues a sum.
    pub(super) fn queue(&mut self, stream: &Stream, sum: &SumPlace) -> Result<(), Error> {
        let (Some(member), Some(memory)) = (&self.member, &mut self.memory) else {
            let what = "a part of a model without the others".to_owned();
            return Err(Error::Unsupported { what });
        };
        let floats = sum.params.count as usize;
        let slot = if let Some(slot) = sum.slot {
            &memory.direct[slot]
        } else {
            let slots = if floats > MAX_HOST_FLOATS { &memory.device } else { &memory.host };
            let slot = &slots[self.next];
            let params = CopyRowsParams::of_floats(sum.x, slot.address(), floats);
            memory.copy_kernel.queue(stream, params.launch(), &params)?;
            self.next = 1 - self.next;
            slot
        };
        stream.record(&slot.written)?;
        let own = Summand { slot: Arc::clone(slot), floats };
        let summands = member.collective.gather(member.part, Arc::new(own));
        let summands = summands.map_err(Error::OtherPart)?;
        if self.held[0].is_empty() {
            allow_access(stream.context(), &summands)?;
        }
        memory.add(stream, &summands, (member.part, sum))?;
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
    /// Queues the launches that add all summands. One launch is enough for a few summands in host
    /// memory.
    fn add(
        &mut self,
        stream: &Stream,
        summands: &[Arc<dyn QueuedRows>],
        (own, sum): (usize, &SumPlace),
    ) -> Result<(), Error> {
        let (mut params, mut is_received) = (sum.params, false);
        for (part, rows) in summands.iter().enumerate() {
            let x = if part == own {
                sum.x
            } else {
                let summand = Summand::of(rows, stream.context())?;
                stream.wait(&summand.slot.written)?;
                match &summand.slot.place {
                    Place::Host(values) => self.address_of(&summand.slot, values, stream)?,
                    Place::Device(values) => {
                        // The next summand takes the place of one that was received.
                        if is_received && let Some(so_far) = params.take() {
                            self.sum_kernel.queue(stream, so_far.launch(), &so_far)?;
                        }
                        is_received = true;
                        let range = 0..summand.floats;
                        self.received.copy_from_device(stream, 0, values, range)?;
                        self.received.address()
                    }
                }
            };
            if let Some(so_far) = params.add(x) {
                self.sum_kernel.queue(stream, so_far.launch(), &so_far)?;
            }
        }
        Ok(self.sum_kernel.queue(stream, params.launch(), &params)?)
    }

    /// The address of a slot of another part for this device.
    fn address_of(
        &mut self,
        slot: &Arc<Slot>,
        values: &MappedBuffer<f32>,
        stream: &Stream,
    ) -> Result<Address, Error> {
        let known = self.others.iter().find(|(other, _)| Arc::ptr_eq(other, slot));
        if let Some((_, address)) = known {
            return Ok(*address);
        }
        let address = values.address_on(stream.context())?;
        self.others.push((Arc::clone(slot), address));
        Ok(address)
    }
}

impl Slot {
    /// The address for kernels of the part that writes.
    fn address(&self) -> Address {
        match &self.place {
            Place::Host(values) => values.device_address(),
            Place::Device(values) => values.address(),
        }
    }
}

/// The summands of a stage that launches may write to slots in turn: an even number of those that
/// are small, that only a sum reads, and that are written after the sum before. Until then, other
/// parts may read the slot.
fn direct_summands(
    graph: &Graph,
    stage: &Stage,
    shape: &StepShape,
    read_once: &HashSet<ValueId>,
) -> Vec<ValueId> {
    let (mut written, mut summands) = (HashSet::new(), Vec::new());
    for op in &graph.ops()[stage.ops.clone()] {
        if let Op::AllReduce { x, .. } = op {
            let value = graph.value(*x);
            let floats = shape.rows_of(value.rows) * value.width;
            let is_small = (1..=MAX_HOST_FLOATS).contains(&floats);
            if is_small && written.contains(x) && read_once.contains(x) {
                summands.push(*x);
            }
            written.clear();
        }
        written.extend(op.outputs());
    }
    summands.truncate(summands.len() / 2 * 2);
    summands
}

/// The summands that no op but the sum reads, and that no caller receives.
fn read_once(graph: &Graph) -> HashSet<ValueId> {
    let mut readers: HashMap<ValueId, usize> = HashMap::from([(graph.output(), 1)]);
    for id in graph.ops().iter().flat_map(Op::inputs) {
        *readers.entry(id).or_default() += 1;
    }
    let summands = graph.ops().iter().filter_map(|op| match op {
        Op::AllReduce { x, .. } => Some(*x),
        _ => None,
    });
    summands.filter(|x| readers.get(x) == Some(&1)).collect()
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

#[cfg(test)]
mod tests {
    use rf_graph::{GraphBuilder, Weight};

    use super::*;

    fn shape(tokens: usize) -> StepShape {
        StepShape {
            tokens,
            spans: 1,
            outputs: 1,
            shortest_span: tokens,
            longest_span: tokens,
            context: 256,
            has_positions: false,
        }
    }

    #[test]
    fn launches_write_summands_only_after_the_sum_before_and_in_turn() {
        const WIDTH: usize = 64;
        let mut g = GraphBuilder::new();
        let table = g.weight(Weight::f32("table", 1, WIDTH, vec![0.0; WIDTH]));
        let x = g.embed(table, 1.0);
        let (first, early) = (g.scale(x, 2.0), g.scale(x, 3.0));
        let y = g.all_reduce(first);
        let z = g.all_reduce(early);
        let second = g.mul(y, z);
        let y = g.all_reduce(second);
        let read_twice = g.scale(y, 2.0);
        let z = g.all_reduce(read_twice);
        let third = g.mul(z, read_twice);
        let y = g.all_reduce(third);
        let fourth = g.scale(y, 2.0);
        let y = g.all_reduce(fourth);
        let odd = g.scale(y, 2.0);
        let y = g.all_reduce(odd);
        let out = g.select_rows(y);
        let graph = g.finish(out).0;
        let [stage] = graph.stages().try_into().unwrap();
        let direct = |tokens| direct_summands(&graph, &stage, &shape(tokens), &read_once(&graph));
        assert_eq!(direct(1), [first, second, third, fourth]);
        assert_eq!(direct(MAX_HOST_FLOATS / WIDTH).len(), 4);
        assert!(direct(MAX_HOST_FLOATS / WIDTH + 1).is_empty());
    }
}
