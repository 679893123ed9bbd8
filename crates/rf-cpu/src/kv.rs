//! The paged KV cache.
//!
//! Keys are transposed within a page, `[head][dim][token]`, so that a lane of the score vector is a
//! token. Values are stored as `[head][token][dim]`, so that a lane of the output is a dimension.
//! Neither sum crosses lanes. The keys of latent attention are values too, so they are stored like
//! values, and only once. The system allocates memory on first use, so unused pages take none.

use std::ops::Range;

use half::f16;
use half::slice::HalfFloatSliceExt;
use memmap2::MmapMut;
use rf_graph::{BackendError, KvLayout, KvType};
use rf_kv::{CopyPage, PageGroup, PageId};
use rf_quant::{Block, BlockQ4_0, BlockQ5_0, DType, E4m3};

use crate::simd::LANES;

/// The cache of all layers.
pub(crate) struct KvStore {
    pub(crate) layout: KvLayout,
    pub(crate) layers: Vec<KvLayer>,
}

/// The cache of one layer.
pub(crate) struct KvLayer {
    pub(crate) shape: KvShape,
    pub(crate) group: PageGroup,
    /// `[page][head]` of [`KvShape::key_head_bytes`] of keys.
    pub(crate) keys: MmapMut,
    /// `[page][head]` of [`KvShape::value_head_bytes`] of values; none in a latent layer.
    pub(crate) values: MmapMut,
}

/// The element type and the sizes of one layer's cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvShape {
    pub(crate) dtype: KvType,
    pub(crate) heads: usize,
    pub(crate) head_dim: usize,
    /// True if values are a part of the keys.
    pub(crate) is_latent: bool,
    /// Neighbouring elements that the Hadamard transform combines; 1 without one.
    transform_len: usize,
    pub(crate) page_tokens: usize,
}

impl KvShape {
    fn new(layout: &KvLayout, layer: rf_graph::KvLayer) -> Self {
        Self {
            dtype: layout.dtype,
            heads: layer.num_kv_heads,
            head_dim: layer.head_dim,
            is_latent: layer.latent_dim.is_some(),
            transform_len: if layout.dtype.is_transformed() { layer.transform_len() } else { 1 },
            page_tokens: layout.page_tokens,
        }
    }

    /// Elements per row of values, or of latents: `head_dim` rounded up to whole vectors, or to
    /// whole groups if elements are smaller than a byte.
    pub(crate) fn value_stride(self) -> usize {
        self.head_dim.next_multiple_of(if self.is_packed() { SCALE_GROUP } else { LANES })
    }

    /// Returns true if elements are smaller than a byte.
    fn is_packed(self) -> bool {
        matches!(self.dtype, KvType::Q4_0 | KvType::Q5_0)
    }

    /// Bytes of elements without their scales. Packed elements are pairs of four bits, followed by
    /// the fifth bits, eight to a byte.
    fn element_bytes(self, elements: usize) -> usize {
        match self.dtype {
            KvType::F32 => 4 * elements,
            KvType::F16 => 2 * elements,
            KvType::Q4_0 => elements.div_ceil(2),
            KvType::Q5_0 => elements.div_ceil(2) + elements.div_ceil(8),
            _ => elements,
        }
    }

    /// Bytes of the elements of a key.
    pub(crate) fn key_bytes(self) -> usize {
        self.element_bytes(self.head_dim)
    }

    /// Bytes of the elements of a row of values.
    pub(crate) fn value_bytes(self) -> usize {
        self.element_bytes(self.value_stride())
    }

    /// Number of f16 scales per head and token, one per 32 elements.
    pub(crate) fn scales(self) -> usize {
        let is_scaled = self.is_packed() || self.dtype == KvType::Q8_0;
        if is_scaled { self.head_dim.div_ceil(SCALE_GROUP) } else { 0 }
    }

    /// Returns true if [`Self::transform`] changes anything.
    pub(crate) fn is_transformed(self) -> bool {
        self.transform_len > 1
    }

    /// Applies the Hadamard transform to heads of keys, values, queries or results. It is its own
    /// inverse.
    pub(crate) fn transform(self, heads: &mut [f32]) {
        let len = self.transform_len;
        let scale = (len as f32).sqrt().recip();
        for x in heads.chunks_exact_mut(len) {
            let mut half = 1;
            while half < len {
                for x in x.chunks_exact_mut(2 * half) {
                    let (a, b) = x.split_at_mut(half);
                    for (a, b) in a.iter_mut().zip(b) {
                        (*a, *b) = (*a + *b, *a - *b);
                    }
                }
                half *= 2;
            }
            for x in x {
                *x *= scale;
            }
        }
    }

