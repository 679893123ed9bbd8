//! The KV cache and the recurrent states in device memory.
//!
//! The pages of a layer are adjacent in memory, so attention needs few entries of the address
//! translation. A page of the engine is one such page in each layer of its group. Recurrent states
//! are read once per step, so a page of them has the states of all layers.

use std::ops::Range;

use rf_graph::{BackendError, Batch, KvLayer, KvLayout, KvType};
use rf_hip::Stream;
use rf_kv::{CopyPage, PageGroup, PageId};

use super::split_memory::SplitMemory;
use crate::error::Error;
use crate::launch::{Gpu, LaunchList, Recording};
use crate::params::{self, Address, CopyBytesParams, MAX_HEAD_DIM, MAX_LATENT_HEAD_DIM};

/// Head sizes are multiples of this: the elements of a head that a lane loads.
const HEAD_MULTIPLE: usize = 8;

/// The layout of the pages.
#[derive(Clone, Debug)]
pub(super) struct KvPlan {
    layout: KvLayout,
    layers: Vec<LayerPlan>,
    /// Byte offset of each recurrent state in a page.
    state_offsets: Vec<usize>,
    /// Bytes of a page of each group, indexed by [`PageGroup::index`].
    page_bytes: [usize; 3],
    /// Pages of each group after those of the layout, by [`PageGroup::index`].
    spare_pages: [usize; 3],
}

/// The pages of a layer.
#[derive(Clone, Copy, Debug)]
struct LayerPlan {
    group: PageGroup,
    /// Byte offset of the first page.
    start: usize,
    page_bytes: usize,
    /// Byte offsets within a page: keys, values, scales of keys, scales of values.
    offsets: [u32; 4],
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
        let mut layers = Vec::with_capacity(layout.layers.len());
        for layer in &layout.layers {
            let (heads, head_dim) = (layer.num_kv_heads, layer.head_dim);
            let is_latent = layer.latent_dim.is_some();
            let most = if is_latent { MAX_LATENT_HEAD_DIM } else { MAX_HEAD_DIM };
            if head_dim > most || !head_dim.is_multiple_of(HEAD_MULTIPLE) {
                let what = format!("attention heads of {head_dim} elements");
                return Err(Error::Unsupported { what });
            }
            let rows = heads * layout.page_tokens;
            let scale_bytes = 2 * rows * head_dim.div_ceil(32);
            let (element_bits, scale_bytes) = match layout.dtype {
                KvType::F32 => (32, 0),
                KvType::F16 => (16, 0),
                KvType::Q8_0 => (8, scale_bytes),
                KvType::Fp8 => (8, 0),
                KvType::Q4_0 => (4, scale_bytes),
                KvType::Q5_0 => (5, scale_bytes),
                other => return Err(Error::Unsupported { what: format!("a KV cache of {other}") }),
            };
            let data_bytes = rows * head_dim / 8 * element_bits;
            // The values of a latent layer are a part of its keys.
            let parts = if is_latent { [1, 0] } else { [1, 1] };
            let bytes = [data_bytes, scale_bytes].map(|bytes| parts.map(|part| part * bytes));
            let mut end = 0;
            let offsets = [bytes[0][0], bytes[0][1], bytes[1][0], bytes[1][1]].map(|bytes| {
                let at: usize = end;
                end += bytes.next_multiple_of(16);
                at as u32
            });
            if u32::try_from(end).is_err() {
                return Err(Error::Unsupported { what: "KV pages beyond 4 GiB".into() });
            }
            let group = layer.group;
            layers.push(LayerPlan { group, start: 0, page_bytes: end, offsets });
            page_bytes[group.index()] += end;
        }
        let mut state_offsets = Vec::with_capacity(layout.states.len());
        let end = &mut page_bytes[PageGroup::State.index()];
        for state in &layout.states {
            state_offsets.push(*end);
            *end += (state.len() * size_of::<f32>()).next_multiple_of(256);
        }
        let spare_pages = [0; 3];
        let mut plan =
            Self { layout: layout.clone(), layers, state_offsets, page_bytes, spare_pages };
        plan.place_layers();
        Ok(plan)
    }

    /// Sets the start of each layer: after all pages of the one before. Saturates as
    /// [`Self::bytes`].
    fn place_layers(&mut self) {
        for group in PageGroup::OF_TOKENS {
            let mut start = self.group_start(group);
            let num_pages = self.all_pages(group);
            for layer in self.layers.iter_mut().filter(|layer| layer.group == group) {
                layer.start = start;
                start = start.saturating_add(layer.page_bytes.saturating_mul(num_pages));
            }
        }
    }

    /// Pages of the layout and spare ones.
    fn all_pages(&self, group: PageGroup) -> usize {
        self.layout.num_pages.of(group).saturating_add(self.spare_pages[group.index()])
    }

    /// Adds spare pages after those of the layout. Kernels write them and no sequence owns them:
    /// pages of tokens, and one page for a saved state.
    pub(super) fn with_spare_pages(self, pages: impl Fn(PageGroup) -> usize) -> Self {
        let spare_pages = PageGroup::ALL.map(|group| match group {
            PageGroup::State => usize::from(!self.state_offsets.is_empty()),
            PageGroup::Full | PageGroup::Window => pages(group),
        });
        let mut plan = Self { spare_pages, ..self };
        plan.place_layers();
        plan
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
        self.page_bytes[group.index()].saturating_mul(self.all_pages(group))
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

    /// The first byte of each layer and of the recurrent states, in ascending order.
    fn cuts(&self) -> Vec<usize> {
        let mut cuts: Vec<_> = self.layers.iter().map(|layer| layer.start).collect();
        cuts.push(self.group_start(PageGroup::State));
        cuts.sort_unstable();
        cuts
    }

    /// The kernel parameters of all layers, where `address` is that of a byte of the cache.
    pub(super) fn places(&self, address: impl Fn(usize) -> Address) -> Vec<KvPlace> {
        let layers = self.layout.layers.iter().zip(&self.layers);
        let place = |(layer, plan): (&KvLayer, &LayerPlan)| {
            let [keys, values, key_scales, value_scales] = plan.offsets;
            let group = layer.group;
            let cache = params::KvCache {
                pages: address(plan.start),
                page_bytes: plan.page_bytes as u64,
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
                    KvType::Q4_0 => 4,
                    KvType::Q5_0 => 5,
                    _ => 1,
                },
                transform_len: if self.layout.dtype.is_transformed() {
                    layer.transform_len() as u32
                } else {
                    1
                },
                reserved: 0,
            };
            KvPlace { cache, group }
        };
        layers.map(place).collect()
    }

    /// The kernel parameters of all recurrent states, where `address` is that of a byte of the
    /// cache.
    pub(super) fn states(&self, address: impl Fn(usize) -> Address) -> Vec<params::State> {
        let group = PageGroup::State;
        let start = address(self.group_start(group));
        let page_floats = (self.page_bytes[group.index()] / size_of::<f32>()) as u64;
        let state =
            |offset: &usize| params::State { first: start + *offset as Address, page_floats };
        self.state_offsets.iter().map(state).collect()
    }
}

