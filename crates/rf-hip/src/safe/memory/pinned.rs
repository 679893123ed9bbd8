//! Page-locked host memory for copies that run beside everything else.

use std::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytemuck::Pod;

use super::{HostMemory, size_bytes};
use crate::{Context, Error, Event, Stream};

/// `len` elements of host memory that the device's copy engines reach; zero at first.
///
/// The buffer knows of copies under way. Looking into it waits for one that writes it; writing to it,
/// and dropping it, wait for all. [`PinnedBuffer::wait`] does so beforehand and says what failed: after
/// a failed copy the contents are unspecified, and the failure is only logged where [`Deref`] met it.
#[derive(Debug)]
pub struct PinnedBuffer<T> {
    memory: HostMemory,
    len: usize,
    /// Behind the last copy.
    done: Event,
    under_way: Mutex<UnderWay>,
    element: PhantomData<T>,
}

/// What the device may be doing with the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnderWay {
    Nothing,
    Reading,
    Writing,
}

impl<T: Pod> PinnedBuffer<T> {
    /// A buffer of zero bytes.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], or what the runtime's calls return.
    pub fn new(context: &Context, len: usize) -> Result<Self, Error> {
        let memory = HostMemory::zeroed(context, size_bytes::<T>(len)?, false)?;
        let done = Event::new(context, false)?;
        let under_way = Mutex::new(UnderWay::Nothing);
        Ok(Self { memory, len, done, under_way, element: PhantomData })
    }

    /// Waits for copies under way.
    ///
    /// # Errors
    ///
    /// What the copies, or work queued before them, failed with.
    pub fn wait(&self) -> Result<(), Error> {
        Self::finish(&self.done, &mut self.lock())
    }

    /// Queues a copy out of this memory by `queue`, which is given its start.
    pub(super) fn while_read(
        &self,
        stream: &Stream,
        queue: impl FnOnce(*const T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let under_way = self.lock();
        self.while_used(stream, under_way, UnderWay::Reading, |start| queue(start))
    }

    /// Queues a copy into this memory by `queue`, which is given its start.
    pub(super) fn while_written(
        &mut self,
        stream: &Stream,
        queue: impl FnOnce(*mut T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let under_way = self.lock();
        self.while_used(stream, under_way, UnderWay::Writing, queue)
    }

    fn while_used(
        &self,
        stream: &Stream,
        mut under_way: MutexGuard<'_, UnderWay>,
        will_be: UnderWay,
        queue: impl FnOnce(*mut T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // A graph would repeat the copy behind this buffer's back.
        stream.refuse_capture("copying pinned memory that a graph could touch again")?;
        self.done.context().expect_same(stream.context(), "copying pinned memory")?;
        if *under_way != UnderWay::Nothing {
            // One mark stands for all copies, so they run one after another.
            stream.wait(&self.done)?;
        }
        queue(self.memory.start())?;
        match self.done.record(stream) {
            Ok(()) => {
                let still_written = *under_way == UnderWay::Writing;
                *under_way = if still_written { UnderWay::Writing } else { will_be };
                Ok(())
            }
            Err(error) => {
                // No mark behind the copy: wait for it here.
                *under_way = UnderWay::Nothing;
                stream.synchronize().and(Err(error))
            }
        }
    }

    fn finish(done: &Event, under_way: &mut UnderWay) -> Result<(), Error> {
        if *under_way == UnderWay::Nothing {
            return Ok(());
        }
        // Failed or done, nothing touches the memory any more: the only failures are those of the
        // work itself and of a device that does none.
        *under_way = UnderWay::Nothing;
        done.synchronize()
    }
}

impl<T> PinnedBuffer<T> {
    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Pod> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let mut under_way = self.lock();
        if *under_way == UnderWay::Writing {
            log_failure(Self::finish(&self.done, &mut under_way));
        }
        // SAFETY: `len` initialised elements, and the device writes none of them.
        unsafe { std::slice::from_raw_parts(self.memory.start(), self.len) }
    }
}

impl<T: Pod> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        log_failure(self.wait());
        // SAFETY: `len` initialised elements, and the device touches none of them.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start(), self.len) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        let idle = *self.lock() == UnderWay::Nothing;
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
