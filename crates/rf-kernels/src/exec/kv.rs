//! The KV cache and the recurrent states in device memory: pages that hold all layers of a group.

use std::ops::Range;

use rf_graph::{BackendError, Batch, KvLayer, KvLayout, KvType};
use rf_hip::{DeviceBuffer, Stream};
use rf_kv::{CopyPage, PageGroup, PageId};

use crate::error::Error;
use crate::params::{self, Address, CopyBytesParams, MAX_HEAD_DIM, MAX_LATENT_HEAD_DIM};

/// Head sizes are multiples of this: the elements of a head that a lane loads.
const HEAD_MULTIPLE: usize = 8;

/// The layout of the pages.
#[derive(Clone, Debug)]
pub(super) struct KvPlan {
    layout: KvLayout,
    /// Byte offsets of each layer in a page of its group: keys, values, scales of keys, scales of
    /// values.
    offsets: Vec<[u32; 4]>,
    /// Byte offset of each recurrent state in a page.
    state_offsets: Vec<usize>,
    /// By [`PageGroup::index`].
    page_bytes: [usize; 3],
    /// Pages of each group after those of the layout, by [`PageGroup::index`].
    spare_pages: [usize; 3],
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
            let is_latent = layer.latent_dim.is_some();
            let most = if is_latent { MAX_LATENT_HEAD_DIM } else { MAX_HEAD_DIM };
            if head_dim > most || !head_dim.is_multiple_of(HEAD_MULTIPLE) {
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
            // The values of a latent layer are a part of its keys.
            let parts = if is_latent { [1, 0] } else { [1, 1] };
            let bytes = [data_bytes, scale_bytes].map(|bytes| parts.map(|part| part * bytes));
            offsets.push([bytes[0][0], bytes[0][1], bytes[1][0], bytes[1][1]].map(|bytes| {
                let at = *end;
                *end += bytes.next_multiple_of(16);
                at as u32
            }));
        }
        let mut page_bytes = page_bytes.map(|bytes| bytes.next_multiple_of(256));
        if page_bytes.iter().any(|bytes| u32::try_from(*bytes).is_err()) {
            return Err(Error::Unsupported { what: "KV pages beyond 4 GiB".into() });
        }
        let mut state_offsets = Vec::with_capacity(layout.states.len());
        let end = &mut page_bytes[PageGroup::State.index()];
        for state in &layout.states {
            state_offsets.push(*end);
            *end += (state.len() * size_of::<f32>()).next_multiple_of(256);
        }
        let spare_pages = [0; 3];
        Ok(Self { layout: layout.clone(), offsets, state_offsets, page_bytes, spare_pages })
    }

    /// Adds pages after those of the layout, which kernels write and no sequence owns.
    pub(super) fn with_spare_pages(self, pages: impl Fn(PageGroup) -> usize) -> Self {
        let spare_pages = PageGroup::ALL.map(pages);
        Self { spare_pages, ..self }
    }

    /// Bytes of the pages of tokens without the spare ones. Saturates, so that a cache beyond the
    /// address space is one that does not fit.
    pub(super) fn bytes(&self) -> usize {
        let bytes = PageGroup::OF_TOKENS.map(|group| self.pages_bytes(group));
        bytes[0].saturating_add(bytes[1])
    }

    /// Bytes of the recurrent states. Saturates as [`Self::bytes`].
    pub(super) fn states_bytes(&self) -> usize {
        self.pages_bytes(PageGroup::State)
    }

    /// Bytes of the spare pages.
    pub(super) fn spare_bytes(&self) -> usize {
        let bytes = self.page_bytes.iter().zip(&self.spare_pages);
        bytes.map(|(bytes, pages)| bytes * pages).sum()
    }

    fn pages_bytes(&self, group: PageGroup) -> usize {
        self.page_bytes[group.index()].saturating_mul(self.layout.num_pages.of(group))
    }

    /// Bytes of a group with its spare pages. Saturates as [`Self::bytes`].
    fn group_bytes(&self, group: PageGroup) -> usize {
        let spare_bytes = self.page_bytes[group.index()] * self.spare_pages[group.index()];
        self.pages_bytes(group).saturating_add(spare_bytes)
    }

    /// The first byte of a group, whose pages are after those of the groups before it.
    fn group_start(&self, group: PageGroup) -> usize {
        let before = PageGroup::ALL.into_iter().take(group.index());
        before.fold(0, |start, group| start.saturating_add(self.group_bytes(group)))
    }

    /// Bytes of all groups.
    fn all_bytes(&self) -> usize {
        let groups = PageGroup::ALL.into_iter();
        groups.fold(0, |bytes, group| bytes.saturating_add(self.group_bytes(group)))
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

    /// The kernel parameters of all recurrent states for a cache that starts at `start`.
    pub(super) fn states(&self, start: Address) -> Vec<params::State> {
        let group = PageGroup::State;
        let start = start + self.group_start(group) as Address;
        let page_floats = (self.page_bytes[group.index()] / size_of::<f32>()) as u64;
        let state =
            |offset: &usize| params::State { first: start + *offset as Address, page_floats };
        self.state_offsets.iter().map(state).collect()
    }
}

/// Recurrent states on the host, each with its place in the cache.
#[derive(Default)]
pub(super) struct SavedStates(Vec<(usize, Vec<u8>)>);

/// The memory of the cache.
pub(super) struct KvMemory {
    plan: KvPlan,
    memory: DeviceBuffer<u8>,
}

