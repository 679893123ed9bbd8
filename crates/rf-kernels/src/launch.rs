//! Kernel launches: functions by name, lists and recordings of launches, and captured graphs.
//!
//! Only this module turns addresses into memory accesses. An executor records launches with
//! addresses of its own buffers, and drops a recording before the buffers.

#![expect(unsafe_code, reason = "kernels access memory by address")]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytemuck::Pod;
use rf_hip::{Context, Event, Function, LaunchConfig, Module, Stream};
use twox_hash::XxHash3_128;

use crate::error::Error;
use crate::objects::{CodeObjects, CodeOrigin, Variant};
use crate::params::Launch;
use crate::tuning::Tuning;

/// A device with its kernels. The first use of a kernel loads its translation unit.
pub(crate) struct Gpu {
    context: Context,
    code: Mutex<LoadedCode>,
    kernels: Mutex<HashMap<(&'static str, Option<Variant>), LoadedKernel>>,
    /// Compute units over which work is divided.
    compute_units: usize,
    /// See [`GpuOptions::signals`](crate::GpuOptions::signals).
    signals: bool,
}

/// A loaded kernel.
#[derive(Clone)]
pub(crate) struct LoadedKernel {
    pub(crate) function: Function,
    /// True if the kernel waits for earlier kernels itself, so that it can start before these end.
    waits: bool,
    /// The LDS that a kernel that waits declares.
    static_lds_bytes: u32,
    /// True after the first launch.
    launched: Arc<AtomicBool>,
}

/// The code for the device, and the modules of its translation units.
struct LoadedCode {
    objects: CodeObjects,
    modules: HashMap<(usize, Option<Variant>), Module>,
}

impl Gpu {
    pub(crate) fn new(
        context: Context,
        objects: CodeObjects,
        compute_units: usize,
        signals: bool,
    ) -> Self {
        let code = Mutex::new(LoadedCode { objects, modules: HashMap::new() });
        Self { context, code, kernels: Mutex::default(), compute_units, signals }
    }

    /// The origin of the code in use.
    pub(crate) fn choice(&self) -> CodeOrigin {
        self.code.lock().unwrap_or_else(PoisonError::into_inner).objects.choice().clone()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn compute_units(&self) -> usize {
        self.compute_units
    }

    /// Returns true if kernels of parts poll for signals of each other.
    pub(crate) fn signals(&self) -> bool {
        self.signals
    }

    /// A kernel by its symbol.
    pub(crate) fn kernel(&self, name: &'static str) -> Result<LoadedKernel, Error> {
        self.kernel_of(name, None)
    }

    /// A kernel in a variant of its unit, which is compiled if it is new.
    pub(crate) fn kernel_of(
        &self,
        name: &'static str,
        variant: Option<Variant>,
    ) -> Result<LoadedKernel, Error> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(&(name, variant)) {
            return Ok(kernel.clone());
        }
        let kernel = self.find(name, variant)?;
        kernels.insert((name, variant), kernel.clone());
        Ok(kernel)
    }

    /// Returns true if this machine can compile variants of units.
    pub(crate) fn compiles(&self) -> bool {
        self.code.lock().unwrap_or_else(PoisonError::into_inner).objects.compiles()
    }