    /// Bytes of the keys of one page and head: elements `[dim][token]`, then scales
    /// `[group][token]`. A byte of packed elements has dimensions `2i` and `2i + 1`, and a byte of
    /// fifth bits has dimensions `8i..8i + 8`. Latents are stored like values.
    pub(crate) fn key_head_bytes(self) -> usize {
        if self.is_latent {
            return self.row_bytes() * self.page_tokens;
        }
        (self.key_bytes() + 2 * self.scales()) * self.page_tokens
    }

    /// Bytes of the values of one page and head: elements `[token][dim]`, then scales
    /// `[token][group]`. Packed elements of 32 dimensions have the order of their weight format,
    /// with the fifth bits of a row after all pairs.
    pub(crate) fn value_head_bytes(self) -> usize {
        if self.is_latent { 0 } else { self.row_bytes() * self.page_tokens }
    }

    /// Bytes of a row of values and its scales.
    fn row_bytes(self) -> usize {
        self.value_bytes() + 2 * self.scales()
    }
}

/// Vector loads of the last row may reach past its end by less than a vector.
const SLACK_BYTES: usize = 64;

/// Elements per scale of a cache that has scales.
pub(crate) const SCALE_GROUP: usize = 32;

impl KvStore {
    pub(crate) fn new(layout: &KvLayout) -> Result<Self, BackendError> {
        if !KvType::ALL.contains(&layout.dtype) {
            return Err(BackendError::Unsupported {
                backend: "CPU",
                what: format!("a KV cache of type {}", layout.dtype),
            });
        }
        let layer = |layer: &rf_graph::KvLayer| {
            let (shape, group) = (KvShape::new(layout, *layer), layer.group);
            let map = |head_bytes: usize| {
                let bytes = layout.num_pages.of(group) * shape.heads * head_bytes;
                MmapMut::map_anon(bytes + SLACK_BYTES).map_err(|_| BackendError::OutOfMemory {
                    what: "the KV cache",
                    bytes: bytes as u64,
                })
            };
            let keys = map(shape.key_head_bytes())?;
            Ok(KvLayer { shape, group, keys, values: map(shape.value_head_bytes())? })
        };
        let layers = layout.layers.iter().map(layer).collect::<Result<_, BackendError>>()?;
        Ok(Self { layout: layout.clone(), layers })
    }

    /// Bytes of all pages.
    pub(crate) fn page_bytes(&self) -> usize {
        self.layers
            .iter()
            .map(|layer| layer.keys.len() + layer.values.len() - 2 * SLACK_BYTES)
            .sum()
    }

    /// [`Self::page_bytes`] of a cache with this layout.
    pub(crate) fn page_bytes_of(layout: &KvLayout) -> usize {
        let layer = |layer: &rf_graph::KvLayer| {
            let shape = KvShape::new(layout, *layer);
            let head_bytes = shape.key_head_bytes() + shape.value_head_bytes();
            layout.num_pages.of(layer.group).saturating_mul(shape.heads * head_bytes)
        };
        layout.layers.iter().map(layer).fold(0, usize::saturating_add)
    }

    fn check_page(&self, group: PageGroup, page: PageId) -> Result<(), BackendError> {
        let pages = self.layout.num_pages.of(group);
        if page.index() < pages {
            return Ok(());
        }
        Err(BackendError::InvalidBatch(format!("page {} of {pages}", page.index())))
    }

    /// Appends the keys and values of a page in each layer of its group.
    pub(crate) fn read_page(
        &self,
        group: PageGroup,
        page: PageId,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        self.check_page(group, page)?;
        for KvLayer { shape, keys, values, .. } in self.layers_of(group) {
            out.extend_from_slice(&keys[page_range(page, shape.heads * shape.key_head_bytes())]);
            let bytes = shape.heads * shape.value_head_bytes();
            out.extend_from_slice(&values[page_range(page, bytes)]);
        }
        Ok(())
    }

