//! The KV cache of the reference: pages of f32, rounded to the storage type.

use rf_kv::PageId;
use rf_quant::E4m3;

use crate::backend::{BackendError, Batch, KvLayout, KvType, Span};

/// Keys and values of every layer, after rounding to the storage type.
pub(super) struct Cache {
    layout: KvLayout,
    /// Per layer, keys then values: `[num_pages, page_tokens, num_kv_heads · head_dim]`.
    layers: Vec<[Vec<f32>; 2]>,
}

impl Cache {
    pub(super) fn new(layout: &KvLayout) -> Self {
        let slots = layout.num_pages * layout.page_tokens;
        let layers = layout.layers.iter();
        let layers = layers.map(|(heads, dim)| [(); 2].map(|()| vec![0.0; slots * heads * dim]));
        Self { layout: layout.clone(), layers: layers.collect() }
    }

    /// Bytes of a cache: rounded values are kept as f32.
    pub(super) fn bytes_for(layout: &KvLayout) -> usize {
        let floats: usize = layout.layers.iter().map(|(heads, dim)| 2 * heads * dim).sum();
        floats
            .saturating_mul(layout.num_pages * layout.page_tokens)
            .saturating_mul(size_of::<f32>())
    }

    pub(super) fn append(&mut self, layer: usize, batch: &Batch<'_>, k: &[f32], v: &[f32]) {
        let (heads, dim) = self.layout.layers[layer];
        let width = heads * dim;
        for span in batch.spans {
            for (i, token) in span.tokens.clone().enumerate() {
                let slot = self.slot(span, span.past_tokens + i);
                for (store, x) in self.layers[layer].iter_mut().zip([k, v]) {
                    let row = &mut store[slot * width..][..width];
                    row.copy_from_slice(&x[token * width..][..width]);
                    row.chunks_exact_mut(dim).for_each(|head| round(self.layout.dtype, head));
                }
            }
        }
    }

    /// Keys and values of all heads at one position of a sequence.
    pub(super) fn read(
        &self,
        layer: usize,
        span: &Span<'_>,
        position: usize,
    ) -> (Vec<f32>, Vec<f32>) {
        let (heads, dim) = self.layout.layers[layer];
        let slot = self.slot(span, position);
        let [k, v] = &self.layers[layer];
        let row = slot * heads * dim..(slot + 1) * heads * dim;
        (k[row.clone()].to_vec(), v[row].to_vec())
    }

    pub(super) fn copy_page(&mut self, from: PageId, to: PageId) -> Result<(), BackendError> {
        let pages = self.layout.num_pages;
        if let Some(page) = [from, to].iter().find(|p| p.index() >= pages) {
            return Err(BackendError::InvalidBatch(format!("page {} of {pages}", page.index())));
        }
        for ((heads, dim), layer) in self.layout.layers.iter().zip(&mut self.layers) {
            let floats = self.layout.page_tokens * heads * dim;
            for store in layer {
                store.copy_within(
                    from.index() * floats..(from.index() + 1) * floats,
                    to.index() * floats,
                );
            }
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.layers.iter().flatten().map(|store| store.len() * 4).sum()
    }

    fn slot(&self, span: &Span<'_>, position: usize) -> usize {
        let page_tokens = self.layout.page_tokens;
        span.pages[position / page_tokens].index() * page_tokens + position % page_tokens
    }
}

/// Rounds one head to the storage type. Q8_0 is the weight format of that name, with an f16 scale
/// `max|x| / 127` per 32 elements.
fn round(dtype: KvType, head: &mut [f32]) {
    match dtype {
        KvType::F32 => {}
        KvType::F16 => head.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32()),
        KvType::Q8_0 => {
            for block in head.chunks_mut(32) {
                let mut padded = [0.0; 32];
                padded[..block.len()].copy_from_slice(block);
                let mut bytes = [0; 34];
                rf_quant::quantize(rf_quant::DType::Q8_0, &padded, &mut bytes)
                    .and_then(|()| rf_quant::dequantize(rf_quant::DType::Q8_0, &bytes, &mut padded))
                    .expect("one block");
                block.copy_from_slice(&padded[..block.len()]);
            }
        }
        KvType::Fp8 => head.iter_mut().for_each(|x| *x = E4m3::from_f32(*x).to_f32()),
    }
}
