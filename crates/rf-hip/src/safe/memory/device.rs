//! Memory of the device.

use std::{marker::PhantomData, ops::Range, sync::Arc};

use bytemuck::Pod;

use super::{PinnedBuffer, check_range, report_drop, size_bytes};
use crate::{Context, Error, Stream, result::memory as raw};

/// `len` elements of `T` in device memory.
///
/// Fresh memory holds whatever was there before, which for a [`Pod`] type is some value of it; see
/// [`DeviceBuffer::zeroed`].
///
/// The host never refers into a buffer, so all operations take `&self`: what orders them is the
/// stream. Two streams that use one buffer have to be ordered with [`Stream::wait`]; if they are not,
/// the buffer's contents are unspecified.
///
/// Dropping a buffer waits until the device has done everything queued so far (the runtimes' `free`
/// does), except for one made by [`DeviceBuffer::on_stream`].
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    allocation: Arc<Allocation>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

/// The memory behind a buffer; a captured graph that uses it holds it too.
#[derive(Debug)]
struct Allocation {
    context: Context,
    /// 0 where empty.
    address: u64,
    /// The stream whose pool memory this is.
    pool: Option<Stream>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// A buffer of unspecified contents.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], or what the runtime's call returns; see [`Error::is_out_of_memory`].
    pub fn new(context: &Context, len: usize) -> Result<Self, Error> {
        let bytes = size_bytes::<T>(len)?;
        let api = context.enter()?;
        let address = if bytes == 0 { 0 } else { raw::allocate(api, bytes)? };
        Ok(Self::own(Allocation { context: context.clone(), address, pool: None }, len))
    }

    /// A buffer of zero bytes. Waits until they are written.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::new`] and [`DeviceBuffer::fill_zero`].
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, Error> {
        let buffer = Self::new(context, len)?;
        let stream = Stream::new(context)?;
        buffer.fill_zero(&stream)?;
        stream.synchronize()?;
        Ok(buffer)
    }

    /// A buffer with the contents of `data`.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::new`] and [`DeviceBuffer::copy_from_slice`].
    pub fn from_slice(stream: &Stream, data: &[T]) -> Result<Self, Error> {
        let buffer = Self::new(stream.context(), data.len())?;
        buffer.copy_from_slice(stream, 0, data)?;
        Ok(buffer)
    }

