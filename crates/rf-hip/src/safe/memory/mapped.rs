//! Host memory that kernels access directly.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;

use super::{HostMemory, size_bytes};
use crate::result::memory as raw;
use crate::{Context, Error};

/// `len` elements of coherent host memory that kernels can access; initially zero. Suits small
/// amounts of data, because every access of a kernel crosses the bus.
///
/// On the device only kernels access the memory, and a launch is unsafe: its caller guarantees that
/// the kernel does not write what the host reads. See [`Stream::launch`](crate::Stream::launch).
#[derive(Debug)]
pub struct MappedBuffer<T> {
    memory: HostMemory,
    device_address: u64,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> MappedBuffer<T> {
    /// Creates a buffer of zero bytes.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], or an error of the runtime calls; [`Error::is_unsupported`] if the
    /// runtime has no mapped memory.
    pub fn new(context: &Context, len: usize) -> Result<Self, Error> {
        let bytes = size_bytes::<T>(len)?;
        let memory = HostMemory::zeroed(context, bytes, true)?;
        let device_address = match bytes {
            0 => 0,
            // SAFETY: allocated as mapped, above.
            _ => unsafe { raw::host_device_address(context.enter()?, memory.pointer) }?,
        };
        Ok(Self { memory, device_address, len, element: PhantomData })
    }

    /// Reads one element with a volatile access, to poll a value that a kernel writes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`]
    pub fn read_volatile(&self, index: usize) -> Result<T, Error> {
        super::check_range(index, 1, self.len)?;
        let element = self.memory.start::<T>().wrapping_add(index);
        // SAFETY: in bounds, initialised, and any bytes are a `T`.
        Ok(unsafe { element.read_volatile() })
    }
}

impl<T> MappedBuffer<T> {
    /// The device address; 0 if the buffer is empty.
    pub fn device_address(&self) -> u64 {
        self.device_address
    }

    /// The address for kernels of another device; 0 if the buffer is empty.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`] for a device of another runtime, or an error of the runtime call.
    pub fn address_on(&self, context: &Context) -> Result<u64, Error> {
        if !self.context().shares_runtime(context) {
            return Err(Error::ContextMismatch { operation: "sharing mapped memory" });
        }
        if self.device_address == 0 {
            return Ok(0);
        }
        // SAFETY: allocated as mapped, and portable: every context of the runtime maps it.
        unsafe { raw::host_device_address(context.enter()?, self.memory.pointer) }
    }

    /// The context of the buffer.
    pub fn context(&self) -> &Context {
        &self.memory.context
    }
}

impl<T: Pod> Deref for MappedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised elements.
        unsafe { std::slice::from_raw_parts(self.memory.start(), self.len) }
    }
}

impl<T: Pod> DerefMut for MappedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` initialised elements, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start(), self.len) }
    }
}
