//! Device memory, and host memory that the device accesses.

mod device;
mod mapped;
mod pinned;

pub use device::DeviceBuffer;
pub use mapped::MappedBuffer;
pub use pinned::PinnedBuffer;

use std::ffi::c_void;

use super::report_drop;
use crate::result::memory as raw;
use crate::{Context, Error};

/// The size of `len` elements, if addressable: at most `isize::MAX`, the limit of slices.
fn size_bytes<T>(len: usize) -> Result<usize, Error> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
    bytes.ok_or(Error::TooLarge { len, element_bytes: size_of::<T>() })
}

/// Returns true if `start..start + count` lies within `len` elements.
fn check_range(start: usize, count: usize, len: usize) -> Result<(), Error> {
    match start.checked_add(count) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Error::OutOfBounds { start, end: start.saturating_add(count), len }),
    }
}

/// Page-locked host memory; null if empty.
#[derive(Debug)]
struct HostMemory {
    context: Context,
    pointer: *mut c_void,
}

// SAFETY: plain memory that any thread may use and free; the owner synchronises the accesses.
unsafe impl Send for HostMemory {}
// SAFETY: as above; a shared reference exposes only the address.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates `bytes` of zeros: the runtime leaves the contents unspecified, and reading them
    /// must be defined.
    fn zeroed(context: &Context, bytes: usize, mapped: bool) -> Result<Self, Error> {
        let api = context.enter()?;
        if bytes == 0 {
            return Ok(Self { context: context.clone(), pointer: std::ptr::null_mut() });
        }
        let pointer = raw::allocate_host(api, bytes, mapped)?;
        // SAFETY: just allocated with this size.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self { context: context.clone(), pointer })
    }

    /// The first element of type `T`. The memory is page-aligned, which suffices for any `T`.
    fn start<T>(&self) -> *mut T {
        if self.pointer.is_null() { std::ptr::dangling_mut() } else { self.pointer.cast() }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if self.pointer.is_null() {
            return;
        }
        let outcome = self.context.enter().and_then(|api| {
            // SAFETY: allocated by `zeroed`, freed once; the owner waited for the device.
            unsafe { raw::free_host(api, self.pointer) }
        });
        report_drop("host memory", outcome);
    }
}