    /// A buffer from the device's pool: cheap, and taken and given back in the order of `stream`.
    ///
    /// Other streams may use it between a mark behind this call and one before the drop.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::new`]; [`Error::is_unsupported`] where the runtime has no pools;
    /// [`Error::Capturing`].
    pub fn on_stream(stream: &Stream, len: usize) -> Result<Self, Error> {
        let bytes = size_bytes::<T>(len)?;
        stream.refuse_capture("taking memory from the pool")?;
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

    /// Writes `data` from element `offset` on. Returns when it is done: behind everything queued on
    /// `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ContextMismatch`], [`Error::Capturing`], or what the
    /// runtime's calls return.
    pub fn copy_from_slice(&self, stream: &Stream, offset: usize, data: &[T]) -> Result<(), Error> {
        check_range(offset, data.len(), self.len)?;
        stream.refuse_capture("copying from pageable memory")?;
        // SAFETY: `data` is borrowed until the copy is done, below.
        unsafe { self.copy_from_host(stream, offset, data.as_ptr(), data.len()) }?;
        stream.synchronize()
    }

    /// Reads elements from `offset` on into `out`. Returns when it is done: behind everything queued
    /// on `stream`.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::copy_from_slice`].
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

    /// All elements. Returns when they are there: behind everything queued on `stream`.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::copy_from_slice`].
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>, Error> {
        let mut out = vec![T::zeroed(); self.len];
        self.copy_to_slice(stream, 0, &mut out)?;
        Ok(out)
    }

    /// Queues a copy of `source[range]` to element `offset` on.
    ///
    /// The source notes that the copy is under way: writing to it or dropping it waits.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::copy_from_slice`].
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

    /// Queues a copy of the elements from `offset` on to `target[range]`.
    ///
    /// The target notes that the copy is under way: looking into it or dropping it waits.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::copy_from_slice`].
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
            // SAFETY: in range, and the target is not looked at until the copy is done.
            unsafe { self.copy_to_host(stream, offset, start, range.len()) }
        })
    }

    /// Queues a copy of `source[range]` to element `offset` on; the buffers may be of two devices of
    /// one runtime. Ranges of one buffer that overlap leave its contents unspecified.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ContextMismatch`] where the stream is not of this buffer's
    /// device, [`Error::Capturing`] between devices, or what the runtime's calls return.
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
        if !std::ptr::eq(self.context().api(), source.context().api()) {
            return Err(Error::ContextMismatch { operation: "copying" });
        }
        stream.refuse_capture("copying between devices")?;
        let place = |context: &Context, address| raw::Place {
            device: context.device(),
            context: context.handle(),
            address,
        };
        let (to, from) = (place(self.context(), to), place(source.context(), from));
        let api = self.context().enter()?;
        // SAFETY: both ranges are inside live allocations.
        unsafe { raw::copy_peer(api, to, from, bytes, stream.handle()) }
    }

    /// Queues setting every byte of the buffer to zero.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`], or what the runtime's call returns.
    pub fn fill_zero(&self, stream: &Stream) -> Result<(), Error> {
        self.fill_bytes(stream, 0..self.len, 0)
    }

    /// Queues setting every byte of the elements in `range` to `value`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ContextMismatch`], or what the runtime's call returns.
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

    /// Queues setting the elements in `range` to `value`: any value of 1 or 4 bytes, and of other
    /// sizes one whose bytes are all alike.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::fill_bytes`]; [`Error::Unsupported`] for other values.
    pub fn fill(&self, stream: &Stream, range: Range<usize>, value: T) -> Result<(), Error> {
        let bytes = bytemuck::bytes_of(&value);
        if let Some(&first) = bytes.first().filter(|&first| bytes.iter().all(|b| b == first)) {
            return self.fill_bytes(stream, range, first);
        }
        let Ok(word) = <[u8; 4]>::try_from(bytes) else {
            let (platform, operation) = (stream.context().api().platform, "fill of such elements");
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

    /// Queues a copy from host memory that the caller looks after; for graphs, where each launch
    /// copies anew.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ContextMismatch`], or what the runtime's call returns.
    ///
    /// # Safety
    ///
    /// `source` is valid for reads of `count` elements and not written until the copy is done; where
    /// the stream captures, until the last launch of the graph is done, except between launches.
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
        // SAFETY: the device's side is inside a live allocation; the host's is the caller's promise.
        unsafe { raw::copy_to_device(api, to, source.cast(), bytes, stream.handle()) }
    }

    /// Queues a copy to host memory that the caller looks after; for graphs, where each launch copies
    /// anew.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::copy_from_host`].
    ///
    /// # Safety
    ///
    /// `target` is valid for writes of `count` elements and not touched until the copy is done; where
    /// the stream captures, until the last launch of the graph is done, except between launches.
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
        // SAFETY: the device's side is inside a live allocation; the host's is the caller's promise.
        unsafe { raw::copy_to_host(api, target.cast(), from, bytes, stream.handle()) }
    }
}

impl<T> DeviceBuffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Where the buffer starts on the device: aligned to at least 256 bytes, 0 where empty.
    pub fn address(&self) -> u64 {
        self.allocation.address
    }

    /// Where the buffer lives.
    pub fn context(&self) -> &Context {
        &self.allocation.context
    }

    fn address_of(&self, element: usize) -> u64 {
        self.allocation.address + (element * size_of::<T>()) as u64
    }

    fn kept(&self) -> super::super::stream::Kept {
        Arc::clone(&self.allocation) as _
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        // Recorded into a graph, the memory would be given back at each of its launches; so within a
        // capture it goes at once, which waits for the device as other buffers do.
        let pool = self.pool.as_ref();
        let pool = pool.filter(|stream| stream.refuse_capture("giving memory back").is_ok());
        let outcome = self.context.enter().and_then(|api| match pool {
            // SAFETY: allocated once, freed once; `free` waits for the device.
            None => unsafe { raw::free(api, self.address) },
            // SAFETY: as above, in the order of the stream it came from.
            Some(stream) => unsafe { raw::free_on_stream(api, self.address, stream.handle()) },
        });
        report_drop("device memory", outcome);
    }
}
