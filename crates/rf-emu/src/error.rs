//! Errors of code objects and of memory management.

use crate::isa::Arch;

/// Why a code object cannot be read or loaded, or memory cannot be managed.
///
/// Faults of running kernels have types of their own: see [`Fault`](crate::Fault).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not an ELF file or are damaged.
    #[error("not a readable ELF file: {0}")]
    Elf(#[from] object::read::Error),
    /// The file holds code for another kind of processor.
    #[error("code for processor {machine} (ELF machine number), not for an AMD GPU (224)")]
    OtherProcessor {
        /// `e_machine` of the ELF header.
        machine: u16,
    },
    /// The file holds code for an AMD GPU that is not supported.
    #[error("code for an unsupported GPU (EF_AMDGPU_MACH {mach:#x}): compile it for RDNA 2 to 4")]
    UnsupportedGpu {
        /// The number of the GPU in the ELF header.
        mach: u32,
    },
    /// The file contradicts itself.
    #[error("damaged code object: {reason}")]
    Damaged {
        /// The contradiction.
        reason: String,
    },
    /// The kernel metadata cannot be decoded.
    #[error("damaged kernel metadata: {0}")]
    Metadata(#[from] rmp_serde::decode::Error),
    /// The file uses a feature that is not supported.
    #[error("unsupported code object: {reason}")]
    Unsupported {
        /// The feature.
        reason: String,
    },
    /// No kernel has this name.
    #[error("no kernel '{name}' in the code object, which has {}", listed(.available))]
    KernelNotFound {
        /// The requested name.
        name: String,
        /// The names of the kernels.
        available: Vec<String>,
    },
    /// A bundle has no code for the device.
    #[error("the bundle has no code for {device}, only for {}", listed(.available))]
    NoCodeForDevice {
        /// The architecture of the device.
        device: Arch,
        /// The targets of the bundle.
        available: Vec<String>,
    },
    /// The arguments do not fit the kernel.
    #[error("arguments of kernel '{kernel}': {reason}")]
    Arguments {
        /// The name of the kernel.
        kernel: String,
        /// The mismatch.
        reason: String,
    },
    /// The device has too little free memory.
    #[error("out of device memory: {requested_bytes} bytes requested, {free_bytes} free")]
    OutOfMemory {
        /// The size of the allocation.
        requested_bytes: u64,
        /// The remaining memory.
        free_bytes: u64,
    },
    /// The address is not the start of an allocation.
    #[error("no allocation starts at {address:#x}{}", if *.freed { ", it was freed already" } else { "" })]
    NotAllocated {
        /// The address.
        address: u64,
        /// True if an allocation at this address was freed before.
        freed: bool,
    },
}

/// At most eight names.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0 => "none".to_owned(),
        count if count > SHOWN => {
            format!("{} and {} more", names[..SHOWN].join(", "), count - SHOWN)
        }
        _ => names.join(", "),
    }
}
