// A batch and the KV cache as kernel parameters. Twin: crates/rf-kernels/src/params/batch.rs.
#pragma once

// Consecutive tokens of one sequence.
struct RfSpan {
    unsigned first_token; // index into the arrays per token
    unsigned num_tokens;
    unsigned past_tokens; // already in the cache: the position of the first token
    unsigned first_page;  // index into RfBatch::pages
};

// All data that changes between steps is in device memory behind these pointers, so that a captured
// graph can be replayed. The counts are fixed per launch.
struct RfBatch {
    const unsigned *ids;       // [num_tokens]
    const unsigned *positions; // [num_tokens]: past_tokens + place in the span
    const unsigned *span_of;   // [num_tokens]
    const RfSpan *spans;       // [num_spans]
    const unsigned *pages;     // page indices of all spans, each in order of positions
    const unsigned *output_rows; // [num_outputs]: rows of the batch with outputs
    unsigned num_tokens;
    unsigned num_spans;
    unsigned num_outputs;
    unsigned reserved;
};

// Storage formats; the numbers are those of KvType in params/batch.rs.
enum RfKvType : unsigned { RF_KV_F32 = 0, RF_KV_F16 = 1, RF_KV_Q8_0 = 2, RF_KV_FP8 = 3 };

// The cache of one layer. A page of it holds the keys and values of `page_tokens` positions, and
// the pages lie one after the other:
//
//   keys, values              [num_kv_heads][page_tokens][head_dim] of the storage format
//   key_scales, value_scales  [num_kv_heads][page_tokens][⌈head_dim / 32⌉] of f16, q8_0 only
struct RfKvCache {
    unsigned char *pages;
    unsigned long long page_bytes;
    // Byte offsets within a page.
    unsigned keys;
    unsigned values;
    unsigned key_scales;
    unsigned value_scales;
    unsigned page_tokens; // 16, 32 or 64
    unsigned num_kv_heads;
    unsigned head_dim;
    unsigned type; // RfKvType
};
