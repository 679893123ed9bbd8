// Generated from crates/rf-kernels/src/params/batch.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"

// Consecutive tokens of one sequence.
struct RfSpan {
    // Index of the first token in the per-token arrays.
    unsigned first_token;
    // Number of tokens.
    unsigned num_tokens;
    // Tokens of the sequence in the cache, which is the position of the span's first token.
    unsigned past_tokens;
    // Index into `Batch::pages`.
    unsigned first_page;
};
static_assert(sizeof(RfSpan) == 16);
static_assert(__builtin_offsetof(RfSpan, first_token) == 0);
static_assert(__builtin_offsetof(RfSpan, num_tokens) == 4);
static_assert(__builtin_offsetof(RfSpan, past_tokens) == 8);
static_assert(__builtin_offsetof(RfSpan, first_page) == 12);

// A batch. All data that changes between steps is in device memory behind these pointers, so
// that a captured graph can be replayed. The counts are fixed per launch: batches of one shape
// differ only in the contents of the arrays.
struct RfBatch {
    // `[num_tokens]`.
    const unsigned *ids;
    // `[num_tokens]`: `past_tokens` plus the index in the span.
    const unsigned *positions;
    // `[num_tokens]`: the span of each token.
    const unsigned *span_of;
    // `[num_spans]` of `Span`.
    const RfSpan *spans;
    // Page numbers of all spans, each in order of positions.
    const unsigned *pages;
    // `[num_outputs]`: rows of the batch whose output is requested.
    const unsigned *output_rows;
    // Tokens of all spans.
    unsigned num_tokens;
    // Number of spans.
    unsigned num_spans;
    // Number of output rows.
    unsigned num_outputs;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfBatch) == 64);
static_assert(__builtin_offsetof(RfBatch, ids) == 0);
static_assert(__builtin_offsetof(RfBatch, positions) == 8);
static_assert(__builtin_offsetof(RfBatch, span_of) == 16);
static_assert(__builtin_offsetof(RfBatch, spans) == 24);
static_assert(__builtin_offsetof(RfBatch, pages) == 32);
static_assert(__builtin_offsetof(RfBatch, output_rows) == 40);
static_assert(__builtin_offsetof(RfBatch, num_tokens) == 48);
static_assert(__builtin_offsetof(RfBatch, num_spans) == 52);
static_assert(__builtin_offsetof(RfBatch, num_outputs) == 56);
static_assert(__builtin_offsetof(RfBatch, reserved) == 60);

// The cache of one layer. A page of it holds the keys and values of `page_tokens` positions,
// and the pages lie one after the other:
//
// - keys and values: `[num_kv_heads][page_tokens][head_dim]` of the storage format, for `q4_0`
//   and `q5_0` in words of eight elements; for `q5_0` a head has `[page_tokens][head_dim / 8]`
//   bytes of fifth bits after its words;
// - scales of keys and of values: `[num_kv_heads][page_tokens][⌈head_dim / 32⌉]` f16, `q8_0`,
//   `q4_0` and `q5_0` only.
struct RfKvCache {
    // Address of the first page.
    unsigned char *pages;
    // Distance between pages, in bytes.
    unsigned long long page_bytes;
    // Offset of the layer's keys in a page, in bytes.
    unsigned keys;
    // Offset of the layer's values, in bytes.
    unsigned values;
    // Offset of the layer's key scales, in bytes.
    unsigned key_scales;
    // Offset of the layer's value scales, in bytes.
    unsigned value_scales;
    // Positions per page: 16, 32 or 64.
    unsigned page_tokens;
    // Heads of keys and values.
    unsigned num_kv_heads;
    // Elements of a head.
    unsigned head_dim;
    // Storage format: `RfKvType`.
    unsigned kv_type;
    // Elements that a Hadamard transform combines, a power of two; 1 without one.
    unsigned transform_len;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfKvCache) == 56);
static_assert(__builtin_offsetof(RfKvCache, pages) == 0);
static_assert(__builtin_offsetof(RfKvCache, page_bytes) == 8);
static_assert(__builtin_offsetof(RfKvCache, keys) == 16);
static_assert(__builtin_offsetof(RfKvCache, values) == 20);
static_assert(__builtin_offsetof(RfKvCache, key_scales) == 24);
static_assert(__builtin_offsetof(RfKvCache, value_scales) == 28);
static_assert(__builtin_offsetof(RfKvCache, page_tokens) == 32);
static_assert(__builtin_offsetof(RfKvCache, num_kv_heads) == 36);
static_assert(__builtin_offsetof(RfKvCache, head_dim) == 40);
static_assert(__builtin_offsetof(RfKvCache, kv_type) == 44);
static_assert(__builtin_offsetof(RfKvCache, transform_len) == 48);
static_assert(__builtin_offsetof(RfKvCache, reserved) == 52);
