//! The KV cache in device memory: pages that hold all layers of a group.

use rf_graph::{BackendError, KvLayer, KvLayout, KvType};
use rf_hip::{DeviceBuffer, Stream};
use rf_kv::{CopyPage, PageGroup};

use crate::error::Error;
use crate::params::{self, Address, MAX_HEAD_DIM};

/// Head sizes are multiples of this: the elements of a head that a lane loads.
const HEAD_MULTIPLE: usize = 8;

/// The layout of the pages.
#[derive(Clone, Debug)]
pub(super) struct KvPlan {
    layout: KvLayout,
    /// Byte offsets of each layer in a page of its group: keys, values, scales of keys, scales of
    /// values.
    offsets: Vec<[u32; 4]>,
    /// By [`PageGroup::index`].
    page_bytes: [usize; 3],
}

/// A layer of the cache as kernels see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvPlace {
    pub(super) cache: params::KvCache,
    pub(super) group: PageGroup,
}

impl KvPlan {
    pub(super) fn new(layout: &KvLayout) -> Result<Self, Error> {
        let mut page_bytes = [0_usize; 3];
        let mut offsets = Vec::with_capacity(layout.layers.len());
        for layer in &layout.layers {
            let (heads, head_dim) = (layer.num_kv_heads, layer.head_dim);
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
            let end = &mut page_bytes[layer.group.index()];
            offsets.push([data_bytes, data_bytes, scale_bytes, scale_bytes].map(|bytes| {
                let at = *end;
                *end += bytes.next_multiple_of(16);
                at as u32
            }));
        }
        let page_bytes = page_bytes.map(|bytes| bytes.next_multiple_of(256));
        if page_bytes.iter().any(|bytes| u32::try_from(*bytes).is_err()) {
            return Err(Error::Unsupported { what: "KV pages beyond 4 GiB".into() });
        }
        Ok(Self { layout: layout.clone(), offsets, page_bytes })
    }

    /// Saturates, so that a cache beyond the address space is one that does not fit.
    pub(super) fn bytes(&self) -> usize {
        let bytes = PageGroup::OF_TOKENS.map(|group| self.group_bytes(group));
        bytes[0].saturating_add(bytes[1])
    }

    fn group_bytes(&self, group: PageGroup) -> usize {
        self.page_bytes[group.index()].saturating_mul(self.layout.num_pages.of(group))
    }

    /// The first byte of a group, whose pages are after those of the groups before it.
    fn group_start(&self, group: PageGroup) -> usize {
        match group {
            PageGroup::Full => 0,
            PageGroup::Window | PageGroup::State => self.group_bytes(PageGroup::Full),
        }
    }

    /// Number of positions of a sequence that has all pages.
    pub(super) fn positions(&self) -> usize {
        self.layout.num_pages.full * self.layout.page_tokens
    }

    /// The kernel parameters of all layers for a cache that starts at `start`.
    pub(super) fn places(&self, start: Address) -> Vec<KvPlace> {
        let layers = self.layout.layers.iter().zip(&self.offsets);
        let place = |(layer, offsets): (&KvLayer, &[u32; 4])| {
            let [keys, values, key_scales, value_scales] = *offsets;
            let group = layer.group;
            let cache = params::KvCache {
                pages: start + self.group_start(group) as Address,
                page_bytes: self.page_bytes[group.index()] as u64,
                keys,
                values,
                key_scales,
                value_scales,
                page_tokens: self.layout.page_tokens as u32,
                num_kv_heads: layer.num_kv_heads as u32,
                head_dim: layer.head_dim as u32,
                kv_type: match self.layout.dtype {
                    KvType::F32 => 0,
                    KvType::Q8_0 => 2,
                    KvType::Fp8 => 3,
                    _ => 1,
                },
            };
            KvPlace { cache, group }
        };
        layers.map(place).collect()
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
    pub(super) fn places(&self) -> Vec<KvPlace> {
        self.plan.places(self.memory.address())
    }

    /// Queues the copy of a page.
    pub(super) fn copy_page(&self, stream: &Stream, copy: CopyPage) -> Result<(), BackendError> {
        let CopyPage { group, from, to } = copy;
        let num_pages = self.plan.layout.num_pages.of(group);
        if let Some(page) = [from, to].iter().find(|page| page.index() >= num_pages) {
            let what = format!("page {} of {num_pages}", page.index());
            return Err(BackendError::InvalidBatch(what));
        }
        let (start, bytes) = (self.plan.group_start(group), self.plan.page_bytes[group.index()]);
        if bytes == 0 {
            return Ok(());
        }
        let [from, to] = [from, to].map(|page| start + page.index() * bytes);
        let copied = self.memory.copy_from_device(stream, to, &self.memory, from..from + bytes);
        copied.map_err(|e| Error::from(e).into())
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.size_bytes()
    }
}
