//! Devices and what they are.

use std::{ffi::c_int, sync::Arc};

use crate::{
    Context, Error, Platform, SyncMode,
    result::{self, Api, device as raw},
};

/// A GPU, not in use yet; cloning is cheap.
#[derive(Debug, Clone)]
pub struct Device {
    api: Arc<Api>,
    handle: c_int,
    info: Arc<DeviceInfo>,
}

/// What a device is, as its runtime states it. Figures that it does not state are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The device's number, from 0.
    pub ordinal: usize,
    /// Whose it is.
    pub platform: Platform,
    /// Marketing name.
    pub name: String,
    /// Code generation target: `gfx1100`, or `sm_90`.
    pub arch: String,
    /// What else the target's name says, such as `sramecc+:xnack-`; usually empty.
    pub arch_features: String,
    /// Processors as the runtime counts them. On RDNA these are work-group processors of two compute
    /// units each; on NVIDIA, streaming multiprocessors.
    pub compute_units: u32,
    /// Lanes of a wave: 32 or 64.
    pub wave_size: u32,
    /// Largest workgroup, in threads.
    pub max_threads_per_workgroup: u32,
    /// Threads resident on one of [`DeviceInfo::compute_units`].
    pub max_threads_per_compute_unit: u32,
    /// LDS a workgroup may use without asking.
    pub lds_bytes_per_workgroup: u32,
    /// LDS a workgroup may use after [`Function::set_max_dynamic_lds_bytes`](crate::Function).
    pub lds_bytes_per_workgroup_opt_in: u32,
    /// LDS of one of [`DeviceInfo::compute_units`].
    pub lds_bytes_per_compute_unit: u32,
    /// Device memory.
    pub total_memory_bytes: u64,
    /// Shares its memory with the CPU.
    pub integrated: bool,
    /// Where it is plugged in: `0000:03:00.0`.
    pub pci_bus_id: String,
    /// Highest clock of the processors.
    pub clock_khz: u32,
    /// Highest clock of the memory.
    pub memory_clock_khz: u32,
    /// Width of the path to memory.
    pub memory_bus_bits: u32,
    /// Second-level cache.
    pub l2_bytes: u64,
    /// Whether [`DeviceBuffer::on_stream`](crate::DeviceBuffer) works.
    pub memory_pools: bool,
}

impl Device {
    pub(crate) fn open(api: Arc<Api>, ordinal: usize) -> Result<Self, Error> {
        let handle = raw::handle(&api, ordinal as c_int)?;
        let info = Arc::new(DeviceInfo::read(&api, ordinal, handle)?);
        Ok(Self { api, handle, info })
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Device memory in bytes: (free, total). The first question may take a second on NVIDIA, whose
    /// driver starts the device for it.
    ///
    /// # Errors
    ///
    /// What the runtime's calls return.
    pub fn memory_info(&self) -> Result<(u64, u64), Error> {
        let context = result::context::retain(&self.api, self.handle)?;
        // SAFETY: retained above, released below.
        let current = unsafe { result::context::set_current(&self.api, self.handle, context) };
        let info = current.and_then(|()| result::context::memory_info(&self.api));
        // SAFETY: once, and nothing was made in it.
        unsafe { result::context::release(&self.api, self.handle) }?;
        info
    }

    /// Starts using the device; waiting threads sleep.
    ///
    /// # Errors
    ///
    /// What the runtime's calls return.
    pub fn context(&self) -> Result<Context, Error> {
        self.context_with(SyncMode::Sleep)
    }

    /// Starts using the device. There is one context per device and process, so use one mode: what
    /// holds after two were asked for is the runtime's affair.
    ///
    /// # Errors
    ///
    /// What the runtime's calls return.
    pub fn context_with(&self, sync: SyncMode) -> Result<Context, Error> {
        Context::retain(Arc::clone(&self.api), self.handle, Arc::clone(&self.info), sync)
    }

    /// Whether kernels of this device can use the memory of `other` directly, once allowed by
    /// [`Context::enable_peer_access`].
    ///
    /// # Errors
    ///
    /// What the runtime's call returns; [`Error::MissingSymbol`] where it has none.
    pub fn can_access_peer(&self, other: &Self) -> Result<bool, Error> {
        if !Arc::ptr_eq(&self.api, &other.api) {
            return Ok(false);
        }
        raw::can_access_peer(&self.api, self.handle, other.handle)
    }
}

impl DeviceInfo {
    fn read(api: &Api, ordinal: usize, device: c_int) -> Result<Self, Error> {
        let attributes = raw::attributes(api);
        // A device that does not state a figure is usable all the same.
        let read = |number| {
            let value = raw::attribute(api, device, number);
            value.ok().and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
        };
        let arch = raw::arch(api, device)?;
        let (arch, features) = arch.split_once(':').unwrap_or((&arch, ""));
        let lds_bytes_per_workgroup = read(attributes.lds_bytes_per_workgroup);
        Ok(Self {
            ordinal,
            platform: api.platform,
            name: raw::name(api, device).unwrap_or_default(),
            arch: arch.to_owned(),
            arch_features: features.to_owned(),
            compute_units: read(attributes.compute_units),
            wave_size: read(attributes.wave_size),
            max_threads_per_workgroup: read(attributes.max_threads_per_workgroup),
            max_threads_per_compute_unit: read(attributes.max_threads_per_compute_unit),
            lds_bytes_per_workgroup,
            lds_bytes_per_workgroup_opt_in: read(attributes.lds_bytes_per_workgroup_opt_in)
                .max(lds_bytes_per_workgroup),
            lds_bytes_per_compute_unit: read(attributes.lds_bytes_per_compute_unit),
            total_memory_bytes: raw::total_memory(api, device)?,
            integrated: read(attributes.integrated) != 0,
            pci_bus_id: raw::pci_bus_id(api, device).unwrap_or_default(),
            clock_khz: read(attributes.clock_khz),
            memory_clock_khz: read(attributes.memory_clock_khz),
            memory_bus_bits: read(attributes.memory_bus_bits),
            l2_bytes: u64::from(read(attributes.l2_bytes)),
            memory_pools: read(attributes.memory_pools) != 0,
        })
    }

    /// Highest memory bandwidth by clock and bus width: clock × width × 2 transfers per cycle, the
    /// convention of `hipDeviceProp_t` and CUDA's device queries. 0 where either is not stated;
    /// GDDR6 moves more per cycle than the convention has it, so treat it as an order of magnitude.
    pub fn nominal_bandwidth_bytes_per_s(&self) -> u64 {
        u64::from(self.memory_clock_khz) * 1000 * 2 * u64::from(self.memory_bus_bits) / 8
    }
}
