//! Devices and their properties.

use std::{ffi::c_int, sync::Arc};

use crate::{
    Context, Error, Platform, SyncMode,
    result::{self, Api, device as raw},
};

/// A GPU that is not necessarily in use. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Device {
    api: Arc<Api>,
    handle: c_int,
    info: Arc<DeviceInfo>,
}

/// The properties of a device as reported by its runtime; 0 where it reports nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The ordinal of the device, from 0.
    pub ordinal: usize,
    /// The vendor.
    pub platform: Platform,
    /// The marketing name.
    pub name: String,
    /// The code generation target: `gfx1100`, or `sm_90`.
    pub arch: String,
    /// The features in the name of the target, such as `sramecc+:xnack-`; usually empty.
    pub arch_features: String,
    /// The number of processors that the runtime reports: workgroup processors of two compute units
    /// each on RDNA, streaming multiprocessors on NVIDIA.
    pub compute_units: u32,
    /// The number of lanes in a wave: 32 or 64.
    pub wave_size: u32,
    /// The maximum number of threads in a workgroup.
    pub max_threads_per_workgroup: u32,
    /// The maximum number of threads resident on one of [`DeviceInfo::compute_units`].
    pub max_threads_per_compute_unit: u32,
    /// LDS available to a workgroup by default.
    pub lds_bytes_per_workgroup: u32,
    /// LDS available to a workgroup after
    /// [`Function::set_max_dynamic_lds_bytes`](crate::Function::set_max_dynamic_lds_bytes).
    pub lds_bytes_per_workgroup_opt_in: u32,
    /// LDS of one of [`DeviceInfo::compute_units`].
    pub lds_bytes_per_compute_unit: u32,
    /// The size of the device memory.
    pub total_memory_bytes: u64,
    /// Whether the device shares its memory with the CPU.
    pub integrated: bool,
    /// The PCI address: `0000:03:00.0`.
    pub pci_bus_id: String,
    /// The maximum clock of the processors.
    pub clock_khz: u32,
    /// The maximum clock of the memory.
    pub memory_clock_khz: u32,
    /// The width of the memory bus.
    pub memory_bus_bits: u32,
    /// The size of the L2 cache.
    pub l2_bytes: u64,
    /// Whether [`DeviceBuffer::on_stream`](crate::DeviceBuffer::on_stream) is supported.
    pub memory_pools: bool,
}

impl Device {
    pub(crate) fn open(api: Arc<Api>, ordinal: usize) -> Result<Self, Error> {
        let handle = raw::handle(&api, ordinal as c_int)?;
        let info = Arc::new(DeviceInfo::read(&api, ordinal, handle)?);
        Ok(Self { api, handle, info })
    }

    /// The properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Device memory in bytes: (free, total). The first call may take a second on NVIDIA, because
    /// the driver initialises the device.
    ///
    /// # Errors
    ///
    /// An error of the runtime calls.
    pub fn memory_info(&self) -> Result<(u64, u64), Error> {
        let context = result::context::retain(&self.api, self.handle)?;
        // SAFETY: retained above, released below.
        let current = unsafe { result::context::set_current(&self.api, self.handle, context) };
        let info = current.and_then(|()| result::context::memory_info(&self.api));
        // SAFETY: released once, and no object was created in it.
        unsafe { result::context::release(&self.api, self.handle) }?;
        info
    }

    /// A context on the device, with [`SyncMode::Sleep`].
    ///
    /// # Errors
    ///
    /// An error of the runtime calls.
    pub fn context(&self) -> Result<Context, Error> {
        self.context_with(SyncMode::Sleep)
    }

    /// A context on the device. A process has one context per device: use one mode for all calls,
    /// because the effect of a second mode depends on the runtime.
    ///
    /// # Errors
    ///
    /// An error of the runtime calls.
    pub fn context_with(&self, sync: SyncMode) -> Result<Context, Error> {
        Context::retain(Arc::clone(&self.api), self.handle, Arc::clone(&self.info), sync)
    }

    /// Whether kernels of this device can access the memory of `other` after
    /// [`Context::enable_peer_access`].
    ///
    /// # Errors
    ///
    /// An error of the runtime call; [`Error::MissingSymbol`] if the runtime lacks the function.
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
        // A device is usable even if it does not report an attribute.
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
}