    /// Replaces the keys and values of a page in each layer of its group.
    pub(crate) fn write_page(
        &mut self,
        group: PageGroup,
        page: PageId,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.check_page(group, page)?;
        let head_bytes = |shape: KvShape| shape.key_head_bytes() + shape.value_head_bytes();
        let layers = self.layers_of(group);
        check_len(layers.map(|layer| layer.shape.heads * head_bytes(layer.shape)).sum(), bytes)?;
        let mut rest = bytes;
        for layer in self.layers.iter_mut().filter(|layer| layer.group == group) {
            let shape = layer.shape;
            for (map, head_bytes) in [
                (&mut layer.keys, shape.key_head_bytes()),
                (&mut layer.values, shape.value_head_bytes()),
            ] {
                let part;
                (part, rest) = rest.split_at(shape.heads * head_bytes);
                map[page_range(page, part.len())].copy_from_slice(part);
            }
        }
        Ok(())
    }

    fn layers_of(&self, group: PageGroup) -> impl Iterator<Item = &KvLayer> {
        self.layers.iter().filter(move |layer| layer.group == group)
    }

    pub(crate) fn copy_page(&mut self, copy: CopyPage) -> Result<(), BackendError> {
        let CopyPage { group, from, to } = copy;
        self.check_page(group, from)?;
        self.check_page(group, to)?;
        for layer in self.layers.iter_mut().filter(|layer| layer.group == group) {
            let shape = layer.shape;
            for (map, head_bytes) in [
                (&mut layer.keys, shape.key_head_bytes()),
                (&mut layer.values, shape.value_head_bytes()),
            ] {
                let bytes = shape.heads * head_bytes;
                map.copy_within(
                    from.index() * bytes..(from.index() + 1) * bytes,
                    to.index() * bytes,
                );
            }
        }
        Ok(())
    }
}

/// The bytes of a page in a buffer of pages of one size.
fn page_range(page: PageId, bytes: usize) -> Range<usize> {
    page.index() * bytes..(page.index() + 1) * bytes
}

/// Checks the length of the contents of a page.
pub(crate) fn check_len(expected: usize, bytes: &[u8]) -> Result<(), BackendError> {
    if bytes.len() == expected {
        return Ok(());
    }
    let what = format!("{} bytes for a page of {expected}", bytes.len());
    Err(BackendError::InvalidBatch(what))
}

/// Values that are converted to f16 at once: a call checks the CPU's features.
const HALVES: usize = 64;

/// Stores the key of one token and head in its column of a page.
pub(crate) fn store_key(shape: KvShape, page: &mut [u8], slot: usize, k: &[f32]) {
    let step = shape.page_tokens;
    match shape.dtype {
        KvType::F32 => {
            for (d, k) in k.iter().enumerate() {
                let at = (d * step + slot) * 4;
                page[at..at + 4].copy_from_slice(&k.to_le_bytes());
            }
        }
        KvType::F16 => {
            for (first, k) in (0..).step_by(HALVES).zip(k.chunks(HALVES)) {
                let mut halves = [f16::ZERO; HALVES];
                halves[..k.len()].convert_from_f32_slice(k);
                let slots = page.as_chunks_mut::<2>().0[slot + first * step..].iter_mut();
                for (out, half) in slots.step_by(step).zip(&halves[..k.len()]) {
                    *out = half.to_le_bytes();
                }
            }
        }
        KvType::Fp8 => {
            for (d, k) in k.iter().enumerate() {
                page[d * step + slot] = E4m3::from_f32(*k).to_bits();
            }
        }
        KvType::Q4_0 | KvType::Q5_0 => {
            let (scales, fifth_bits) = (shape.key_bytes() * step, k.len().div_ceil(2) * step);
            for (g, k) in k.chunks(SCALE_GROUP).enumerate() {
                let group = PackedGroup::new(shape.dtype, k);
                let at = scales + (g * step + slot) * 2;
                page[at..at + 2].copy_from_slice(&group.scale);
                for pair in 0..k.len().div_ceil(2) {
                    let byte = group.nibble(2 * pair) | group.nibble(2 * pair + 1) << 4;
                    page[(g * SCALE_GROUP / 2 + pair) * step + slot] = byte;
                }
                if shape.dtype == KvType::Q5_0 {
                    for (i, bits) in group.fifth_bits[..k.len().div_ceil(8)].iter().enumerate() {
                        page[fifth_bits + (g * SCALE_GROUP / 8 + i) * step + slot] = *bits;
                    }
                }
            }
        }
        _ => {
            let scales = shape.head_dim * step;
            for (g, k) in k.chunks(SCALE_GROUP).enumerate() {
                let (scale, codes) = quantize_group(k);
                let at = scales + (g * step + slot) * 2;
                page[at..at + 2].copy_from_slice(&scale);
                for (d, code) in codes[..k.len()].iter().enumerate() {
                    page[(g * SCALE_GROUP + d) * step + slot] = *code;
                }
            }
        }
    }
}

