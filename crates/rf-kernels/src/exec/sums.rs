//! Sums over the parts of a divided program ([`Op::AllReduce`]), each of which is on another
//! device.
//!
//! A step of a part has launches up to a sum, the sum, and further launches. The host queues all of
//! them and does not wait for a device:
//!
//! 1. The last launch before the sum writes the summand of this part to a slot. An event or a
//!    signal follows.
//! 2. The threads of all parts meet and exchange their slots ([`Collective`]). A part that fails or
//!    does not come ends the step of all.
//! 3. One kernel waits for the others and adds all summands in the order of the parts, so every
//!    part has the same bits. It also adds the residual and, for few rows, writes the norm that
//!    follows.
//!
//! Slots are in device memory if kernels of all parts read the memory of all others ([`Access`]).
//! On AMD, that is for few values, where the latency counts; the runtime copies more values,
//! because it knows the fastest way. Without that access, slots of few values are in pinned host
//! memory, which kernels of all devices access.
//!
//! A *signal* is a number in the device memory of a slot. A small kernel writes it after the
//! summand, and the kernel of the sum polls it. That is faster than an event: the runtime starts a
//! kernel only some time after the event for which its stream waits. Before a thread queues the
//! sum, those of all parts have queued their signals, so a kernel polls only for what devices do
//! without the host. Few workgroups poll ([`MAX_SIGNALLED_FLOATS`]), so others find room on the
//! device. AMD does not promise that a running kernel sees what another device writes to device
//! memory, so there events are the default.
//!
//! A part uses two slots in turn. When it writes to a slot again, its stream has waited for the
//! other parts at the sum between. These came there after their reads of the slot. Recorded
//! launches write to the same slot in every step ([`Sums::direct`]). An even number of them takes
//! turns across steps, too. All other summands are copied to slots that take turns at run time.
//!
//! [`Collective`]: rf_graph::Collective

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rf_graph::{BackendError, Graph, Member, Op, Stage, ValueId};
use rf_hip::{Context, DeviceBuffer, Event, MappedBuffer, Platform, Stream};

use super::program::DirectSlot;
use super::step::StepShape;
use super::summand::{Place, Summand, SummandSlot};
use crate::error::Error;
use crate::launch::{Gpu, LoadedKernel};
use crate::params::{Address, CopyRowsParams, PartSummand, SignalParams, SumPartsParams};

/// The most values of a slot in host memory.
const MAX_HOST_FLOATS: usize = 16 << 10;

/// The most values that kernels of AMD read from a slot in the memory of another device: a bus may
/// connect the devices. Devices of NVIDIA that allow it are connected directly, or by a switch.
const MAX_PEER_FLOATS: usize = 256 << 10;

/// The most values of a sum whose kernel polls, in 128 workgroups.
const MAX_SIGNALLED_FLOATS: usize = 64 << 10;

/// Values of a test of the access to another device.
const TESTED_FLOATS: usize = 4 << 10;

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
    access: Access,
    /// The number of the last signal.
    signals: u32,
    /// The slot of the next summand that is copied.
    next: usize,
    /// The summands of the last two sums, whose slots this device may still read.
    held: [Vec<Arc<Summand>>; 2],
}

/// The knowledge of a part about the access of devices to the memory of each other. The summands
/// of the first sum name the devices, and each part tests its access to the others. Those of a
/// later sum state what each part found.
#[derive(Debug, Default)]
struct Access {
    /// True if kernels of this part read the memory of all others.
    is_own: Option<bool>,
    /// True if kernels of every part read the memory of all others.
    is_mutual: Option<bool>,
}

