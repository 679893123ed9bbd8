//! Devices: count, names, attributes.

use std::ffi::{c_char, c_int};

use super::{Api, text_of};
use crate::sys::constants::{
    self, ARCH_NAME_BYTES, ARCH_NAME_OFFSET_R0000, ARCH_NAME_OFFSET_R0600, Attributes,
    PROPERTIES_BYTES,
};
use crate::{Error, Platform};

pub(crate) fn count(api: &Api) -> Result<usize, Error> {
    let mut count = 0;
    match call!(api, device_count(&raw mut count)) {
        Err(error) if error.status() == Some(constants::NO_DEVICE) => Ok(0),
        outcome => outcome.map(|()| usize::try_from(count).unwrap_or(0)),
    }
}

/// The device's handle, a small integer in both APIs.
pub(crate) fn handle(api: &Api, ordinal: c_int) -> Result<c_int, Error> {
    let mut device = 0;
    call!(api, device(&raw mut device, ordinal))?;
    Ok(device)
}

pub(crate) fn name(api: &Api, device: c_int) -> Result<String, Error> {
    let mut buffer = [0u8; 256];
    let pointer = buffer.as_mut_ptr().cast::<c_char>();
    call!(api, device_name(pointer, buffer.len() as c_int, device))?;
    Ok(text_of(&buffer))
}

pub(crate) fn pci_bus_id(api: &Api, device: c_int) -> Result<String, Error> {
    let mut buffer = [0u8; 64];
    let pointer = buffer.as_mut_ptr().cast::<c_char>();
    call!(api, device_pci_bus_id(pointer, buffer.len() as c_int, device))?;
    Ok(text_of(&buffer))
}

pub(crate) fn total_memory(api: &Api, device: c_int) -> Result<u64, Error> {
    let mut bytes = 0;
    call!(api, device_total_memory(&raw mut bytes, device))?;
    Ok(bytes as u64)
}

pub(crate) fn attribute(api: &Api, device: c_int, attribute: c_int) -> Result<c_int, Error> {
    let mut value = 0;
    call!(api, device_attribute(&raw mut value, attribute, device))?;
    Ok(value)
}

/// The attributes of this platform.
pub(crate) fn attributes(api: &Api) -> &'static Attributes {
    match api.platform {
        Platform::Amd => &constants::AMD,
        Platform::Nvidia => &constants::NVIDIA,
    }
}

/// The architecture: `gfx1100`, `gfx90a:sramecc+:xnack-` or `sm_90`.
pub(crate) fn arch(api: &Api, device: c_int) -> Result<String, Error> {
    match api.platform {
        Platform::Amd => hip_arch(api, device),
        Platform::Nvidia => {
            let major = attribute(api, device, constants::NVIDIA.capability_major)?;
            let minor = attribute(api, device, constants::NVIDIA.capability_minor)?;
            Ok(format!("sm_{major}{minor}"))
        }
    }
}

/// Reads the name from the device properties. HIP 6 changed the layout of that structure, so none
/// is declared: the offset of the name depends on which function exists.
fn hip_arch(api: &Api, device: c_int) -> Result<String, Error> {
    let mut bytes = Box::new([0u64; PROPERTIES_BYTES / 8]);
    let pointer = bytes.as_mut_ptr().cast();
    let offset = if api.functions.hip_properties_r0600.pointer.is_some() {
        call!(api, hip_properties_r0600(pointer, device))?;
        ARCH_NAME_OFFSET_R0600
    } else {
        call!(api, hip_properties_r0000(pointer, device))?;
        ARCH_NAME_OFFSET_R0000
    };
    let bytes: &[u8] = bytemuck::cast_slice(&bytes[..]);
    Ok(text_of(&bytes[offset..offset + ARCH_NAME_BYTES]))
}

pub(crate) fn can_access_peer(api: &Api, device: c_int, peer: c_int) -> Result<bool, Error> {
    let mut can = 0;
    call!(api, device_can_access_peer(&raw mut can, device, peer))?;
    Ok(can != 0)
}