/// Recurrent states of before a step.
#[derive(Default)]
pub(super) struct SavedStates {
    /// The page that the spare page has a copy of.
    on_device: Option<PageId>,
    /// Pages on the host, each with its place in the cache.
    on_host: Vec<(usize, Vec<u8>)>,
}

/// The memory of the cache.
pub(super) struct KvMemory {
    plan: KvPlan,
    memory: SplitMemory,
}

impl KvMemory {
    pub(super) fn new(stream: &Stream, plan: KvPlan) -> Result<Self, Error> {
        let memory = SplitMemory::new(stream.context(), plan.all_bytes(), &plan.cuts())?;
        // Copies of pages of states include the gaps between states, which no kernel writes.
        memory.fill_zero_from(stream, plan.group_start(PageGroup::State))?;
        Ok(Self { plan, memory })
    }

    /// The kernel parameters of all layers.
    pub(super) fn places(&self) -> Vec<KvPlace> {
        self.plan.places(|offset| self.memory.address(offset))
    }

    /// The kernel parameters of all recurrent states.
    pub(super) fn states(&self) -> Vec<params::State> {
        self.plan.states(|offset| self.memory.address(offset))
    }

    /// Saves the recurrent states of the sequences of a batch: that of a single sequence on the
    /// device, several on the host.
    pub(super) fn save_states(
        &self,
        gpu: &Gpu,
        stream: &Stream,
        batch: &Batch<'_>,
    ) -> Result<SavedStates, Error> {
        let bytes = self.plan.page_bytes[PageGroup::State.index()];
        let mut saved = SavedStates::default();
        // A sequence that begins has none.
        let spans = batch.spans.iter().filter(|span| span.past_tokens > 0);
        let states: Vec<PageId> = spans.filter_map(|span| span.state).collect();
        if bytes == 0 {
            return Ok(saved);
        }
        if let ([state], true) = (&states[..], self.plan.spare_pages[PageGroup::State.index()] > 0)
        {
            self.copy_state(gpu, stream, [state.index(), self.spare_state()])?;
            saved.on_device = Some(*state);
            return Ok(saved);
        }
        for state in states {
            let start = self.state_start(state.index());
            let mut page = vec![0; bytes];
            self.memory.copy_to_slice(stream, start, &mut page)?;
            saved.on_host.push((start, page));
        }
        Ok(saved)
    }

    /// Writes saved states back.
    pub(super) fn restore_states(
        &self,
        gpu: &Gpu,
        stream: &Stream,
        saved: &SavedStates,
    ) -> Result<(), Error> {
        if let Some(state) = saved.on_device {
            self.copy_state(gpu, stream, [self.spare_state(), state.index()])?;
        }
        for (start, page) in &saved.on_host {
            self.memory.copy_from_slice(stream, *start, page)?;
        }
        Ok(())
    }

    /// The number of the page that no sequence owns.
    fn spare_state(&self) -> usize {
        self.plan.layout.num_pages.of(PageGroup::State)
    }