impl KvMemory {
    pub(super) fn new(stream: &Stream, plan: KvPlan) -> Result<Self, Error> {
        let memory = DeviceBuffer::new(stream.context(), plan.all_bytes())?;
        Ok(Self { plan, memory })
    }

    /// The kernel parameters of all layers.
    pub(super) fn places(&self) -> Vec<KvPlace> {
        self.plan.places(self.memory.address())
    }

    /// The kernel parameters of all recurrent states.
    pub(super) fn states(&self) -> Vec<params::State> {
        self.plan.states(self.memory.address())
    }

    /// Copies the recurrent states of the sequences of a batch to the host.
    pub(super) fn save_states(
        &self,
        stream: &Stream,
        batch: &Batch<'_>,
    ) -> Result<SavedStates, Error> {
        let bytes = self.plan.page_bytes[PageGroup::State.index()];
        let mut pages = Vec::new();
        for state in batch.spans.iter().filter_map(|span| span.state).filter(|_| bytes > 0) {
            let start = self.plan.group_start(PageGroup::State) + state.index() * bytes;
            let mut page = vec![0; bytes];
            self.memory.copy_to_slice(stream, start, &mut page)?;
            pages.push((start, page));
        }
        Ok(SavedStates(pages))
    }

    /// Writes saved states back.
    pub(super) fn restore_states(&self, stream: &Stream, saved: &SavedStates) -> Result<(), Error> {
        for (start, page) in &saved.0 {
            self.memory.copy_from_slice(stream, *start, page)?;
        }
        Ok(())
    }

    /// The copy of a page, by a kernel: a copy of the runtime may be on another queue, and a graph
    /// that follows it may start too early.
    pub(super) fn page_copy(&self, copy: CopyPage) -> Result<CopyBytesParams, BackendError> {
        let CopyPage { group, from, to } = copy;
        let (from, to) = (self.page_range(group, from)?, self.page_range(group, to)?);
        let address = |offset: usize| self.memory.address() + offset as Address;
        // Pages start at multiples of 256 bytes.
        Ok(CopyBytesParams {
            from: address(from.start),
            to: address(to.start),
            vectors: (from.len() / 16) as u64,
        })
    }

    /// Appends the bytes of a page.
    pub(super) fn read_page(
        &self,
        stream: &Stream,
        group: PageGroup,
        page: PageId,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        let range = self.page_range(group, page)?;
        let start = out.len();
        out.resize(start + range.len(), 0);
        let copied = self.memory.copy_to_slice(stream, range.start, &mut out[start..]);
        copied.map_err(|e| Error::from(e).into())
    }

    /// Replaces the bytes of a page.
    pub(super) fn write_page(
        &self,
        stream: &Stream,
        group: PageGroup,
        page: PageId,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let range = self.page_range(group, page)?;
        if bytes.len() != range.len() {
            let what = format!("{} bytes for a page of {}", bytes.len(), range.len());
            return Err(BackendError::InvalidBatch(what));
        }
        let copied = self.memory.copy_from_slice(stream, range.start, bytes);
        copied.map_err(|e| Error::from(e).into())
    }

    /// The bytes of a page, none of a group without layers.
    fn page_range(&self, group: PageGroup, page: PageId) -> Result<Range<usize>, BackendError> {
        let num_pages = self.plan.layout.num_pages.of(group);
        if page.index() >= num_pages {
            let what = format!("page {} of {num_pages}", page.index());
            return Err(BackendError::InvalidBatch(what));
        }
        let bytes = self.plan.page_bytes[group.index()];
        let start = self.plan.group_start(group) + page.index() * bytes;
        Ok(start..start + bytes)
    }

    /// Bytes of the pages of tokens without the spare ones.
    pub(super) fn bytes(&self) -> usize {
        self.memory.size_bytes() - self.states_bytes() - self.spare_bytes()
    }

    /// Bytes of the spare pages.
    pub(super) fn spare_bytes(&self) -> usize {
        self.plan.spare_bytes()
    }

    /// Returns true if sequences have recurrent states.
    pub(super) fn has_states(&self) -> bool {
        !self.plan.state_offsets.is_empty()
    }

    /// Bytes of the recurrent states.
    pub(super) fn states_bytes(&self) -> usize {
        self.plan.states_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latent_takes_a_row_per_token_and_layer() {
        // GLM 4.7 Flash: 47 layers of 512 and 64 elements; an f16 scale per 32.
        for (kv_type, row_bytes) in [(KvType::F16, 1152), (KvType::Q8_0, 576 + 18 * 2)] {
            let layout = KvLayout::new(vec![KvLayer::latent(576, 512); 47], 32, 4, kv_type);
            let plan = KvPlan::new(&layout).unwrap();
            // Pages start at multiples of 256 bytes.
            let page_bytes = (32_usize * 47 * row_bytes).next_multiple_of(256);
            assert_eq!((plan.bytes(), plan.states_bytes()), (4 * page_bytes, 0), "{kv_type}");
        }
    }

    #[test]
    fn only_latents_exceed_the_size_of_a_head() {
        let of = |layer| KvPlan::new(&KvLayout::new(vec![layer], 32, 4, KvType::F16));
        assert!(of(KvLayer::latent(576, 512)).is_ok() && of(KvLayer::new(1, 512)).is_ok());
        for layer in [KvLayer::latent(584, 512), KvLayer::new(1, 520), KvLayer::latent(36, 32)] {
            let error = of(layer).unwrap_err().to_string();
            assert!(error.contains(&format!("heads of {} elements", layer.head_dim)), "{error}");
        }
    }
}
