// Addresses of keys and values in the paged cache. All page arithmetic of the kernels is here;
// params/batch.h describes the layout.
#pragma once

#include "rf/device.h"
#include "rf/params/batch.h"

namespace rf {

// The half of the cache.
enum class KvHalf { Key, Value };

// Elements of a head that share an f16 scale in q8_0, q4_0 and q5_0; the last group of a head may
// be smaller.
constexpr u32 KV_GROUP = 32;
// The elements of a row per lane, of which q5_0 has the fifth bits in a byte.
constexpr u32 KV_CHUNK = 8;

// The type of the kernels for elements of less than a byte: q4_0 and q5_0, which RfKvCache::kv_type
// tells apart at run time. They differ in few instructions, and have half the code together.
constexpr RfKvType KV_PACKED = RF_KV_Q4_0;

RF_DEVICE bool kv_has_fifth_bits(const RfKvCache &cache) { return cache.kv_type == RF_KV_Q5_0; }

// Bytes of whole chunks of elements, without scales and fifth bits.
RF_DEVICE u32 kv_bytes(u32 type, u32 elements) {
    if (type == RF_KV_F32) return 4 * elements;
    if (type == RF_KV_F16) return 2 * elements;
    return type < KV_PACKED ? elements : elements / 2;
}
// Bytes of the fifth bits of rows.
RF_DEVICE u32 kv_fifth_bits_bytes(const RfKvCache &cache, u32 rows) {
    return kv_has_fifth_bits(cache) ? rows * (cache.head_dim / KV_CHUNK) : 0;
}

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
    u32 rows = kv_head * cache.page_tokens;
    return first + (rows + slot) * kv_bytes(cache.kv_type, cache.head_dim) + kv_fifth_bits_bytes(cache, rows);
}

// Byte offset of the fifth bits of a head at slot 0 from its elements; 0 without fifth bits.
// Consecutive slots are `head_dim` / 8 bytes apart.
RF_DEVICE u32 kv_fifth_bits_offset(const RfKvCache &cache) {
    return kv_has_fifth_bits(cache) ? cache.page_tokens * cache.head_dim / 2 : 0;
}

// Byte offset within a page of the ⌈head_dim / 32⌉ scales (f16) of a head at a slot; q8_0, q4_0 and
// q5_0 only.
template <KvHalf HALF>
RF_DEVICE u32 kv_scale_offset(const RfKvCache &cache, u32 kv_head, u32 slot) {
    u32 first = HALF == KvHalf::Key ? cache.key_scales : cache.value_scales;
    return first + (kv_head * cache.page_tokens + slot) * kv_groups(cache) * (u32)sizeof(f16);
}

// The places of a row: elements and, in the formats that have them, fifth bits and scales.
struct KvPlace {
    u8 *elements, *fifth_bits;
    f16 *scales;

    template <KvHalf HALF>
    RF_DEVICE_MEMBER static KvPlace in_page(const RfKvCache &cache, u8 *page, u32 kv_head, u32 slot) {
        u8 *elements = page + kv_row_offset<HALF>(cache, kv_head, slot);
        u8 *first = elements - slot * kv_bytes(cache.kv_type, cache.head_dim);
        return {elements, first + kv_fifth_bits_offset(cache) + kv_fifth_bits_bytes(cache, slot),
                reinterpret_cast<f16 *>(page + kv_scale_offset<HALF>(cache, kv_head, slot))};
    }
};

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

// The scale of q4_0 and q5_0 as rf_quant has it: the element with the largest magnitude gets the
// code 0, whose value is −8 or −16 scales.
RF_DEVICE float packed_scale(const RfKvCache &cache, float largest) {
    float scale = largest / (kv_has_fifth_bits(cache) ? -16.0f : -8.0f);
    return __builtin_fmaxf(__builtin_fminf(scale, 65504.0f), -65504.0f);
}
// The code of an element: 4 or 5 bits.
RF_DEVICE u32 packed_code(const RfKvCache &cache, float x, float scale) {
    float inverse = 1.0f / scale, half = kv_has_fifth_bits(cache) ? 16.0f : 8.0f;
    inverse = __builtin_fabsf(inverse) < __builtin_inff() ? inverse : 0.0f;
    // Not fused, as in rf_quant.
    float level = x * inverse + (half + 0.5f);
    return (u32)__builtin_fmaxf(__builtin_fminf(level, 2.0f * half - 1.0f), 0.0f);
}
// The place of element `i` of a chunk among the nibbles of a word, and of its fifth bit in a byte:
// elements 2n and 2n + 1 are 16 bits apart, as the halves of a register are.
RF_DEVICE u32 packed_place(u32 i) { return i / 2 + i % 2 * 4; }

} // namespace rf
