//! Device memory.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::{PinnedBuffer, check_range, report_drop, size_bytes};
use crate::result::memory as raw;
use crate::safe::Kept;
use crate::{Context, Error, Stream};

/// `len` elements of `T` in device memory.
///
/// A new buffer has unspecified contents, which are valid for a [`Pod`] type; see
/// [`DeviceBuffer::zeroed`].
///
/// The host has no references into a buffer, so all operations take `&self`: streams order the
/// operations. If two streams use one buffer, order them with [`Stream::wait`]; otherwise the
/// contents are unspecified.
///
/// Dropping a buffer waits for all queued work of the device, as the runtimes' `free` does, except
/// for a buffer from [`DeviceBuffer::on_stream`].
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    allocation: Arc<Allocation>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

/// The memory of a buffer. A captured graph that uses the buffer shares it.
#[derive(Debug)]
struct Allocation {
    context: Context,
    /// 0 if empty.
    address: u64,
    /// The stream, if the memory is from the pool.
    pool: Option<Stream>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Creates a buffer of unspecified contents.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], or an error of the runtime call; see [`Error::is_out_of_memory`].
    pub fn new(context: &Context, len: usize) -> Result<Self, Error> {
        let bytes = size_bytes::<T>(len)?;
        let api = context.enter()?;
        let address = if bytes == 0 { 0 } else { raw::allocate(api, bytes)? };
        Ok(Self::own(Allocation { context: context.clone(), address, pool: None }, len))
    }

    /// Creates a buffer of zero bytes. Waits until the bytes are written.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceBuffer::new`] and [`DeviceBuffer::fill_zero`].
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, Error> {
        let buffer = Self::new(context, len)?;
        let stream = Stream::new(context)?;
        buffer.fill_zero(&stream)?;
        stream.synchronize()?;
        Ok(buffer)
    }

    /// Creates a buffer with the contents of `data`.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceBuffer::new`] and [`DeviceBuffer::copy_from_slice`].
    pub fn from_slice(stream: &Stream, data: &[T]) -> Result<Self, Error> {
        let buffer = Self::new(stream.context(), data.len())?;
        buffer.copy_from_slice(stream, 0, data)?;
        Ok(buffer)
    }

    /// Creates a buffer from the device's memory pool, which is cheap. Allocation and release are
    /// ordered with the work of `stream`.
    ///
    /// Other streams must order their use after this call and before the drop with events.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceBuffer::new`]; [`Error::is_unsupported`] if the runtime has no pools;
    /// [`Error::Capturing`].
    pub fn on_stream(stream: &Stream, len: usize) -> Result<Self, Error> {
        let bytes = size_bytes::<T>(len)?;
        stream.refuse_capture("allocating pool memory")?;
        let context = stream.context();
        let api = context.enter()?;
        let address = match bytes {
            0 => 0,
            // SAFETY: the stream is alive.
            _ => unsafe { raw::allocate_on_stream(api, bytes, stream.handle()) }?,
        };
        let pool = Some(stream.clone());
        Ok(Self::own(Allocation { context: context.clone(), address, pool }, len))
    }

    fn own(allocation: Allocation, len: usize) -> Self {
        Self { allocation: Arc::new(allocation), len, element: PhantomData }
    }

    /// Copies `data` to the elements from `offset`, after all work queued on `stream`. Returns when
    /// the copy is done.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ContextMismatch`], [`Error::Capturing`], or an error
    /// of the runtime calls.
    pub fn copy_from_slice(&self, stream: &Stream, offset: usize, data: &[T]) -> Result<(), Error> {
        check_range(offset, data.len(), self.len)?;
        stream.refuse_capture("copying from pageable memory")?;
        // SAFETY: `data` is borrowed until the copy is done, below.
        unsafe { self.copy_from_host(stream, offset, data.as_ptr(), data.len()) }?;
        stream.synchronize()
    }

    /// Copies the elements from `offset` to `out`, after all work queued on `stream`. Returns when
    /// the copy is done.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceBuffer::copy_from_slice`].
    pub fn copy_to_slice(
        &self,
        stream: &Stream,
        offset: usize,
        out: &mut [T],
    ) -> Result<(), Error> {
        check_range(offset, out.len(), self.len)?;
        stream.refuse_capture("copying to pageable memory")?;
        // SAFETY: `out` is borrowed until the copy is done, below.
        unsafe { self.copy_to_host(stream, offset, out.as_mut_ptr(), out.len()) }?;
        stream.synchronize()
    }

    /// Copies all elements to the host, after all work queued on `stream`.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceBuffer::copy_from_slice`].
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>, Error> {
        let mut out = vec![T::zeroed(); self.len];
        self.copy_to_slice(stream, 0, &mut out)?;
        Ok(out)
    }

    /// Queues a copy of `source[range]` to the elements from `offset`.
    ///
    /// The source tracks the copy: writing to it or dropping it waits.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceBuffer::copy_from_slice`].
    pub fn copy_from_pinned(
        &self,
        stream: &Stream,
        offset: usize,
        source: &PinnedBuffer<T>,
        range: Range<usize>,
    ) -> Result<(), Error> {
        check_range(range.start, range.len(), source.len())?;
        check_range(offset, range.len(), self.len)?;
        source.while_read(stream, |start| {
            let start = start.wrapping_add(range.start);
            // SAFETY: in range, and the source is not written until the copy is done.
            unsafe { self.copy_from_host(stream, offset, start, range.len()) }
        })
    }

    /// Queues a copy of the elements from `offset` to `target[range]`.
    ///
    /// The target tracks the copy: reading it or dropping it waits.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceBuffer::copy_from_slice`].
    pub fn copy_to_pinned(
        &self,
        stream: &Stream,
        offset: usize,
        target: &mut PinnedBuffer<T>,
        range: Range<usize>,
    ) -> Result<(), Error> {
        check_range(range.start, range.len(), target.len())?;
        check_range(offset, range.len(), self.len)?;
        target.while_written(stream, |start| {
            let start = start.wrapping_add(range.start);
            // SAFETY: in range, and the target is not accessed until the copy is done.
            unsafe { self.copy_to_host(stream, offset, start, range.len()) }
        })
    }

    /// Queues a copy of `source[range]` to the elements from `offset`. The buffers may belong to
    /// two devices of one runtime. If both ranges are in one buffer and overlap, its contents
    /// become unspecified.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ContextMismatch`] if the stream is not of this buffer's
    /// device, [`Error::Capturing`] between devices, or an error of the runtime calls.
    pub fn copy_from_device(
        &self,
        stream: &Stream,
        offset: usize,
        source: &Self,
        range: Range<usize>,
    ) -> Result<(), Error> {
        check_range(range.start, range.len(), source.len)?;
        check_range(offset, range.len(), self.len)?;
        self.context().expect_same(stream.context(), "copying")?;
        let (to, from) = (self.address_of(offset), source.address_of(range.start));
        let bytes = size_bytes::<T>(range.len())?;
        if bytes == 0 {
            return Ok(());
        }
        if self.context().same_device(source.context()) {
            stream.admit(&[self.kept(), source.kept()])?;
            let api = self.context().enter()?;
            // SAFETY: both ranges are inside live allocations; a graph keeps them.
            return unsafe { raw::copy_on_device(api, to, from, bytes, stream.handle()) };
        }
        if !self.context().shares_runtime(source.context()) {
            return Err(Error::ContextMismatch { operation: "copying" });
        }
        stream.refuse_capture("copying between devices")?;
        let place = |context: &Context, address| raw::PeerAddress {
            device: context.device(),
            context: context.handle(),
            address,
        };
        let (to, from) = (place(self.context(), to), place(source.context(), from));
        let api = self.context().enter()?;
        // SAFETY: both ranges are inside live allocations.
        unsafe { raw::copy_peer(api, to, from, bytes, stream.handle()) }
    }

    /// Queues a fill of the buffer with zero bytes.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], or an error of the runtime call.
    pub fn fill_zero(&self, stream: &Stream) -> Result<(), Error> {
        self.fill_bytes(stream, 0..self.len, 0)
    }

    /// Queues a fill of every byte of the elements in `range`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ContextMismatch`], or an error of the runtime call.
    pub fn fill_bytes(&self, stream: &Stream, range: Range<usize>, value: u8) -> Result<(), Error> {
        check_range(range.start, range.len(), self.len)?;
        let bytes = size_bytes::<T>(range.len())?;
        if bytes == 0 {
            return Ok(());
        }
        self.context().expect_same(stream.context(), "filling")?;
        stream.admit(&[self.kept()])?;
        let (address, api) = (self.address_of(range.start), self.context().enter()?);
        // SAFETY: the range is inside a live allocation; a graph keeps it.
        unsafe { raw::fill_bytes(api, address, value, bytes, stream.handle()) }
    }

    /// Queues a fill of the elements in `range` with `value`. Values of 1 and 4 bytes are
    /// supported, and values of other sizes whose bytes are all equal.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceBuffer::fill_bytes`]; [`Error::Unsupported`] for other values.
    pub fn fill(&self, stream: &Stream, range: Range<usize>, value: T) -> Result<(), Error> {
        let bytes = bytemuck::bytes_of(&value);
        if let Some(&first) = bytes.first().filter(|&first| bytes.iter().all(|b| b == first)) {
            return self.fill_bytes(stream, range, first);
        }
        let Ok(word) = <[u8; 4]>::try_from(bytes) else {
            let (platform, operation) =
                (stream.context().api().platform, "a fill with elements of this size");
            return Err(Error::Unsupported { platform, operation });
        };
        check_range(range.start, range.len(), self.len)?;
        if range.is_empty() {
            return Ok(());
        }
        self.context().expect_same(stream.context(), "filling")?;
        stream.admit(&[self.kept()])?;
        let (address, api) = (self.address_of(range.start), self.context().enter()?);
        let word = u32::from_ne_bytes(word);
        // SAFETY: the range is inside a live allocation, of 4-byte elements; a graph keeps it.
        unsafe { raw::fill_words(api, address, word, range.len(), stream.handle()) }
    }

    /// Queues a copy from host memory that the caller manages. Every launch of a captured graph
    /// repeats the copy.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ContextMismatch`], or an error of the runtime call.
    ///
    /// # Safety
    ///
    /// `source` is valid for reads of `count` elements, and not written until the copy is done. If
    /// the stream captures, this holds until the last launch of the graph is done, except between
    /// launches.
    pub unsafe fn copy_from_host(
        &self,
        stream: &Stream,
        offset: usize,
        source: *const T,
        count: usize,
    ) -> Result<(), Error> {
        check_range(offset, count, self.len)?;
        self.context().expect_same(stream.context(), "copying")?;
        let bytes = size_bytes::<T>(count)?;
        if bytes == 0 {
            return Ok(());
        }
        stream.admit(&[self.kept()])?;
        let (to, api) = (self.address_of(offset), self.context().enter()?);
        // SAFETY: the device range is inside a live allocation; the caller guarantees the host
        // range.
        unsafe { raw::copy_to_device(api, to, source.cast(), bytes, stream.handle()) }
    }

    /// Queues a copy to host memory that the caller manages. Every launch of a captured graph
    /// repeats the copy.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceBuffer::copy_from_host`].
    ///
    /// # Safety
    ///
    /// `target` is valid for writes of `count` elements, and not accessed until the copy is done.
    /// If the stream captures, this holds until the last launch of the graph is done, except
    /// between launches.
    pub unsafe fn copy_to_host(
        &self,
        stream: &Stream,
        offset: usize,
        target: *mut T,
        count: usize,
    ) -> Result<(), Error> {
        check_range(offset, count, self.len)?;
        self.context().expect_same(stream.context(), "copying")?;
        let bytes = size_bytes::<T>(count)?;
        if bytes == 0 {
            return Ok(());
        }
        stream.admit(&[self.kept()])?;
        let (from, api) = (self.address_of(offset), self.context().enter()?);
        // SAFETY: the device range is inside a live allocation; the caller guarantees the host
        // range.
        unsafe { raw::copy_to_host(api, target.cast(), from, bytes, stream.handle()) }
    }
}

impl<T> DeviceBuffer<T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The device address, aligned to at least 256 bytes; 0 if the buffer is empty.
    pub fn address(&self) -> u64 {
        self.allocation.address
    }

    /// The context of the buffer.
    pub fn context(&self) -> &Context {
        &self.allocation.context
    }

    fn address_of(&self, element: usize) -> u64 {
        self.allocation.address + (element * size_of::<T>()) as u64
    }

    fn kept(&self) -> Kept {
        Arc::clone(&self.allocation) as _
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        // If a graph recorded the release, every launch would repeat it. So the memory is freed
        // immediately during a capture, which waits for the device as for other buffers.
        let pool = self.pool.as_ref();
        let pool = pool.filter(|stream| stream.refuse_capture("releasing pool memory").is_ok());
        let outcome = self.context.enter().and_then(|api| match pool {
            // SAFETY: allocated once, freed once; `free` waits for the device.
            None => unsafe { raw::free(api, self.address) },
            // SAFETY: as above, ordered with the stream that allocated it.
            Some(stream) => unsafe { raw::free_on_stream(api, self.address, stream.handle()) },
        });
        report_drop("device memory", outcome);
    }
}
