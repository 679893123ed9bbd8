//! The KV cache of the reference: pages of f32, rounded to the storage type. Recurrent states are
//! f32.

use rf_graph::{BackendError, Batch, KvLayer, KvLayout, KvType, Span};
use rf_kv::{CopyPage, PageGroup, PageId};
use rf_quant::{DType, E4m3};

/// Keys and values of every layer, after rounding to the storage type.
pub(super) struct Cache {
    layout: KvLayout,
    /// Per layer, keys then values: `[num_pages, page_tokens, num_kv_heads · head_dim]`. A latent
    /// layer has keys only.
    layers: Vec<Vec<Vec<f32>>>,
    /// Per recurrent state: `[num_states, rows, columns]`.
    states: Vec<Vec<f32>>,
}

impl Cache {
    pub(super) fn new(layout: &KvLayout) -> Self {
        let layers = layout.layers.iter().map(|layer| {
            let slots = layout.num_pages.of(layer.group) * layout.page_tokens;
            vec![vec![0.0; slots * layer.width()]; stores(*layer)]
        });
        let states = layout.states.iter().map(|s| vec![0.0; layout.num_pages.states * s.len()]);
        Self { layout: layout.clone(), layers: layers.collect(), states: states.collect() }
    }

    /// Bytes of a cache: rounded values are kept as f32.
    pub(super) fn bytes_for(layout: &KvLayout) -> usize {
        let bytes = layout.layers.iter().map(|layer| {
            let slots = layout.num_pages.of(layer.group).saturating_mul(layout.page_tokens);
            slots.saturating_mul(stores(*layer) * layer.width() * size_of::<f32>())
        });
        bytes.fold(0, usize::saturating_add)
    }

    pub(super) fn append(&mut self, layer: usize, batch: &Batch<'_>, k: &[f32], v: Option<&[f32]>) {
        let shape = self.layout.layers[layer];
        let width = shape.width();
        for span in batch.spans {
            for (i, token) in span.tokens.clone().enumerate() {
                let slot = self.slot(shape, span, span.past_tokens + i);
                for (store, x) in
                    self.layers[layer].iter_mut().zip([Some(k), v].into_iter().flatten())
                {
                    let row = &mut store[slot * width..][..width];
                    row.copy_from_slice(&x[token * width..][..width]);
                    let heads = row.chunks_exact_mut(shape.head_dim);
                    heads.for_each(|head| round(self.layout.dtype, shape, head));
                }
            }
        }
    }

    /// Keys and values of all heads at one position of a sequence. Of a latent layer, the key is
    /// both.
    pub(super) fn read(
        &self,
        layer: usize,
        span: &Span<'_>,
        position: usize,
    ) -> (Vec<f32>, Vec<f32>) {
        let shape = self.layout.layers[layer];
        let slot = self.slot(shape, span, position);
        let row = slot * shape.width()..(slot + 1) * shape.width();
        let [k, v] = match self.layers[layer].as_slice() {
            [k, v] => [k, v],
            [k] => [k, k],
            _ => unreachable!("a layer has keys, and values unless it is latent"),
        };
        (k[row.clone()].to_vec(), v[row].to_vec())
    }

    /// A recurrent state of a sequence: 0 before its first token.
    pub(super) fn state(&mut self, index: usize, span: &Span<'_>) -> &mut [f32] {
        let len = self.layout.states[index].len();
        let page = span.state.map_or(0, PageId::index);
        let state = &mut self.states[index][page * len..][..len];
        if span.past_tokens == 0 {
            state.fill(0.0);
        }
        state
    }

    pub(super) fn copy_page(&mut self, copy: CopyPage) -> Result<(), BackendError> {
        let CopyPage { group, from, to } = copy;
        let pages = self.layout.num_pages.of(group);
        if let Some(page) = [from, to].iter().find(|p| p.index() >= pages) {
            return Err(BackendError::InvalidBatch(format!("page {} of {pages}", page.index())));
        }
        if group == PageGroup::State {
            for (shape, states) in self.layout.states.iter().zip(&mut self.states) {
                let len = shape.len();
                states.copy_within(from.index() * len..(from.index() + 1) * len, to.index() * len);
            }
            return Ok(());
        }
        for (shape, layer) in self.layout.layers.iter().zip(&mut self.layers) {
            if shape.group != group {
                continue;
            }
            let floats = self.layout.page_tokens * shape.width();
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
        self.layers.iter().flatten().map(|store| size_of_val(store.as_slice())).sum()
    }

    pub(super) fn states_bytes(&self) -> usize {
        self.states.iter().map(|states| size_of_val(states.as_slice())).sum()
    }

    fn slot(&self, layer: KvLayer, span: &Span<'_>, position: usize) -> usize {
        let page_tokens = self.layout.page_tokens;
        let page = span.pages_of(layer.group)[position / page_tokens];
        page.index() * page_tokens + position % page_tokens
    }
}

/// Keys and values, or keys only.
fn stores(layer: KvLayer) -> usize {
    if layer.latent_dim.is_some() { 1 } else { 2 }
}

/// Rounds one head to the storage type. Q8_0, Q4_0 and Q5_0 are the weight formats of these names,
/// with an f16 scale per 32 elements; the last two are of the Hadamard transform, which is inverted
/// here instead of being applied to queries and results.
fn round(dtype: KvType, layer: KvLayer, head: &mut [f32]) {
    match dtype {
        KvType::F32 => {}
        KvType::F16 => head.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32()),
        KvType::Q8_0 => round_blocks(DType::Q8_0, head),
        KvType::Q4_0 | KvType::Q5_0 => {
            let format = if dtype == KvType::Q4_0 { DType::Q4_0 } else { DType::Q5_0 };
            hadamard(head, layer.transform_len());
            round_blocks(format, head);
            hadamard(head, layer.transform_len());
        }
        KvType::Fp8 => head.iter_mut().for_each(|x| *x = E4m3::from_f32(*x).to_f32()),
        // A type without a definition here: no check accepts NaN.
        _ => head.fill(f32::NAN),
    }
}

/// Rounds blocks of 32 elements to a weight format.
fn round_blocks(format: DType, head: &mut [f32]) {
    for block in head.chunks_mut(32) {
        let mut padded = [0.0; 32];
        padded[..block.len()].copy_from_slice(block);
        let bytes = rf_quant::quantize_to_vec(format, &padded);
        bytes
            .and_then(|bytes| rf_quant::dequantize(format, &bytes, &mut padded))
            .expect("one block");
        block.copy_from_slice(&padded[..block.len()]);
    }
}

/// Multiplies each `len` elements by the matrix `(−1)^popcount(i & j) / √len`.
fn hadamard(head: &mut [f32], len: usize) {
    let scale = (len as f64).sqrt().recip();
    for x in head.chunks_exact_mut(len) {
        let y = |i: usize| {
            let terms = x.iter().enumerate().map(|(j, x)| match (i & j).count_ones() % 2 {
                0 => f64::from(*x),
                _ => -f64::from(*x),
            });
            (terms.sum::<f64>() * scale) as f32
        };
        let y: Vec<f32> = (0..len).map(y).collect();
        x.copy_from_slice(&y);
    }
}
