//! Parameters and launches. `kernels/include/rf/params/batch.h` is generated from the table.

use super::table::params;

params! {
    /// Consecutive tokens of one sequence.
    struct Span {
        /// Index of the first token in the per-token arrays.
        first_token: u32,
        /// Number of tokens.
        num_tokens: u32,
        /// Tokens of the sequence in the cache, which is the position of the span's first token.
        past_tokens: u32,
        /// Index into [`Batch::pages`].
        first_page: u32,
    }

    /// A batch. All data that changes between steps is in device memory behind these pointers, so
    /// that a captured graph can be replayed. The counts are fixed per launch: batches of one shape
    /// differ only in the contents of the arrays.
    struct Batch {
        /// `[num_tokens]`.
        ids: *const u32,
        /// `[num_tokens]`: `past_tokens` plus the index in the span.
        positions: *const u32,
        /// `[num_tokens]`: the span of each token.
        span_of: *const u32,
        /// `[num_spans]` of [`Span`].
        spans: *const Span,
        /// Page numbers of all spans, each in order of positions.
        pages: *const u32,
        /// `[num_outputs]`: rows of the batch whose output is requested.
        output_rows: *const u32,
        /// Tokens of all spans.
        num_tokens: u32,
        /// Number of spans.
        num_spans: u32,
        /// Number of output rows.
        num_outputs: u32,
        /// Zero.
        reserved: u32,
    }

    /// The cache of one layer. A page of it holds the keys and values of `page_tokens` positions,
    /// and the pages lie one after the other:
    ///
    /// - keys and values: `[num_kv_heads][page_tokens][head_dim]` of the storage format, for `q4_0`
    ///   and `q5_0` in words of eight elements; for `q5_0` a head has `[page_tokens][head_dim / 8]`
    ///   bytes of fifth bits after its words;
    /// - scales of keys and of values: `[num_kv_heads][page_tokens][⌈head_dim / 32⌉]` f16, `q8_0`,
    ///   `q4_0` and `q5_0` only.
    struct KvCache {
        /// Address of the first page.
        pages: *mut u8,
        /// Distance between pages, in bytes.
        page_bytes: u64,
        /// Offset of the layer's keys in a page, in bytes.
        keys: u32,
        /// Offset of the layer's values, in bytes.
        values: u32,
        /// Offset of the layer's key scales, in bytes.
        key_scales: u32,
        /// Offset of the layer's value scales, in bytes.
        value_scales: u32,
        /// Positions per page: 16, 32 or 64.
        page_tokens: u32,
        /// Heads of keys and values.
        num_kv_heads: u32,
        /// Elements of a head.
        head_dim: u32,
        /// Storage format: `RfKvType`.
        kv_type: u32,
        /// Elements that a Hadamard transform combines, a power of two; 1 without one.
        transform_len: u32,
        /// Zero.
        reserved: u32,
    }
}

/// Kernels of attention by [`KvCache::kernel_type`].
pub(crate) const CACHE_KERNELS: usize = 5;

impl KvCache {
    /// The kernels of attention that read the cache: those of its type, or those of elements of
    /// less than a byte.
    pub(crate) fn kernel_type(&self) -> usize {
        (self.kv_type as usize).min(CACHE_KERNELS - 1)
    }
}
