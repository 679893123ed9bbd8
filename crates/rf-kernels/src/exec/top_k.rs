//! Selection of the largest elements of output rows on the device.

use rf_graph::Candidate;
use rf_hip::{Context, DeviceBuffer, PinnedBuffer, Stream};

use super::profile::Profile;
use crate::error::Error;
use crate::launch::{Gpu, LaunchList, Recording};
use crate::params::{Address, ArgmaxParams, MAX_TOP_K, TopKParams, argmax_parts, top_k_parts};

/// Longest row that the kernels support.
const MAX_ROW: usize = 1 << 20;

/// Symbols of the kernels.
pub(super) const KERNELS: [&str; 2] = ["argmax_f32", "top_k_f32"];

/// The largest `k` for rows of `width` elements.
pub(super) fn max_top_k(width: usize) -> usize {
    if width <= MAX_ROW { width.min(MAX_TOP_K as usize) } else { 0 }
}

/// The shape of a selection.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Request {
    rows: usize,
    width: usize,
    k: usize,
}

impl Request {
    fn parts(self) -> u32 {
        match self.k {
            1 => argmax_parts(self.width as u32),
            _ => top_k_parts(self.width as u32),
        }
    }
}

/// Buffers of the kernels.
pub(super) struct TopK {
    request: Request,
    /// Ids, then the bits of their logits: `[2, rows, k]`.
    best: DeviceBuffer<u32>,
    host: PinnedBuffer<u32>,
    probabilities: DeviceBuffer<f32>,
    scratch: DeviceBuffer<u64>,
    counters: DeviceBuffer<u32>,
}

impl TopK {
    fn new(context: &Context, request: Request) -> Result<Self, Error> {
        let Request { rows, k, .. } = request;
        Ok(Self {
            request,
            best: DeviceBuffer::new(context, 2 * rows * k)?,
            host: PinnedBuffer::new(context, 2 * rows * k)?,
            probabilities: DeviceBuffer::new(context, rows * k)?,
            scratch: DeviceBuffer::new(context, rows * request.parts() as usize * k)?,
            counters: DeviceBuffer::zeroed(context, rows)?,
        })
    }

    /// Selects the `k` largest elements of rows of `width` logits, which earlier work on the stream
    /// writes, and waits for the result. The buffers are kept for the next call.
    pub(super) fn choose(
        room: &mut Option<Self>,
        (gpu, stream, profile): (&Gpu, &Stream, Option<&mut Profile>),
        (logits, width): (Address, usize),
        k: usize,
        out: &mut [Candidate],
    ) -> Result<(), Error> {
        let request = Request { rows: out.len() / k, width, k };
        let this = match room {
            Some(this) if this.request == request => this,
            _ => room.insert(Self::new(gpu.context(), request)?),
        };
        this.record(gpu, logits)?.queue(stream)?;
        let bytes = 2 * out.len() * size_of::<u32>();
        let mut copy = || this.best.copy_to_pinned(stream, 0, &mut this.host, 0..2 * out.len());
        match profile {
            Some(profile) => profile.read_back(stream, bytes, || Ok(copy()?))?,
            None => copy()?,
        }
        stream.synchronize()?;
        let (ids, logits) = this.host[..2 * out.len()].split_at(out.len());
        for ((candidate, id), bits) in out.iter_mut().zip(ids).zip(logits) {
            *candidate = Candidate { id: *id, logit: f32::from_bits(*bits) };
        }
        Ok(())
    }

    fn record(&self, gpu: &Gpu, logits: Address) -> Result<Recording, Error> {
        let Request { rows, width, k } = self.request;
        let (ids, values) = (self.best.address(), self.best.address() + 4 * (rows * k) as Address);
        let mut list = LaunchList::default();
        if k == 1 {
            let params = ArgmaxParams {
                logits,
                ids,
                values,
                scratch: self.scratch.address(),
                counters: self.counters.address(),
                rows: rows as u32,
                vocab_size: width as u32,
                parts: self.request.parts(),
                reserved: 0,
            };
            list.push(params.launch(), params);
        } else {
            let params = TopKParams {
                logits,
                ids,
                values,
                probabilities: self.probabilities.address(),
                scratch: self.scratch.address(),
                counters: self.counters.address(),
                rows: rows as u32,
                vocab_size: width as u32,
                k: k as u32,
                parts: self.request.parts(),
                temperature: 1.0,
                reserved: 0,
            };
            list.push(params.launch(), params);
        }
        Recording::load(gpu, list)
    }
}
