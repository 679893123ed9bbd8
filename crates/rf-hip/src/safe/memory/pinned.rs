//! Page-locked host memory for asynchronous copies.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;

use super::{HostMemory, size_bytes};
use crate::{Context, Error, Event, Stream};

/// `len` elements of page-locked host memory for asynchronous copies; initially zero.
///
/// The buffer tracks its copies. Reading it waits for a copy that writes it; writing to it and
/// dropping it wait for all copies. [`PinnedBuffer::wait`] waits explicitly and returns the error
/// of a failed copy, whereas [`Deref`] only logs it. After a failed copy the contents are
/// unspecified.
#[derive(Debug)]
pub struct PinnedBuffer<T> {
    memory: HostMemory,
    len: usize,
    /// Recorded after the last copy.
    done: Event,
    access: Mutex<DeviceAccess>,
    element: PhantomData<T>,
}

/// The accesses of the device that may be active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceAccess {
    None,
    Reading,
    Writing,
}

impl<T: Pod> PinnedBuffer<T> {
    /// Creates a buffer of zero bytes.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], or an error of the runtime calls.
    pub fn new(context: &Context, len: usize) -> Result<Self, Error> {
        let memory = HostMemory::zeroed(context, size_bytes::<T>(len)?, false)?;
        let done = Event::new(context, false)?;
        let access = Mutex::new(DeviceAccess::None);
        Ok(Self { memory, len, done, access, element: PhantomData })
    }

    /// Waits for all copies.
    ///
    /// # Errors
    ///
    /// The error of the copies, or of work queued before them.
    pub fn wait(&self) -> Result<(), Error> {
        Self::finish(&self.done, &mut self.lock())
    }

    /// Queues a copy from this memory by `queue`, which receives its start.
    pub(super) fn while_read(
        &self,
        stream: &Stream,
        queue: impl FnOnce(*const T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let access = self.lock();
        self.while_used(stream, access, DeviceAccess::Reading, |start| queue(start))
    }

    /// Queues a copy to this memory by `queue`, which receives its start.
    pub(super) fn while_written(
        &mut self,
        stream: &Stream,
        queue: impl FnOnce(*mut T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let access = self.lock();
        self.while_used(stream, access, DeviceAccess::Writing, queue)
    }

    fn while_used(
        &self,
        stream: &Stream,
        mut access: MutexGuard<'_, DeviceAccess>,
        requested: DeviceAccess,
        queue: impl FnOnce(*mut T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // This buffer cannot track the copies that later launches of a graph would make.
        stream.refuse_capture("copying tracked pinned memory")?;
        self.done.context().expect_same(stream.context(), "copying pinned memory")?;
        if *access != DeviceAccess::None {
            // One event tracks all copies, so they must run one after another.
            stream.wait(&self.done)?;
        }
        queue(self.memory.start())?;
        match stream.record(&self.done) {
            Ok(()) => {
                let still_written = *access == DeviceAccess::Writing;
                *access = if still_written { DeviceAccess::Writing } else { requested };
                Ok(())
            }
            Err(error) => {
                // No event tracks the copy: wait for it here.
                *access = DeviceAccess::None;
                stream.synchronize().and(Err(error))
            }
        }
    }

    fn finish(done: &Event, access: &mut DeviceAccess) -> Result<(), Error> {
        if *access == DeviceAccess::None {
            return Ok(());
        }
        // After success and after failure no copy is active: the call fails only if the work failed
        // or the device is lost.
        *access = DeviceAccess::None;
        done.synchronize()
    }
}

impl<T> PinnedBuffer<T> {
    fn lock(&self) -> MutexGuard<'_, DeviceAccess> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Pod> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let mut access = self.lock();
        if *access == DeviceAccess::Writing {
            log_failure(Self::finish(&self.done, &mut access));
        }
        // SAFETY: `len` initialised elements, none of which the device writes.
        unsafe { std::slice::from_raw_parts(self.memory.start(), self.len) }
    }
}

impl<T: Pod> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        log_failure(self.wait());
        // SAFETY: `len` initialised elements, none of which the device accesses.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start(), self.len) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        let idle = *self.lock() == DeviceAccess::None;
        if !idle {
            log_failure(self.done.synchronize());
        }
    }
}

fn log_failure(outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        tracing::warn!("a copy of pinned memory failed: {error}");
    }
}
