//! The shape of the KV cache and of recurrent states.

use std::fmt;

use rf_kv::{PageCounts, PageGroup};

/// Shape of the KV cache, and of the recurrent states beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// The layers that have keys and values of their own.
    pub layers: Vec<KvLayer>,
    /// The recurrent states of a sequence. A page of [`PageGroup::State`] holds all of them.
    pub states: Vec<StateShape>,
    /// Tokens per page: 16, 32 or 64.
    pub page_tokens: usize,
    /// Number of pages of each group; no window pages if no layer is in that group.
    pub num_pages: PageCounts,
    /// The largest sliding window of the layers in [`PageGroup::Window`], in tokens.
    pub window: Option<usize>,
    /// Storage format of keys and values.
    pub dtype: KvType,
}

/// One layer of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// Heads of keys and values.
    pub num_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Latent attention: values are the first elements of the keys, as many as this says, and have
    /// no place of their own.
    pub latent_dim: Option<usize>,
    /// The pages of the layer.
    pub group: PageGroup,
}

/// The shape of one recurrent state: an f32 matrix, 0 before the first token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
}

impl StateShape {
    /// Elements of the matrix.
    pub const fn len(self) -> usize {
        self.rows * self.columns
    }

    /// Bytes of the matrix.
    pub const fn bytes(self) -> usize {
        self.len().saturating_mul(size_of::<f32>())
    }

    /// Returns true if there are no elements, as for a convolution of one tap.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl KvLayer {
    /// A layer that keeps every position.
    pub const fn new(num_kv_heads: usize, head_dim: usize) -> Self {
        Self { num_kv_heads, head_dim, latent_dim: None, group: PageGroup::Full }
    }

    /// A layer of latent attention, which keeps every position: keys of one head, whose first
    /// `latent_dim` elements are the value.
    pub const fn latent(head_dim: usize, latent_dim: usize) -> Self {
        Self { latent_dim: Some(latent_dim), ..Self::new(1, head_dim) }
    }

    /// Neighbouring elements that a Hadamard transform combines: the largest power of two of which
    /// keys and values are multiples. The matrix has the elements `±1 / √n` and is its own inverse.
    pub const fn transform_len(self) -> usize {
        let latent_dim = match self.latent_dim {
            Some(latent_dim) => latent_dim,
            None => 0,
        };
        1 << (self.head_dim | latent_dim).trailing_zeros()
    }

    /// Elements of the keys of one token.
    pub const fn width(self) -> usize {
        self.num_kv_heads * self.head_dim
    }
}

impl KvLayout {
    /// A cache whose layers keep every position.
    pub fn new(layers: Vec<KvLayer>, page_tokens: usize, num_pages: usize, dtype: KvType) -> Self {
        let num_pages = PageCounts::full(num_pages);
        Self { layers, states: Vec::new(), page_tokens, num_pages, window: None, dtype }
    }

    /// Bytes of the recurrent states of all sequences.
    pub fn states_bytes(&self) -> u64 {
        let bytes = self.bytes_per_state().saturating_mul(self.num_pages.states);
        bytes as u64
    }

    /// Bytes of the recurrent states of one sequence.
    pub fn bytes_per_state(&self) -> usize {
        self.states.iter().map(|state| state.bytes()).sum()
    }

    /// Bytes of the keys and values of one token in all layers of a group.
    pub fn bytes_per_token(&self, group: PageGroup) -> usize {
        let layers = self.layers.iter().filter(|layer| layer.group == group);
        layers.map(|layer| self.layer_bytes_per_token(*layer)).sum()
    }

    /// Bytes of all pages of tokens.
    pub fn bytes(&self) -> usize {
        let bytes = |group| self.bytes_per_token(group) * self.num_pages.of(group);
        self.page_tokens * PageGroup::OF_TOKENS.map(bytes).iter().sum::<usize>()
    }

    /// Bytes of the keys and values of one token in a layer.
    pub(crate) fn layer_bytes_per_token(&self, layer: KvLayer) -> usize {
        let parts = if layer.latent_dim.is_some() { 1 } else { 2 };
        parts * layer.num_kv_heads * self.dtype.head_bytes(layer.head_dim)
    }
}

/// Storage format of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvType {
    /// f32: 4 bytes per element.
    F32,
    /// f16: 2 bytes per element.
    F16,
    /// int8 with an f16 scale per 32 elements of a head.
    Q8_0,
    /// [`rf_quant::E4m3`]: 1 byte per element, without a scale, saturating at 448.
    Fp8,
    /// The weight format of this name: 4 bits and an f16 scale per 32 elements of a head, of its
    /// Hadamard transform ([`KvLayer::transform_len`]).
    Q4_0,
    /// As [`Self::Q4_0`], with 5 bits.
    Q5_0,
}

impl KvType {
    /// Every format, in the order of declaration.
    pub const ALL: [Self; 6] =
        [Self::F32, Self::F16, Self::Q8_0, Self::Fp8, Self::Q4_0, Self::Q5_0];

    /// The name in options and reports, such as `f16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Fp8 => "fp8",
            Self::Q4_0 => "q4_0",
            Self::Q5_0 => "q5_0",
        }
    }

    /// Bytes of one head of one token.
    fn head_bytes(self, head_dim: usize) -> usize {
        match self {
            Self::F32 => 4 * head_dim,
            Self::F16 => 2 * head_dim,
            Self::Q8_0 => head_dim + 2 * head_dim.div_ceil(32),
            Self::Fp8 => head_dim,
            Self::Q4_0 => 18 * head_dim.div_ceil(32),
            Self::Q5_0 => 22 * head_dim.div_ceil(32),
        }
    }

    /// Returns true if keys and values are stored after a Hadamard transform, which spreads single
    /// large elements over a head, so that the scale of 32 elements fits the others better.
    pub fn is_transformed(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q5_0)
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