    /// The kernels that were launched, by name.
    pub(crate) fn used_kernels(&self) -> Vec<&'static str> {
        let kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let used = kernels.iter().filter(|(_, kernel)| kernel.launched.load(Ordering::Relaxed));
        let mut names: Vec<_> = used.map(|((name, _), _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// A digest of the translation unit of a kernel; `None` without one.
    pub(crate) fn code_digest(&self, name: &str) -> Option<u128> {
        let code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        let unit = code.objects.unit_of(name)?;
        Some(XxHash3_128::oneshot(&code.objects.unit(unit).ok()?))
    }

    /// The dynamic LDS that spreads the workgroups of a launch: see [`spreading_lds_bytes`].
    fn spreading_lds_bytes(&self, kernel: &LoadedKernel, grid: [u32; 3]) -> u32 {
        let info = self.context.info();
        let (units, groups) = (self.compute_units as u32, grid.iter().product());
        let bytes = spreading_lds_bytes(info.lds_bytes_per_compute_unit, units, groups);
        bytes.min(info.lds_bytes_per_workgroup_opt_in).saturating_sub(kernel.static_lds_bytes)
    }

    fn find(&self, name: &'static str, variant: Option<Variant>) -> Result<LoadedKernel, Error> {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        let LoadedCode { objects, modules } = &mut *code;
        let unit = objects.unit_of(name).ok_or(Error::NoKernel { name })?;
        loop {
            if let Some(module) = modules.get(&(unit, variant)) {
                let (function, waits) = (module.function(name)?, objects.waits(unit, name));
                let static_lds_bytes = if waits { function.info()?.lds_bytes } else { 0 };
                let launched = Arc::default();
                return Ok(LoadedKernel { function, waits, static_lds_bytes, launched });
            }
            let loaded = match variant {
                Some(variant) => Module::load(&self.context, &objects.variant(unit, variant)?),
                None => Module::load(&self.context, &objects.unit(unit)?),
            };
            // Some drivers refuse code when its first kernel is looked up.
            match loaded.and_then(|module| module.function(name).map(|_| module)) {
                Ok(module) => {
                    modules.insert((unit, variant), module);
                }
                Err(error) if error.is_refused_code() && variant.is_none() => {
                    objects.replace(&error)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The LDS of a workgroup with which a compute unit with `unit_bytes` of it holds no more than an
/// equal share of the workgroups; 0 for fewer workgroups than half the units.
///
/// Workgroups that start while those of an earlier kernel end fill the first units that have room,
/// and others have none: of 344 workgroups on 132 units, 86 units can hold four each. A few small
/// ones are better off together, since the next kernel starts on the other units.
fn spreading_lds_bytes(unit_bytes: u32, units: u32, groups: u32) -> u32 {
    /// The runtime adds this to the LDS of a workgroup.
    const RESERVED_BYTES: u32 = 1024;
    if groups < units.div_ceil(2) {
        return 0;
    }
    let too_many = groups.div_ceil(units) + 1;
    (unit_bytes / too_many + 1).saturating_sub(RESERVED_BYTES).next_multiple_of(128)
}

/// Launches in order, before their kernels are loaded.
#[derive(Default)]
pub(crate) struct LaunchList {
    launches: Vec<(usize, Launch, Box<dyn Params>)>,
    op: usize,
}

impl LaunchList {
    /// Starts an op: later launches belong to it.
    pub(crate) fn begin_op(&mut self, op: usize) {
        self.op = op;
    }

    /// Adds a launch, unless its grid is empty.
    pub(crate) fn push<P: Pod + Send>(&mut self, launch: Launch, params: P) {
        if !launch.grid.contains(&0) {
            self.launches.push((self.op, launch, Box::new(params)));
        }
    }

    /// Inserts a launch, which belongs to the op of the launch before it.
    pub(crate) fn insert<P: Pod + Send>(&mut self, at: usize, launch: Launch, params: P) {
        let op = at.checked_sub(1).and_then(|before| self.launches.get(before)).map(|(op, ..)| *op);
        self.launches.insert(at, (op.unwrap_or(0), launch, Box::new(params)));
    }

    /// Number of launches.
    pub(crate) fn len(&self) -> usize {
        self.launches.len()
    }

    /// Number of launches of earlier ops than one.
    pub(crate) fn len_before(&self, op: usize) -> usize {
        self.launches.partition_point(|(of, ..)| *of < op)
    }

    /// The op and the kernel of each launch.
    #[cfg(test)]
    pub(crate) fn kernels(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.launches.iter().map(|(op, launch, _)| (*op, launch.kernel))
    }
}

/// Launches of loaded kernels, in order. A recording can be queued any number of times.
pub(crate) struct Recording {
    launches: Vec<Recorded>,
}

struct Recorded {
    /// Index of the op in the graph.
    op: usize,
    name: &'static str,
    kernel: LoadedKernel,
    /// True if the kernel may start before earlier ones end.
    starts_early: bool,
    config: LaunchConfig,
    params: Box<dyn Params>,
}

/// Parameters of a kernel of any type.
trait Params: Send {
    fn queue(&self, stream: &Stream, to: &Recorded) -> Result<(), rf_hip::Error>;
}

impl<P: Pod + Send> Params for P {
    fn queue(&self, stream: &Stream, to: &Recorded) -> Result<(), rf_hip::Error> {
        to.kernel.start(stream, to.config, self, to.starts_early)
    }
}

impl LoadedKernel {
    /// Queues a launch without dynamic LDS that starts when all work before it is done.
    pub(crate) fn queue<P: Pod>(
        &self,
        stream: &Stream,
        launch: Launch,
        params: &P,
    ) -> Result<(), rf_hip::Error> {
        self.queue_starting(stream, launch, params, false)
    }

    /// Queues a launch without dynamic LDS. It may start early if the kernel waits for the work
    /// before it. Then the launch before it must be of a kernel, too.
    pub(crate) fn queue_starting<P: Pod>(
        &self,
        stream: &Stream,
        launch: Launch,
        params: &P,
        may_start_early: bool,
    ) -> Result<(), rf_hip::Error> {
        let Launch { grid, block, lds_bytes, .. } = launch;
        let starts_early = may_start_early && self.waits;
        self.start(stream, LaunchConfig { grid, block, lds_bytes }, params, starts_early)
    }

    fn start<P: Pod>(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        params: &P,
        starts_early: bool,
    ) -> Result<(), rf_hip::Error> {
        // SAFETY: structs of `params` have the layout of the kernel parameters (checked against the
        // code objects). The launches of an executor contain only addresses of buffers that it
        // owns, or that it holds until the step is done (`HandedRows`, `Sums`), and it waits before
        // it drops them. It writes memory of the host that kernels read (`StepMemory::write`) and
        // reads what they write (`Results`, `HandedRows`) only when the device is done.
        let in_order = || unsafe { stream.launch(&self.function, config, params) };
        // SAFETY: as above; a kernel that waits does so before it accesses more than weights and
        // the arrays of the batch, which are complete when the first op starts
        // (`starting_in_order`).
        let early = || unsafe { stream.launch_early(&self.function, config, params) };
        self.launched.store(true, Ordering::Relaxed);
        if starts_early { early() } else { in_order() }
    }
}

impl Recording {
    /// Loads the embedded kernels of a list.
    pub(crate) fn load(gpu: &Gpu, list: LaunchList) -> Result<Self, Error> {
        Self::load_tuned(gpu, &Tuning::NONE, list)
    }

    /// Loads the kernels of a list, in the variants of a tuning.
    pub(crate) fn load_tuned(gpu: &Gpu, tuning: &Tuning, list: LaunchList) -> Result<Self, Error> {
        let launches = list.launches.into_iter().map(|(op, launch, params)| {
            let Launch { kernel: name, grid, block, lds_bytes } = launch;
            let kernel = gpu.kernel_of(name, tuning.variant_of(name))?;
            let starts_early = kernel.waits;
            let spreading = if starts_early { gpu.spreading_lds_bytes(&kernel, grid) } else { 0 };
            let lds_bytes = lds_bytes.max(spreading);
            if lds_bytes > 0 {
                kernel.function.set_max_dynamic_lds_bytes(lds_bytes)?;
            }
            let config = LaunchConfig { grid, block, lds_bytes };
            Ok(Recorded { op, name, kernel, starts_early, config, params })
        });
        Ok(Self { launches: launches.collect::<Result<_, Error>>()? })
    }

    /// Makes the first launch start only when all earlier kernels are done.
    pub(crate) fn starting_in_order(mut self) -> Self {
        if let Some(first) = self.launches.first_mut() {
            first.starts_early = false;
        }
        self
    }

    /// Queues all launches.
    pub(crate) fn queue(&self, stream: &Stream) -> Result<(), rf_hip::Error> {
        self.queue_range(0..self.len(), stream)
    }

    /// Queues some launches.
    pub(crate) fn queue_range(
        &self,
        range: Range<usize>,
        stream: &Stream,
    ) -> Result<(), rf_hip::Error> {
        self.launches[range].iter().try_for_each(|launch| launch.params.queue(stream, launch))
    }

    /// Queues all launches with an event before each and one after the last, so the number of
    /// events is one more than that of launches. `before` queues other work before the event with
    /// this number. `queued` receives the duration of each launch call.
    pub(crate) fn queue_between(
        &self,
        stream: &Stream,
        events: &[Event],
        before: &mut dyn FnMut(usize) -> Result<(), Error>,
        queued: &mut dyn FnMut(Range<Instant>),
    ) -> Result<(), Error> {
        for (i, (launch, event)) in self.launches.iter().zip(events).enumerate() {
            before(i)?;
            stream.record(event)?;
            let start = Instant::now();
            launch.params.queue(stream, launch)?;
            queued(start..Instant::now());
        }
        if let Some(last) = events.get(self.launches.len()) {
            before(self.launches.len())?;
            stream.record(last)?;
        }
        Ok(())
    }

    /// The op and the kernel of each launch.
    pub(crate) fn ops(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.launches.iter().map(|launch| (launch.op, launch.name))
    }

    /// Number of launches.
    pub(crate) fn len(&self) -> usize {
        self.launches.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workgroups_are_spread_over_all_units() {
        let (unit_bytes, units) = (228 << 10, 132);
        assert_eq!(spreading_lds_bytes(unit_bytes, units, 65), 0);
        for groups in [66, 128, 132, 133, 256, 344, 448, 1500] {
            let taken = spreading_lds_bytes(unit_bytes, units, groups) + 1024;
            assert_eq!(unit_bytes / taken, groups.div_ceil(units), "{groups} workgroups");
        }
    }
}
