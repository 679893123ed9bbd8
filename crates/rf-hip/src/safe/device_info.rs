//! The properties of devices.

use std::env;
use std::ffi::c_int;

use crate::result::{Api, device as raw};
use crate::{Error, Platform};

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
    /// True if the device shares its memory with the CPU.
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
    /// True if [`DeviceBuffer::on_stream`](crate::DeviceBuffer::on_stream) works. False on AMD
    /// unless `ROCFORGE_HIP_MEMORY_POOLS=1`, because ROCm's pools fail or return zeroed memory on
    /// some Radeon cards.
    pub memory_pools: bool,
}

impl DeviceInfo {
    pub(super) fn read(api: &Api, ordinal: usize, device: c_int) -> Result<Self, Error> {
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
            memory_pools: read(attributes.memory_pools) != 0 && pools_work(api.platform),
        })
    }
}

/// Returns true if the pools of a platform are trusted.
fn pools_work(platform: Platform) -> bool {
    platform == Platform::Nvidia
        || env::var_os("ROCFORGE_HIP_MEMORY_POOLS").is_some_and(|value| value == "1")
}