struct Memory {
    /// The summands that no op but a sum reads.
    read_once: HashSet<ValueId>,
    /// The slots that the launches before sums write: two in host memory, two in device memory.
    direct: [Arc<SummandSlot>; 4],
    /// The slots of summands that are copied.
    host: [Arc<SummandSlot>; 2],
    device: [Arc<SummandSlot>; 2],
    /// The summand of another part.
    received: DeviceBuffer<f32>,
    /// The most values that kernels read from a slot of another device.
    most_near: usize,
    /// The most values of a sum whose kernel polls.
    most_signalled: usize,
    copy_kernel: LoadedKernel,
    signal_kernel: LoadedKernel,
    sum_kernel: LoadedKernel,
    /// The slots of other parts in host memory, with their addresses for this device.
    others: Vec<(Arc<SummandSlot>, Address)>,
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

/// Values of the largest sum.
fn most_floats(graph: &Graph, max_tokens: usize) -> usize {
    let width = |op: &Op| match op {
        Op::AllReduce { x, .. } => graph.value(*x).width,
        _ => 0,
    };
    max_tokens * graph.ops().iter().map(width).max().unwrap_or(0)
}

/// The most values that kernels of a device read from a slot of another one, of `most` in a sum.
fn most_near(context: &Context, most: usize) -> usize {
    match context.info().platform {
        Platform::Amd => most.min(MAX_PEER_FLOATS),
        Platform::Nvidia => most,
    }
}

/// Bytes of device memory for sums of at most so many values.
fn device_bytes(context: &Context, most: usize) -> usize {
    if most == 0 {
        return 0;
    }
    let direct = SummandSlot::bytes_on_device(most_near(context, most));
    2 * (direct + SummandSlot::bytes_on_device(most)) + most * size_of::<f32>()
}

impl Sums {
    /// The memory of a program's sums.
    pub(super) fn new(gpu: &Gpu, graph: &Graph, max_tokens: usize) -> Result<Self, Error> {
        let (context, most) = (gpu.context(), most_floats(graph, max_tokens));
        if most == 0 {
            return Ok(Self::default());
        }
        let host = || SummandSlot::on_host(context, most.min(MAX_HOST_FLOATS));
        let device = |floats| SummandSlot::on_device(context, floats);
        let most_near = most_near(context, most);
        let memory = Memory {
            read_once: read_once(graph),
            direct: [host()?, host()?, device(most_near)?, device(most_near)?],
            host: [host()?, host()?],
            device: [device(most)?, device(most)?],
            received: DeviceBuffer::new(context, most)?,
            most_near,
            most_signalled: if gpu.signals() { MAX_SIGNALLED_FLOATS } else { 0 },
            copy_kernel: gpu.kernel(CopyRowsParams::default().launch().kernel)?,
            signal_kernel: gpu.kernel(SignalParams::launch().kernel)?,
            sum_kernel: gpu.kernel(SumPartsParams::default().launch().kernel)?,
            others: Vec::new(),
        };
        Ok(Self { memory: Some(memory), ..Self::default() })
    }

    /// Bytes of device memory of a program's sums.
    pub(super) fn bytes_for(context: &Context, graph: &Graph, max_tokens: usize) -> usize {
        device_bytes(context, most_floats(graph, max_tokens))
    }

