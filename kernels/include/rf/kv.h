// Addresses of keys and values in the paged cache. All page arithmetic of the kernels is here;
// params/batch.h describes the layout.
#pragma once

#include "rf/device.h"
#include "rf/params/batch.h"

namespace rf {

// The half of the cache.
enum class KvHalf { Key, Value };

// Elements of a head that share an f16 scale in q8_0; the last group of a head may be smaller.
constexpr u32 KV_GROUP = 32;

RF_DEVICE u32 kv_element_bytes(u32 type) { return type == RF_KV_F32 ? 4 : type == RF_KV_F16 ? 2 : 1; }

RF_DEVICE u32 kv_groups(const RfKvCache &cache) { return (cache.head_dim + KV_GROUP - 1) / KV_GROUP; }

// The page with an index.
RF_DEVICE u8 *kv_page(const RfKvCache &cache, u32 page) { return cache.pages + page * cache.page_bytes; }

// The page of a position of a sequence. `table` contains the sequence's pages in order:
// RfBatch::pages + RfSpan::first_page.
RF_DEVICE u8 *kv_page_of(const RfKvCache &cache, const u32 *table, u32 position) {
    return kv_page(cache, table[position >> __builtin_ctz(cache.page_tokens)]);
}

// The slot of a position within its page.
RF_DEVICE u32 kv_slot(const RfKvCache &cache, u32 position) { return position & (cache.page_tokens - 1); }

// Byte offset within a page of the `head_dim` elements of a head at a slot. Consecutive slots are
// `head_dim` elements apart.
template <KvHalf HALF>
RF_DEVICE u32 kv_row_offset(const RfKvCache &cache, u32 kv_head, u32 slot) {
    u32 first = HALF == KvHalf::Key ? cache.keys : cache.values;
    return first + (kv_head * cache.page_tokens + slot) * cache.head_dim * kv_element_bytes(cache.kv_type);
}

// Byte offset within a page of the ⌈head_dim / 32⌉ scales (f16) of a head at a slot; q8_0 only.
template <KvHalf HALF>
RF_DEVICE u32 kv_scale_offset(const RfKvCache &cache, u32 kv_head, u32 slot) {
    u32 first = HALF == KvHalf::Key ? cache.key_scales : cache.value_scales;
    return first + (kv_head * cache.page_tokens + slot) * kv_groups(cache) * (u32)sizeof(f16);
}

// The span of a token, without await_previous_kernels: the first op of a step starts after the
// arrays of the batch are complete.
RF_DEVICE RfSpan span_of_token(const RfBatch &batch, u32 token) {
    const RfSpan *span = batch.spans + read_done(batch.span_of + token);
    return __builtin_bit_cast(RfSpan, read_done(reinterpret_cast<const u32x4 *>(span)));
}

// Q8_0 as rf_quant has it: d = max|x| / 127 in f32, 1/d is computed before d is rounded to f16,
// q = x · (1/d), ties away from zero.
RF_DEVICE float q8_0_scale(float largest) { return __builtin_fminf(largest / 127.0f, 65504.0f); }
RF_DEVICE u8 q8_0_code(float x, float inverse) {
    float level = inverse < __builtin_inff() ? __builtin_fabsf(x * inverse) : 0.0f;
    // One ulp below one half: with one half, 0.49999997 would be rounded to 1.
    i32 q = (i32)(level + 0x1.fffffep-2f);
    return (u8)(x < 0.0f ? -q : q);
}

} // namespace rf
