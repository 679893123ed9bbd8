//! A launch: workgroups over threads, initial registers, counters.

use std::{iter, mem, thread};

use super::options::{Counters, Options, Random};
use super::program::Program;
use super::residency::{Aside, Residency, Task, Wait};
use super::share::Lds;
use super::slot::NO_SLOT;
use super::wave::{FloatMode, LANES, SCRATCH_BUFFER, Wave};
use super::workgroup::{Running, Workgroup, WorkgroupOutcome};
use crate::check::Checks;
use crate::check::global::{GlobalShadow, WorkgroupClock};
use crate::check::race::LdsShadow;
use crate::cost::traffic::Traffic;
use crate::fault::{Fault, FaultKind};
use crate::isa::ProcessorFamily;
use crate::isa::instruction::register;
use crate::{Allocation, Grid, Hint, Kernel, LoadedCode, Memory, Ranges, UserSgpr};

/// The shape of a launch and where its arguments are.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The grid.
    pub grid: Grid,
    /// The address of the arguments in memory: see [`Kernel::kernarg_segment`] and
    /// [`Memory::allocate_arguments`].
    pub arguments: u64,
}

/// Runs a kernel. To run one several times, decode it once with [`Program::new`].
///
/// # Errors
///
/// The first fault that a wave met, or the reason why the launch is not possible.
pub fn dispatch(
    memory: &Memory,
    code: &LoadedCode,
    kernel: &Kernel,
    launch: &Launch,
    options: &Options,
) -> Result<Counters, Fault> {
    Program::new(code, kernel)?.run(memory, launch, options)
}

