//! The state of the library: devices, objects, faults.

mod capture;
mod copy;
mod event;
mod graph;
mod launch;
mod module;
mod stream;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use rf_emu::{Memory, MemoryOptions};

use self::capture::Capture;
pub(crate) use self::copy::{CopyEnd, Transfer};
use self::event::EmulatedEvent;
use self::graph::WorkGraph;
use self::launch::Executor;
pub(crate) use self::launch::KernelLaunch;
use self::module::{LoadedModule, ModuleFunction};
use self::stream::Stream;
pub(crate) use self::stream::StreamId;
use crate::Status;
use crate::device::Properties;
use crate::faults::FaultPlan;
use crate::journal::{Journal, print};
use crate::settings::Settings;

/// The requirements of a call on the device, and its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing: it succeeds on a lost device.
    Query,
    /// It fails on a lost device.
    Work,
    /// It releases an object, also on a lost device, and then fails there.
    Release,
}

/// Everything behind the exported functions. One lock guards it.
#[derive(Debug)]
pub(crate) struct Runtime {
    settings: Settings,
    devices: Vec<EmulatedDevice>,
    faults: FaultPlan,
    journal: Journal,
    executor: Executor,
    next_handle: u64,
    streams: HashMap<u64, Stream>,
    events: HashMap<u64, EmulatedEvent>,
    modules: HashMap<u64, LoadedModule>,
    functions: HashMap<u64, ModuleFunction>,
    graphs: HashMap<u64, WorkGraph>,
    /// Executable graphs.
    execs: HashMap<u64, WorkGraph>,
    captures: HashMap<u64, Capture>,
    /// The start of the clock of events.
    started: Instant,
}

/// A device with its memory.
#[derive(Debug)]
pub(crate) struct EmulatedDevice {
    pub(crate) properties: Properties,
    pub(crate) memory: Arc<Memory>,
    /// The failure after which every call fails.
    lost: Option<Status>,
}

/// The distance between the first addresses of two devices.
const ADDRESSES_PER_DEVICE: u64 = 1 << 40;

