//! Cores and memory according to Windows.

#![expect(unsafe_code, reason = "two functions of the system, which fill structures of the caller")]

use std::{mem, ptr};

use windows_sys::Win32::System::SystemInformation::{
    GetLogicalProcessorInformation, GlobalMemoryStatusEx, MEMORYSTATUSEX, RelationProcessorCore,
    SYSTEM_LOGICAL_PROCESSOR_INFORMATION,
};

/// Number of physical cores of this process' processor group, which has at most 64 processors.
pub(super) fn physical_cores() -> Option<usize> {
    const ENTRY_BYTES: usize = size_of::<SYSTEM_LOGICAL_PROCESSOR_INFORMATION>();
    let mut bytes = 0;
    // SAFETY: with a length of 0 the function writes the required length only.
    unsafe { GetLogicalProcessorInformation(ptr::null_mut(), &raw mut bytes) };
    // SAFETY: a structure of integers, for which zero is a value.
    let empty: SYSTEM_LOGICAL_PROCESSOR_INFORMATION = unsafe { mem::zeroed() };
    let mut entries = vec![empty; (bytes as usize).div_ceil(ENTRY_BYTES)];
    // SAFETY: the buffer has at least `bytes` bytes.
    let filled = unsafe { GetLogicalProcessorInformation(entries.as_mut_ptr(), &raw mut bytes) };
    if filled == 0 {
        return None;
    }
    let entries = entries.iter().take(bytes as usize / ENTRY_BYTES);
    let cores = entries.filter(|entry| entry.Relationship == RelationProcessorCore).count();
    (cores > 0).then_some(cores)
}

/// Physical memory available without swapping.
pub(super) fn available_memory_bytes() -> Option<u64> {
    let mut status = MEMORYSTATUSEX {
        dwLength: size_of::<MEMORYSTATUSEX>() as u32,
        ..MEMORYSTATUSEX::default()
    };
    // SAFETY: the structure has the length that it names.
    let is_filled = unsafe { GlobalMemoryStatusEx(&raw mut status) } != 0;
    is_filled.then_some(status.ullAvailPhys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_and_memory() {
        assert!(physical_cores().is_some_and(|cores| cores > 0));
        assert!(available_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