impl Program {
    /// Runs the kernel.
    ///
    /// # Errors
    ///
    /// The first fault that a wave met, or the reason why the launch is not possible.
    pub fn run(
        &self,
        memory: &Memory,
        launch: &Launch,
        options: &Options,
    ) -> Result<Counters, Fault> {
        let ranges = memory.accessible();
        self.check_launch(launch, &ranges)?;
        let order = order(launch, options.seed);
        let shared = Shared {
            residency: Residency::new(order, options.resident_workgroups),
            shadow: options.checks.global_races.then(|| {
                let sizes = ranges.allocations().map(Allocation::bytes);
                GlobalShadow::new(sizes, self.arch.family() == ProcessorFamily::Rdna4)
            }),
        };
        let threads = match options.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let threads = threads.min(shared.residency.workgroups());
        let work = || self.work(&ranges, launch, options, &shared);
        // This thread is one of them.
        let results: Vec<_> = thread::scope(|scope| {
            let handles: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let first = work();
            let others = handles.into_iter().map(|handle| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            iter::once(first).chain(others).collect()
        });
        let mut counters = Counters::default();
        for result in results {
            counters.add(&result?);
        }
        if options.count_each {
            counters.each = self.in_listing_order(&counters.by_slot);
        }
        if let Some(traffic) = counters.traffic.take() {
            counters.accesses = self.in_listing_order(&traffic.accesses);
            counters.memory_bytes = traffic.memory_bytes();
            counters.group_bytes = traffic.group_bytes();
        }
        Ok(counters)
    }

    fn in_listing_order<T: Copy + Default>(&self, by_slot: &[T]) -> Vec<T> {
        let mut slots: Vec<_> = (0..self.slots.len()).collect();
        slots.sort_by_key(|&slot| self.slots[slot].offset);
        slots.into_iter().map(|slot| by_slot.get(slot).copied().unwrap_or_default()).collect()
    }

    /// Runs workgroups until none is left.
    fn work(
        &self,
        ranges: &Ranges,
        launch: &Launch,
        options: &Options,
        shared: &Shared,
    ) -> Result<Counters, Fault> {
        let checks = options.checks;
        let by_slot = if options.count_each { vec![0; self.slots.len()] } else { Vec::new() };
        let traffic = options.count_each.then(|| Box::new(Traffic::new(self.slots.len())));
        let mut group = Workgroup {
            program: self,
            options,
            checks,
            ranges,
            hint: Hint::default(),
            lds: lds(checks),
            counters: Counters { by_slot, traffic, ..Counters::default() },
            id: [0; 3],
            shadow: shared.shadow.as_ref(),
            clock: WorkgroupClock::default(),
            raced: None,
            holes: Vec::new(),
            changed: false,
            hazards: self.hazards(checks),
            random: Random::new(options.seed),
        };
        let residency = &shared.residency;
        let [columns, rows, _] = launch.grid.workgroups;
        let lds_bytes = self.kernel.lds_bytes + launch.grid.dynamic_lds_bytes;
        let mut spare = Vec::new();
        while let Some(task) = residency.next(&mut group.random) {
            let version = residency.version();
            let (mut waves, waited) = match task {
                Task::Start(number) => {
                    group.id = [number % columns, number / columns % rows, number / columns / rows];
                    group.lds.reset(lds_bytes as usize);
                    group.clock = WorkgroupClock::new(number);
                    group.raced = None;
                    let waves = self.waves(launch, group.id, checks, mem::take(&mut spare));
                    group.counters.waves += waves.len() as u64;
                    (waves, false)
                }
                Task::Continue(aside) => (group.take_up(aside.state), true),
                Task::Stuck { first, resident, left } => {
                    let wait = first.wait.unwrap_or(Wait { wave: 0, slot: NO_SLOT });
                    group.id = first.state.id;
                    let problem = FaultKind::Residency { resident, left }.into();
                    return Err(group.fault(&problem, wait.slot, wait.wave));
                }
            };
            if let Some(traffic) = &mut group.counters.traffic {
                traffic.next_workgroup();
            }
            match group.run(&mut waves, waited) {
                Ok((WorkgroupOutcome::Ended, changed)) => {
                    residency.leave(None, changed);
                    spare = waves;
                }
                Ok((WorkgroupOutcome::Waits(wait), changed)) => {
                    residency.leave(Some(group.put_aside(waves, wait, version)), changed);
                }
                Err(fault) => {
                    residency.fail();
                    return Err(fault);
                }
            }
        }
        Ok(group.counters)
    }

    /// The waves of a workgroup in their initial state, instead of those that ended.
    fn waves(
        &self,
        launch: &Launch,
        id: [u32; 3],
        checks: Checks,
        mut ended: Vec<Running>,
    ) -> Vec<Running> {
        let [width, height, depth] = launch.grid.workgroup_size;
        let threads = width * height * depth;
        let kernel = &self.kernel;
        let mode = FloatMode {
            bits: kernel.float_mode,
            clamp_nan: kernel.dx10_clamp || self.arch.family() == ProcessorFamily::Rdna4,
            ieee: kernel.ieee_mode,
        };
        (0..threads.div_ceil(LANES as u32))
            .map(|number| {
                let mut running = if let Some(mut running) = ended.pop() {
                    running.reset(self.entry, mode);
                    running
                } else {
                    let scratch_bytes = kernel.scratch_bytes as usize;
                    let wave = Wave::new(mode, scratch_bytes, self.vector_registers);
                    Running::new(wave, self, checks)
                };
                self.initial_scalars(&mut running, launch, id, number);
                let first = number * LANES as u32;
                let lanes = (threads - first).min(LANES as u32);
                running.wave.sgpr[usize::from(register::EXEC)] = u32::MAX >> (32 - lanes);
                self.initial_vectors(&mut running, first, lanes, launch.grid.workgroup_size);
                running
            })
            .collect()
    }

    /// The position of each thread of a wave whose first one has the number `first`.
    fn initial_vectors(&self, running: &mut Running, first: u32, lanes: u32, size: [u32; 3]) {
        let [width, height, _] = size;
        // Since RDNA 3 one register holds the whole position.
        let is_packed = self.arch.family() != ProcessorFamily::Rdna2;
        let registers = if is_packed { 1 } else { self.kernel.thread_id_dimensions as usize % 4 };
        let (mut x, mut y, mut z) = (first % width, first / width % height, first / width / height);
        for lane in 0..lanes as usize {
            let values = if is_packed { [x | y << 10 | z << 20, 0, 0] } else { [x, y, z] };
            for (register, value) in running.wave.vgpr.iter_mut().zip(values).take(registers) {
                register[lane] = value;
            }
            x += 1;
            if x == width {
                (x, y) = (0, y + 1);
            }
            if y == height {
                (y, z) = (0, z + 1);
            }
        }
        if let Some(written) = &mut running.written {
            (0..registers).for_each(|register| written.set_vector(register));
        }
    }

    fn initial_scalars(&self, running: &mut Running, launch: &Launch, id: [u32; 3], number: u32) {
        let kernel = &self.kernel;
        let mut next = 0;
        let mut put = |running: &mut Running, value: u32| {
            running.wave.sgpr[next] = value;
            if let Some(written) = &mut running.written {
                written.set_scalar(next);
            }
            next += 1;
        };
        for user in &kernel.user_sgprs {
            let value = match user {
                UserSgpr::KernargPtr => launch.arguments,
                UserSgpr::PrivateSegmentBuffer => SCRATCH_BUFFER,
                UserSgpr::PrivateSegmentSize => kernel.scratch_bytes.into(),
                // No kernel of ours reads the others; an address of zero faults.
                _ => 0,
            };
            for at in 0..user.registers() {
                let part = if at < 2 { (value >> (at * 32)) as u32 } else { 0 };
                put(running, part);
            }
        }
        while next < kernel.num_user_sgprs as usize {
            running.wave.sgpr[next] = 0;
            next += 1;
        }
        if self.arch.family() == ProcessorFamily::Rdna4 {
            // In trap registers: x in ttmp9, y and z in the halves of ttmp7.
            running.wave.sgpr[108 + 9] = id[0];
            running.wave.sgpr[108 + 7] = id[1] & 0xffff | id[2] << 16;
            running.wave.sgpr[108 + 8] = number << 25;
            return;
        }
        let mut put = |running: &mut Running, value: u32| {
            running.wave.sgpr[next] = value;
            if let Some(written) = &mut running.written {
                written.set_scalar(next);
            }
            next += 1;
        };
        for (enabled, value) in kernel.workgroup_id.into_iter().zip(id) {
            if enabled {
                put(running, value);
            }
        }
        if kernel.workgroup_info {
            put(running, number);
        }
        if kernel.has_scratch && self.arch.family() == ProcessorFamily::Rdna2 {
            put(running, 0);
        }
    }
}

/// The state that the threads of a launch share.
#[derive(Debug)]
struct Shared {
    residency: Residency<Suspended>,
    shadow: Option<GlobalShadow>,
}

/// The state of a workgroup that is put aside.
#[derive(Debug)]
struct Suspended {
    id: [u32; 3],
    waves: Vec<Running>,
    lds: Lds,
    clock: WorkgroupClock,
    raced: Option<FaultKind>,
}

impl Workgroup<'_> {
    fn put_aside(
        &mut self,
        waves: Vec<Running>,
        wait: Option<Wait>,
        version: u64,
    ) -> Aside<Suspended> {
        let state = Suspended {
            id: self.id,
            waves,
            lds: mem::replace(&mut self.lds, lds(self.checks)),
            clock: mem::take(&mut self.clock),
            raced: self.raced.take(),
        };
        Aside { state, wait, version }
    }

    fn take_up(&mut self, aside: Suspended) -> Vec<Running> {
        self.id = aside.id;
        self.lds = aside.lds;
        self.clock = aside.clock;
        self.raced = aside.raced;
        aside.waves
    }
}

/// LDS with the checks.
fn lds(checks: Checks) -> Lds {
    Lds::new(checks.lds_races.then(LdsShadow::default), checks)
}

/// The numbers of the workgroups in the order in which they start.
fn order(launch: &Launch, seed: u64) -> Vec<u32> {
    let mut order: Vec<_> = (0..launch.grid.workgroups.iter().product()).collect();
    let mut random = Random::new(seed);
    if seed != 0 {
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at + 1));
        }
    }
    order
}
