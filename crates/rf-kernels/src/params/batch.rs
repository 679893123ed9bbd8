//! Twin of `kernels/include/rf/params/batch.h`.

use bytemuck::{Pod, Zeroable};

use super::Address;

/// Consecutive tokens of one sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Span {
    /// Index of the first token in the per-token arrays.
    pub first_token: u32,
    /// Number of tokens.
    pub num_tokens: u32,
    /// Tokens of the sequence in the cache, which is the position of the span's first token.
    pub past_tokens: u32,
    /// Index into [`Batch::pages`].
    pub first_page: u32,
}

/// A batch. Batches of one shape differ only in the contents of the arrays.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Batch {
    /// `[num_tokens]` u32.
    pub ids: Address,
    /// `[num_tokens]` u32: `past_tokens` plus the index in the span.
    pub positions: Address,
    /// `[num_tokens]` u32: the span of each token.
    pub span_of: Address,
    /// `[num_spans]` of [`Span`].
    pub spans: Address,
    /// Page numbers of all spans, u32.
    pub pages: Address,
    /// `[num_outputs]` u32: rows of the batch whose output is requested.
    pub output_rows: Address,
    /// Tokens of all spans.
    pub num_tokens: u32,
    /// Number of spans.
    pub num_spans: u32,
    /// Number of output rows.
    pub num_outputs: u32,
    /// Zero.
    pub reserved: u32,
}

/// The cache of one layer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct KvCache {
    /// Address of the first page.
    pub pages: Address,
    /// Distance between pages, in bytes.
    pub page_bytes: u64,
    /// Offset of the layer's keys in a page, in bytes.
    pub keys: u32,
    /// Offset of the layer's values, in bytes.
    pub values: u32,
    /// Offset of the layer's key scales (`q8_0`), in bytes.
    pub key_scales: u32,
    /// Offset of the layer's value scales (`q8_0`), in bytes.
    pub value_scales: u32,
    /// Positions per page.
    pub page_tokens: u32,
    /// Heads of keys and values.
    pub num_kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Storage format: 0 f32, 1 f16, 2 `q8_0`, 3 fp8.
    pub kv_type: u32,
}
