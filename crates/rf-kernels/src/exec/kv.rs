//! The KV cache in device memory: pages that hold all layers.

use rf_graph::{BackendError, KvLayout, KvType};
use rf_hip::{DeviceBuffer, Stream};
use rf_kv::PageId;

use crate::error::Error;
use crate::params::{self, Address, MAX_HEAD_DIM};

/// Head sizes are multiples of this: the elements of a head that a lane loads.
const HEAD_MULTIPLE: usize = 8;

/// The layout of a page.
#[derive(Clone, Debug)]
pub(super) struct KvPlan {
    layout: KvLayout,
    /// Byte offsets of each layer in a page: keys, values, scales of keys, scales of values.
    offsets: Vec<[u32; 4]>,
    page_bytes: usize,
}

impl KvPlan {
    pub(super) fn new(layout: &KvLayout) -> Result<Self, Error> {
        let mut page_bytes = 0_usize;
        let mut offsets = Vec::with_capacity(layout.layers.len());
        for &(heads, head_dim) in &layout.layers {
            if head_dim > MAX_HEAD_DIM || !head_dim.is_multiple_of(HEAD_MULTIPLE) {
                let what = format!("attention heads of {head_dim} elements");
                return Err(Error::Unsupported { what });
            }
            let rows = heads * layout.page_tokens;
            let (element_bytes, scale_bytes) = match layout.dtype {
                KvType::F32 => (4, 0),
                KvType::F16 => (2, 0),
                KvType::Q8_0 => (1, 2 * rows * head_dim.div_ceil(32)),
                KvType::Fp8 => (1, 0),
                other => return Err(Error::Unsupported { what: format!("a KV cache of {other}") }),
            };
            let data_bytes = rows * head_dim * element_bytes;
            offsets.push([data_bytes, data_bytes, scale_bytes, scale_bytes].map(|bytes| {
                let at = page_bytes;
                page_bytes += bytes.next_multiple_of(16);
                at as u32
            }));
        }
        let page_bytes = page_bytes.next_multiple_of(256);
        if u32::try_from(page_bytes).is_err() {
            return Err(Error::Unsupported { what: "KV pages beyond 4 GiB".into() });
        }
        Ok(Self { layout: layout.clone(), offsets, page_bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.page_bytes * self.layout.num_pages
    }

    /// Number of positions of all pages.
    pub(super) fn positions(&self) -> usize {
        self.layout.num_pages * self.layout.page_tokens
    }

    /// The kernel parameters of all layers for pages that start at `pages`.
    pub(super) fn caches(&self, pages: Address) -> Vec<params::KvCache> {
        let layers = self.layout.layers.iter().zip(&self.offsets);
        let cache = |(&(heads, head_dim), offsets): (&(usize, usize), &[u32; 4])| {
            let [keys, values, key_scales, value_scales] = *offsets;
            params::KvCache {
                pages,
                page_bytes: self.page_bytes as u64,
                keys,
                values,
                key_scales,
                value_scales,
                page_tokens: self.layout.page_tokens as u32,
                num_kv_heads: heads as u32,
                head_dim: head_dim as u32,
                kv_type: match self.layout.dtype {
                    KvType::F32 => 0,
                    KvType::Q8_0 => 2,
                    KvType::Fp8 => 3,
                    _ => 1,
                },
            }
        };
        layers.map(cache).collect()
    }
}

/// The memory of the cache.
pub(super) struct KvMemory {
    plan: KvPlan,
    memory: DeviceBuffer<u8>,
}

impl KvMemory {
    pub(super) fn new(stream: &Stream, plan: KvPlan) -> Result<Self, Error> {
        let memory = DeviceBuffer::new(stream.context(), plan.bytes())?;
        Ok(Self { plan, memory })
    }

    /// The kernel parameters of all layers.
    pub(super) fn caches(&self) -> Vec<params::KvCache> {
        self.plan.caches(self.memory.address())
    }

    /// Queues the copy of a page.
    pub(super) fn copy_page(
        &self,
        stream: &Stream,
        from: PageId,
        to: PageId,
    ) -> Result<(), BackendError> {
        let num_pages = self.plan.layout.num_pages;
        if let Some(page) = [from, to].iter().find(|page| page.index() >= num_pages) {
            let what = format!("page {} of {num_pages}", page.index());
            return Err(BackendError::InvalidBatch(what));
        }
        let bytes = self.plan.page_bytes;
        let range = from.index() * bytes..(from.index() + 1) * bytes;
        let copied = self.memory.copy_from_device(stream, to.index() * bytes, &self.memory, range);
        copied.map_err(|e| Error::from(e).into())
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.size_bytes()
    }
}
