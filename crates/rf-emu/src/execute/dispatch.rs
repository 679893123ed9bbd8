//! A launch: workgroups over threads, initial registers, counters.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use super::{
    options::{Counters, Options, Random},
    program::{NO_SLOT, Program},
    share::Lds,
    wave::{FloatMode, LANES, Wave},
    workgroup::{Group, Running},
};
use crate::{
    Grid, Hint, Kernel, LoadedCode, Memory, Ranges, UserSgpr,
    check::{
        Checks,
        global::{Clock, GlobalShadow},
        race::LdsShadow,
    },
    fault::{Fault, FaultKind},
    isa::{Family, instruction::register},
};

/// The LDS that a workgroup can have.
const MAX_LDS_BYTES: u32 = 64 << 10;

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
        self.check_launch(launch)?;
        let ranges = memory.ranges();
        let order = order(launch, options.seed);
        let shared = Shared {
            order,
            next: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            shadow: options.checks.global_races.then(GlobalShadow::new),
        };
        let threads = match options.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let threads = threads.min(shared.order.len());
        let work = || self.work(&ranges, launch, options, &shared);
        let results: Vec<_> = if threads <= 1 {
            vec![work()]
        } else {
            thread::scope(|scope| {
                let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                handles
                    .into_iter()
                    .map(|handle| {
                        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    })
                    .collect()
            })
        };
        let mut counters = Counters::default();
        for result in results {
            counters.add(&result?);
        }
        if options.count_each {
            counters.each = self.in_listing_order(&counters.by_slot);
        }
        Ok(counters)
    }

    fn in_listing_order(&self, by_slot: &[u64]) -> Vec<u64> {
        let mut slots: Vec<_> = (0..self.slots.len()).collect();
        slots.sort_by_key(|&slot| self.slots[slot].offset);
        slots.into_iter().map(|slot| by_slot.get(slot).copied().unwrap_or(0)).collect()
    }

    fn check_launch(&self, launch: &Launch) -> Result<(), Fault> {
        let Grid { workgroups, workgroup_size, dynamic_lds_bytes } = launch.grid;
        let refuse = |reason: String| Err(self.fault(FaultKind::Launch(reason)));
        let size = workgroup_size.iter().try_fold(1u32, |size, &side| size.checked_mul(side));
        let kernel = &self.kernel;
        match size {
            None | Some(0) => return refuse("a workgroup has no threads".to_owned()),
            Some(size) if size > kernel.max_workgroup_size || size > 1024 => {
                let most = kernel.max_workgroup_size;
                return refuse(format!("{size} threads in a workgroup, the kernel allows {most}"));
            }
            _ => {}
        }
        if let Some(required) = kernel.required_workgroup_size
            && required != workgroup_size
        {
            return refuse(format!(
                "workgroups of {workgroup_size:?} threads, the kernel requires {required:?}"
            ));
        }
        if workgroups.contains(&0) {
            return refuse("the grid is empty".to_owned());
        }
        let count = workgroups.iter().try_fold(1u32, |count, &side| count.checked_mul(side));
        if count.is_none() {
            return refuse(format!("a grid of {workgroups:?} workgroups"));
        }
        let lds_bytes = u64::from(kernel.lds_bytes) + u64::from(dynamic_lds_bytes);
        if lds_bytes > MAX_LDS_BYTES.into() {
            return refuse(format!("{lds_bytes} bytes of LDS, a workgroup has {MAX_LDS_BYTES}"));
        }
        if self.entry == NO_SLOT {
            return refuse("the kernel has no code".to_owned());
        }
        Ok(())
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
        let lds_shadow = checks.lds_races.then(LdsShadow::default);
        let lds = Lds::new(lds_shadow, checks.alignment);
        let by_slot = if options.count_each { vec![0; self.slots.len()] } else { Vec::new() };
        let mut group = Group {
            program: self,
            options,
            checks,
            ranges,
            hint: Hint::default(),
            lds,
            counters: Counters { by_slot, ..Counters::default() },
            id: [0; 3],
            shadow: shared.shadow.as_ref(),
            clock: Clock::default(),
            raced: None,
            random: Random::new(options.seed),
        };
        let [columns, rows, _] = launch.grid.workgroups;
        let lds_bytes = self.kernel.lds_bytes + launch.grid.dynamic_lds_bytes;
        while !shared.failed.load(Ordering::Relaxed) {
            let next = shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(&number) = shared.order.get(next) else { break };
            group.id = [number % columns, number / columns % rows, number / columns / rows];
            group.lds.reset(lds_bytes as usize);
            group.clock = Clock::new(number);
            group.raced = None;
            let mut waves = self.waves(launch, group.id, checks);
            group.counters.waves += waves.len() as u64;
            if let Err(fault) = group.run(&mut waves) {
                shared.failed.store(true, Ordering::Relaxed);
                return Err(fault);
            }
        }
        Ok(group.counters)
    }

    /// The waves of a workgroup in their initial state.
    fn waves(&self, launch: &Launch, id: [u32; 3], checks: Checks) -> Vec<Running> {
        let [width, height, depth] = launch.grid.workgroup_size;
        let threads = width * height * depth;
        let kernel = &self.kernel;
        let mode = FloatMode {
            bits: kernel.float_mode,
            clamp_nan: kernel.dx10_clamp || self.arch.family() == Family::Rdna4,
        };
        (0..threads.div_ceil(LANES as u32))
            .map(|number| {
                let mut running =
                    Running::new(Wave::new(mode, kernel.scratch_bytes as usize), self, checks);
                self.initial_scalars(&mut running, launch, id, number);
                let first = number * LANES as u32;
                let lanes = (threads - first).min(LANES as u32);
                running.wave.sgpr[usize::from(register::EXEC)] = u32::MAX >> (32 - lanes);
                for lane in 0..lanes {
                    let thread = first + lane;
                    let position =
                        [thread % width, thread / width % height, thread / width / height];
                    self.initial_vectors(&mut running, lane as usize, position);
                }
                running
            })
            .collect()
    }

    fn initial_vectors(&self, running: &mut Running, lane: usize, position: [u32; 3]) {
        let [x, y, z] = position;
        // Since RDNA 3 one register holds the whole position.
        let packed = [x | y << 10 | z << 20];
        let registers: &[u32] = match self.arch.family() {
            Family::Rdna2 => &position[..self.kernel.thread_id_dimensions as usize % 4],
            _ => &packed,
        };
        for (register, &value) in registers.iter().enumerate() {
            running.wave.vgpr[register][lane] = value;
            if let Some(written) = &mut running.written {
                written.set_vector(register);
            }
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
        if self.arch.family() == Family::Rdna4 {
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
        if kernel.has_scratch && self.arch.family() == Family::Rdna2 {
            put(running, 0);
        }
    }
}

/// The state that the threads of a launch share.
#[derive(Debug)]
struct Shared {
    /// The numbers of the workgroups in the order in which they start.
    order: Vec<u32>,
    /// The place of the next one.
    next: AtomicUsize,
    failed: AtomicBool,
    shadow: Option<GlobalShadow>,
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