    /// Bytes of device memory.
    pub(super) fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| {
            let received = &memory.received;
            device_bytes(received.context(), received.len())
        })
    }

    /// See [`Executor::join`](rf_graph::Executor::join).
    pub(super) fn join(&mut self, member: Member) {
        self.member = Some(member);
    }

    /// Returns true if later steps may use other slots than a step that is recorded now.
    pub(super) fn are_new(&self) -> bool {
        self.memory.is_some() && self.access.is_mutual.is_none()
    }

    /// The summands of a stage that the launches before sums write to slots, which take turns.
    pub(super) fn direct(
        &self,
        graph: &Graph,
        stage: &Stage,
        shape: &StepShape,
    ) -> HashMap<ValueId, DirectSlot> {
        let Some(memory) = &self.memory else { return HashMap::new() };
        let (slots, most) = match self.access.is_mutual {
            Some(true) => (2..4, memory.most_near),
            _ => (0..2, MAX_HOST_FLOATS),
        };
        let slots =
            slots.map(|index| DirectSlot { index, address: memory.direct[index].address() });
        let summands = direct_summands(graph, stage, shape, (&memory.read_once, most));
        summands.into_iter().zip(slots.cycle()).collect()
    }

    /// Queues a sum.
    pub(super) fn queue(&mut self, stream: &Stream, sum: &SumPlace) -> Result<(), Error> {
        let (Some(member), Some(memory)) = (&self.member, &mut self.memory) else {
            let what = "a part of a model without the others".to_owned();
            return Err(Error::Unsupported { what });
        };
        let floats = sum.params.count as usize;
        let is_mutual = self.access.is_mutual == Some(true);
        let slot = if let Some(slot) = sum.slot {
            &memory.direct[slot]
        } else {
            let is_on_device = is_mutual || floats > MAX_HOST_FLOATS;
            let slots = if is_on_device { &memory.device } else { &memory.host };
            let slot = &slots[self.next];
            let params = CopyRowsParams::of_floats(sum.x, slot.address(), floats);
            memory.copy_kernel.queue(stream, params.launch(), &params)?;
            self.next = 1 - self.next;
            slot
        };
        let signal = match &slot.place {
            Place::Device { signal, .. } if is_mutual && floats <= memory.most_signalled => {
                self.signals = self.signals.wrapping_add(1);
                let (signal, number) = (signal.address(), self.signals);
                let params = SignalParams { signal, number, reserved: 0 };
                memory.signal_kernel.queue_starting(
                    stream,
                    SignalParams::launch(),
                    &params,
                    true,
                )?;
                Some(self.signals)
            }
            _ => {
                stream.record(&slot.written)?;
                None
            }
        };
        let reads_others = self.access.is_own;
        let own = Summand { slot: Arc::clone(slot), floats, signal, reads_others };
        let summands = member.collective.gather(member.part, Arc::new(own));
        let summands = summands.map_err(Error::OtherPart)?;
        let summands = summands.iter().map(|rows| Summand::of(rows, stream.context()));
        let summands = summands.collect::<Result<Vec<_>, _>>()?;
        if self.access.is_own.is_none() {
            self.access.is_own = Some(memory.reads_others(stream, &summands, member.part)?);
        } else if self.access.is_mutual.is_none() {
            let found = summands.iter().map(|summand| summand.reads_others);
            let found = found.collect::<Option<Vec<_>>>();
            self.access.is_mutual = found.map(|found| !found.contains(&false));
        }
        memory.add(stream, &summands, (member.part, sum), &self.access)?;
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
    /// Queues the launches that add all summands: one for a few summands, unless the runtime copies
    /// them.
    fn add(
        &mut self,
        stream: &Stream,
        summands: &[Arc<Summand>],
        (own, sum): (usize, &SumPlace),
        access: &Access,
    ) -> Result<(), Error> {
        // The launch before is the own signal, and no event follows.
        let starts_early = summands.iter().all(|summand| summand.signal.is_some());
        let (mut params, mut is_received) = (sum.params, false);
        for (part, summand) in summands.iter().enumerate() {
            let mut added = PartSummand::of(sum.x);
            if part != own {
                if summand.signal.is_none() {
                    stream.wait(&summand.slot.written)?;
                }
                let can_read = access.is_mutual == Some(true) && summand.floats <= self.most_near;
                added.x = match &summand.slot.place {
                    Place::Host(values) => self.address_of(&summand.slot, values, stream)?,
                    Place::Device { values, signal } if can_read => {
                        if let Some(number) = summand.signal {
                            (added.signal, added.number) = (signal.address(), number);
                        }
                        values.address()
                    }
                    Place::Device { values, .. } => {
                        // The next summand takes the place of one that was received.
                        if is_received && let Some(so_far) = params.take() {
                            self.queue_sum(stream, &so_far, starts_early)?;
                        }
                        is_received = true;
                        let range = 0..summand.floats;
                        self.received.copy_from_device(stream, 0, values, range)?;
                        self.received.address()
                    }
                };
            }
            if let Some(so_far) = params.add(added) {
                self.queue_sum(stream, &so_far, starts_early)?;
            }
        }
        self.queue_sum(stream, &params, starts_early)
    }

    fn queue_sum(
        &self,
        stream: &Stream,
        params: &SumPartsParams,
        starts_early: bool,
    ) -> Result<(), Error> {
        Ok(self.sum_kernel.queue_starting(stream, params.launch(), params, starts_early)?)
    }

    /// Allows direct copies and reads from the memory of the other parts. Returns true if kernels
    /// read from all of them. Where no path connects two devices, the runtime copies through host
    /// memory.
    fn reads_others(
        &self,
        stream: &Stream,
        summands: &[Arc<Summand>],
        own: usize,
    ) -> Result<bool, Error> {
        let mut reads_all = true;
        for (_, other) in summands.iter().enumerate().filter(|(part, _)| *part != own) {
            reads_all &= self.reads_other(stream, other.context())?;
        }
        Ok(reads_all)
    }

    /// Allows kernels to read the memory of another device, and tests that they read what it wrote:
    /// some machines allow the access, but it yields other values.
    fn reads_other(&self, stream: &Stream, other: &Context) -> Result<bool, Error> {
        let (context, ordinal) = (stream.context(), other.info().ordinal);
        if let Err(error) = context.enable_peer_access(other) {
            tracing::debug!("no direct access to the memory of GPU {ordinal}: {error}");
            return Ok(false);
        }
        let (of_other, written) = (Stream::new(other)?, Event::new(other, false)?);
        let from = DeviceBuffer::<f32>::new(other, TESTED_FLOATS)?;
        let to = DeviceBuffer::<f32>::zeroed(context, TESTED_FLOATS)?;
        // In the second turn, a cache may have what was read in the first.
        for turn in 0..2 {
            let values = (0..TESTED_FLOATS).map(|i| (turn * TESTED_FLOATS + i + 1) as f32);
            let values: Vec<f32> = values.collect();
            from.copy_from_slice(&of_other, 0, &values)?;
            of_other.record(&written)?;
            stream.wait(&written)?;
            let copy = CopyRowsParams::of_floats(from.address(), to.address(), TESTED_FLOATS);
            self.copy_kernel.queue(stream, copy.launch(), &copy)?;
            if to.to_vec(stream)? != values {
                tracing::warn!(
                    "kernels of GPU {} read other values than GPU {ordinal} wrote: sums over both \
                     go through host memory, which is slower. See whether the IOMMU of this \
                     machine is in pass-through mode",
                    context.info().ordinal
                );
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The address of a slot of another part for this device.
    fn address_of(
        &mut self,
        slot: &Arc<SummandSlot>,
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

/// The summands of a stage that launches may write to slots in turn: an even number of those that
/// are small, that only a sum reads, and that are written after the sum before. Until then, other
/// parts may read the slot.
fn direct_summands(
    graph: &Graph,
    stage: &Stage,
    shape: &StepShape,
    (read_once, most): (&HashSet<ValueId>, usize),
) -> Vec<ValueId> {
    let (mut written, mut summands) = (HashSet::new(), Vec::new());
    for op in &graph.ops()[stage.ops.clone()] {
        if let Op::AllReduce { x, .. } = op {
            let value = graph.value(*x);
            let floats = shape.rows_of(value.rows) * value.width;
            let is_small = (1..=most).contains(&floats);
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
        let limits = (&read_once(&graph), 10 * WIDTH);
        let direct = |tokens| direct_summands(&graph, &stage, &shape(tokens), limits);
        assert_eq!(direct(1), [first, second, third, fourth]);
        assert_eq!(direct(10).len(), 4);
        assert!(direct(11).is_empty());
    }
}