    /// The first byte of the states of a page.
    fn state_start(&self, page: usize) -> usize {
        let bytes = self.plan.page_bytes[PageGroup::State.index()];
        self.plan.group_start(PageGroup::State) + page * bytes
    }

    /// Queues the copy of a page of states, by a kernel as those of [`Self::page_copies`].
    fn copy_state(&self, gpu: &Gpu, stream: &Stream, pages: [usize; 2]) -> Result<(), Error> {
        let [from, to] = pages.map(|page| self.memory.address(self.state_start(page)));
        let vectors = (self.plan.page_bytes[PageGroup::State.index()] / 16) as u64;
        let params = CopyBytesParams { from, to, vectors };
        let mut launches = LaunchList::default();
        launches.push(params.launch(), params);
        Ok(Recording::load(gpu, launches)?.queue(stream)?)
    }

    /// The copies of a page in each layer, by kernels: a copy of the runtime may be on another
    /// queue, and a graph that follows it may start too early.
    pub(super) fn page_copies(&self, copy: CopyPage) -> Result<Vec<CopyBytesParams>, BackendError> {
        let CopyPage { group, from, to } = copy;
        let ranges = self.page_ranges(group, from)?.into_iter().zip(self.page_ranges(group, to)?);
        // Pages start at multiples of 16 bytes.
        let copies = ranges.map(|(from, to)| CopyBytesParams {
            from: self.memory.address(from.start),
            to: self.memory.address(to.start),
            vectors: (from.len() / 16) as u64,
        });
        Ok(copies.collect())
    }

    /// Appends the bytes of a page.
    pub(super) fn read_page(
        &self,
        stream: &Stream,
        group: PageGroup,
        page: PageId,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        self.page_ranges(group, page)?.into_iter().try_for_each(|range| {
            let start = out.len();
            out.resize(start + range.len(), 0);
            let copied = self.memory.copy_to_slice(stream, range.start, &mut out[start..]);
            copied.map_err(|e| Error::from(e).into())
        })
    }

    /// Replaces the bytes of a page.
    pub(super) fn write_page(
        &self,
        stream: &Stream,
        group: PageGroup,
        page: PageId,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let ranges = self.page_ranges(group, page)?;
        let page_bytes = self.plan.page_bytes[group.index()];
        if bytes.len() != page_bytes {
            let what = format!("{} bytes for a page of {page_bytes}", bytes.len());
            return Err(BackendError::InvalidBatch(what));
        }
        let mut rest = bytes;
        ranges.into_iter().try_for_each(|range| {
            let (part, others) = rest.split_at(range.len());
            rest = others;
            let copied = self.memory.copy_from_slice(stream, range.start, part);
            copied.map_err(|e| Error::from(e).into())
        })
    }

    /// The bytes of a page in each layer of its group; of states, those of all layers.
    fn page_ranges(
        &self,
        group: PageGroup,
        page: PageId,
    ) -> Result<Vec<Range<usize>>, BackendError> {
        let num_pages = self.plan.layout.num_pages.of(group);
        if page.index() >= num_pages {
            let what = format!("page {} of {num_pages}", page.index());
            return Err(BackendError::InvalidBatch(what));
        }
        let at = |start: usize, bytes: usize| {
            let start = start + page.index() * bytes;
            start..start + bytes
        };
        let bytes = self.plan.page_bytes[group.index()];
        if group == PageGroup::State {
            let ranges = [at(self.plan.group_start(group), bytes)];
            return Ok(ranges.into_iter().filter(|range| !range.is_empty()).collect());
        }
        let layers = self.plan.layers.iter().filter(|layer| layer.group == group);
        Ok(layers.map(|layer| at(layer.start, layer.page_bytes)).collect())
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
        for (kv_type, row_bytes) in [
            (KvType::F16, 1152),
            (KvType::Q8_0, 576 + 18 * 2),
            (KvType::Q5_0, 18 * 22),
            (KvType::Q4_0, 18 * 18),
        ] {
            let layout = KvLayout::new(vec![KvLayer::latent(576, 512); 47], 32, 4, kv_type);
            let plan = KvPlan::new(&layout).unwrap();
            let page_bytes = 32_usize * 47 * row_bytes;
            assert_eq!((plan.bytes(), plan.states_bytes()), (4 * page_bytes, 0), "{kv_type}");
        }
    }

    #[test]
    fn the_pages_of_a_layer_lie_one_after_the_other() {
        let layers = vec![KvLayer::new(2, 64), KvLayer::new(4, 64)];
        let plan = KvPlan::new(&KvLayout::new(layers, 16, 3, KvType::F16)).unwrap();
        let (first, second) = (16 * 2 * 64 * 2 * 2, 16 * 4 * 64 * 2 * 2);
        let places = plan.places(|offset| offset as Address);
        let pages = |place: &KvPlace| (place.cache.pages, place.cache.page_bytes);
        assert_eq!(pages(&places[0]), (0, first));
        assert_eq!(pages(&places[1]), (3 * first, second));
        assert_eq!(plan.bytes() as u64, 3 * (first + second));
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