impl Runtime {
    /// Creates the devices that the environment lists.
    ///
    /// # Errors
    ///
    /// A sentence that names the variable.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let settings = Settings::from_environment()?;
        let executor = Executor::new(&settings);
        let devices = (0u64..).zip(&settings.devices).map(|(ordinal, &arch)| {
            let properties = Properties::new(arch, ordinal as usize, settings.memory_bytes);
            let first = MemoryOptions::default().first_address;
            let options = MemoryOptions::default()
                .with_capacity_bytes(properties.memory_bytes)
                .with_first_address(first + ordinal * ADDRESSES_PER_DEVICE)
                .with_track_initialised(executor.tracks_initialised());
            EmulatedDevice { properties, memory: Arc::new(Memory::new(options)), lost: None }
        });
        Ok(Self {
            devices: devices.collect(),
            faults: settings.faults.plan()?,
            journal: Journal::open(settings.log.as_deref())?,
            executor,
            settings,
            // Small numbers are special streams.
            next_handle: 0x1000,
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            captures: HashMap::new(),
            started: Instant::now(),
        })
    }

    /// Runs a call of `function` with its injected fault, and logs it.
    pub(crate) fn call(
        &mut self,
        function: &'static str,
        device: usize,
        usage: Use,
        body: impl FnOnce(&mut Self) -> Result<(), Status>,
    ) -> Result<(), Status> {
        if function == "hipGetDeviceCount" {
            self.read_faults_again();
        }
        let injected = self.faults.next(function);
        let outcome = match injected {
            Some(status) => Err(status),
            None => self.run(device, usage, body),
        };
        if let Some(status) = injected.filter(|status| status.loses_device()) {
            self.lose(device, status);
        }
        if injected.is_some() && function == "hipStreamEndCapture" {
            // A capture ends, whether its end fails or not.
            self.discard_captures();
        }
        if self.journal.is_open() {
            let status = outcome.map_or_else(Status::number, |()| 0);
            let (call, live) = (self.faults.calls(function), self.live_objects());
            self.journal.add(function, call, status, live);
        }
        outcome
    }

    fn run(
        &mut self,
        device: usize,
        usage: Use,
        body: impl FnOnce(&mut Self) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let lost = self.devices.get(device).and_then(|device| device.lost);
        match (usage, lost) {
            (Use::Query, _) | (_, None) => body(self),
            (Use::Work, Some(status)) => Err(status),
            (Use::Release, Some(status)) => body(self).and(Err(status)),
        }
    }

    /// Starts a new run of a test: a changed file of faults applies, and lost devices are back.
    fn read_faults_again(&mut self) {
        if !matches!(self.settings.faults, crate::settings::Faults::File(_)) {
            return;
        }
        match self.settings.faults.plan() {
            Ok(plan) => self.faults = plan,
            Err(message) => print(&message),
        }
        self.devices.iter_mut().for_each(|device| device.lost = None);
    }

    pub(crate) fn devices(&self) -> &[EmulatedDevice] {
        &self.devices
    }

    pub(crate) fn device(&self, ordinal: i32) -> Result<&EmulatedDevice, Status> {
        let device = usize::try_from(ordinal).ok().and_then(|ordinal| self.devices.get(ordinal));
        device.ok_or(Status::INVALID_DEVICE)
    }

    /// Returns true if every call on the device fails.
    fn is_lost(&self, device: usize) -> bool {
        self.devices.get(device).is_some_and(|device| device.lost.is_some())
    }

    fn lose(&mut self, device: usize, status: Status) {
        if let Some(device) = self.devices.get_mut(device) {
            device.lost.get_or_insert(status);
        }
    }

    /// A number that was never given out as a handle.
    fn new_handle(&mut self) -> u64 {
        self.next_handle += 0x10;
        self.next_handle
    }

    /// The number of objects that the program has not released.
    fn live_objects(&self) -> usize {
        let allocations = self.devices.iter().map(|device| {
            let ranges = device.memory.ranges();
            // Host memory is in the memory of every device; count it once.
            let counted = ranges.allocations().filter(|allocation| match allocation.kind() {
                rf_emu::AllocationKind::Device => true,
                rf_emu::AllocationKind::Host => device.properties.ordinal == 0,
                _ => false,
            });
            counted.count()
        });
        allocations.sum::<usize>()
            + self.streams.len()
            + self.events.len()
            + self.modules.len()
            + self.graphs.len()
            + self.execs.len()
    }

    // ---- memory

    /// Allocates device memory; an allocation of no bytes is null.
    pub(crate) fn allocate(&mut self, device: usize, bytes: u64) -> Result<u64, Status> {
        if let Some(status) = self.faults.next_allocation(bytes) {
            if status.loses_device() {
                self.lose(device, status);
            }
            return Err(status);
        }
        if bytes == 0 {
            return Ok(0);
        }
        self.memory(device)?.allocate(bytes).map_err(|_| Status::OUT_OF_MEMORY)
    }

    /// Allocates host memory that all devices access.
    pub(crate) fn allocate_host(&mut self, bytes: u64) -> Result<u64, Status> {
        if bytes == 0 {
            return Ok(0);
        }
        let (first, others) = self.devices.split_first().ok_or(Status::NO_DEVICE)?;
        let address = first.memory.allocate_host(bytes).map_err(|_| Status::OUT_OF_MEMORY)?;
        for device in others {
            device.memory.share_host(&first.memory, address).map_err(|_| Status::INVALID_VALUE)?;
        }
        Ok(address)
    }

    /// Frees device or host memory; null is fine.
    pub(crate) fn free(&mut self, address: u64) -> Result<(), Status> {
        if address == 0 {
            return Ok(());
        }
        let mut outcome = Err(Status::INVALID_VALUE);
        for device in &self.devices {
            match device.memory.free(address) {
                Ok(()) => outcome = Ok(()),
                Err(rf_emu::Error::NotAllocated { freed: true, .. }) if outcome.is_err() => {
                    print(&format!("{address:#x} is freed a second time"));
                }
                Err(_) => {}
            }
        }
        outcome
    }

    /// Free and total memory of a device, as a call of `hipMemGetInfo` reports them.
    pub(crate) fn memory_info(&self, device: usize) -> Result<(u64, u64), Status> {
        let memory = self.memory(device)?;
        let total = memory.options().capacity_bytes;
        let free = total.saturating_sub(memory.used_bytes());
        Ok((free.saturating_add(self.faults.reported_too_much()), total))
    }

    fn memory(&self, device: usize) -> Result<&Arc<Memory>, Status> {
        self.devices.get(device).map(|device| &device.memory).ok_or(Status::INVALID_DEVICE)
    }
}