/// Stores the value of one token and head, or its latent, in its row of a page.
pub(crate) fn store_value(shape: KvShape, page: &mut [u8], slot: usize, v: &[f32]) {
    let row = slot * shape.value_stride();
    match shape.dtype {
        KvType::F32 => {
            for (out, v) in page[row * 4..].as_chunks_mut::<4>().0.iter_mut().zip(v) {
                *out = v.to_le_bytes();
            }
        }
        KvType::F16 => {
            let row = page[row * 2..][..v.len() * 2].as_chunks_mut::<2>().0;
            for (row, v) in row.chunks_mut(HALVES).zip(v.chunks(HALVES)) {
                let mut halves = [f16::ZERO; HALVES];
                halves[..v.len()].convert_from_f32_slice(v);
                for (out, half) in row.iter_mut().zip(halves) {
                    *out = half.to_le_bytes();
                }
            }
        }
        KvType::Fp8 => {
            for (out, v) in page[row..].iter_mut().zip(v) {
                *out = E4m3::from_f32(*v).to_bits();
            }
        }
        KvType::Q4_0 | KvType::Q5_0 => {
            let (scales, row) =
                (shape.value_bytes() * shape.page_tokens, slot * shape.value_bytes());
            let fifth_bits = row + shape.value_stride() / 2;
            for (g, v) in v.chunks(SCALE_GROUP).enumerate() {
                let group = PackedGroup::new(shape.dtype, v);
                let at = scales + (slot * shape.scales() + g) * 2;
                page[at..at + 2].copy_from_slice(&group.scale);
                page[row + g * SCALE_GROUP / 2..][..SCALE_GROUP / 2].copy_from_slice(&group.pairs);
                if shape.dtype == KvType::Q5_0 {
                    let at = fifth_bits + g * SCALE_GROUP / 8;
                    page[at..][..SCALE_GROUP / 8].copy_from_slice(&group.fifth_bits);
                }
            }
        }
        _ => {
            let scales = shape.value_stride() * shape.page_tokens;
            for (g, v) in v.chunks(SCALE_GROUP).enumerate() {
                let (scale, codes) = quantize_group(v);
                let at = scales + (slot * shape.scales() + g) * 2;
                page[at..at + 2].copy_from_slice(&scale);
                page[row + g * SCALE_GROUP..][..v.len()].copy_from_slice(&codes[..v.len()]);
            }
        }
    }
}

/// Quantises one Q8_0 block. Returns the f16 scale and 32 codes.
fn quantize_group(x: &[f32]) -> ([u8; 2], [u8; SCALE_GROUP]) {
    let mut padded = [0.0; SCALE_GROUP];
    padded[..x.len()].copy_from_slice(x);
    let mut block = [0; 2 + SCALE_GROUP];
    rf_quant::quantize(DType::Q8_0, &padded, &mut block).expect("one block");
    let (scale, codes) = block.split_first_chunk().expect("a scale and codes");
    (*scale, codes.try_into().expect("32 codes"))
}

/// A block of Q4_0 or Q5_0.
struct PackedGroup {
    scale: [u8; 2],
    /// Bit `j` of the word is the fifth bit of element `j`; zeros in Q4_0.
    fifth_bits: [u8; SCALE_GROUP / 8],
    /// Byte `j` has elements `j` and `j + 16`.
    pairs: [u8; SCALE_GROUP / 2],
}

impl PackedGroup {
    /// Quantises up to 32 elements.
    fn new(dtype: KvType, x: &[f32]) -> Self {
        let mut padded = [0.0; SCALE_GROUP];
        padded[..x.len()].copy_from_slice(x);
        if dtype == KvType::Q5_0 {
            let block = BlockQ5_0::quantize(&padded, None);
            return Self { scale: block.d.to_le_bytes(), fifth_bits: block.qh, pairs: block.qs };
        }
        let block = BlockQ4_0::quantize(&padded, None);
        Self { scale: block.d.to_le_bytes(), fifth_bits: [0; SCALE_GROUP / 8], pairs: block.qs }
    }

    /// The low four bits of an element.
    fn nibble(&self, element: usize) -> u8 {
        self.pairs[element % 16] >> (element / 16 * 4) & 15
    }
}
