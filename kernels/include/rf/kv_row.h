// Loads keys and values from the cache: eight consecutive elements of a head per lane.
#pragma once

#include "rf/hadamard.h"
#include "rf/kv.h"

namespace rf {

namespace detail {

// Bytes 0 … 3 of a word as four f16; `even` and `odd` hold bytes 0, 2 and 1, 3 in their halves.
RF_DEVICE f16x4 interleave(u32 even, u32 odd) {
    f16x2 e = __builtin_bit_cast(f16x2, even), o = __builtin_bit_cast(f16x2, odd);
    return {e[0], o[0], e[1], o[1]};
}

// Four int8 as f16, exactly: a byte with its sign bit flipped is the mantissa of 1024 + 128 +
// value.
RF_DEVICE f16x4 f16_from_i8(u32 bytes) {
    u32 turned = bytes ^ 0x80808080u;
#if RF_AMD
    f16x2 low = __builtin_bit_cast(f16x2, __builtin_amdgcn_perm(0x64646464u, turned, 0x04010400u));
    f16x2 high = __builtin_bit_cast(f16x2, __builtin_amdgcn_perm(0x64646464u, turned, 0x04030402u));
#else
    u32 first, last;
    asm("prmt.b32 %0, %1, %2, 0x4140;" : "=r"(first) : "r"(turned), "r"(0x64646464u));
    asm("prmt.b32 %0, %1, %2, 0x4342;" : "=r"(last) : "r"(turned), "r"(0x64646464u));
    f16x2 low = __builtin_bit_cast(f16x2, first), high = __builtin_bit_cast(f16x2, last);
#endif
    low -= (f16)1152.0f;
    high -= (f16)1152.0f;
    return {low[0], low[1], high[0], high[1]};
}

// Four E4M3 as f16, scaled by 2^-8: exponent and mantissa are moved to their places in an f16.
RF_DEVICE f16x4 f16_from_fp8(u32 bytes) {
    u32 odd = (bytes & 0x80008000u) | (bytes & 0x7f007f00u) >> 1;
    u32 shifted = bytes << 8;
    u32 even = (shifted & 0x80008000u) | (shifted & 0x7f007f00u) >> 1;
    return interleave(even, odd);
}

RF_DEVICE f16x8 join(f16x4 low, f16x4 high) { return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7); }

} // namespace detail

// A storage format. Raw is the data that a lane loads; values() returns the elements divided by
// FACTOR and, if SCALED, by the scale of their group. If TRANSFORMED, they are elements of the
// Hadamard transform.
template <RfKvType TYPE>
struct KvRow;

template <>
struct KvRow<RF_KV_F32> {
    static constexpr bool SCALED = false, TRANSFORMED = false;
    static constexpr float FACTOR = 1.0f;
    struct Raw {
        f32x4 low, high;
    };
    using Values = f32x8;
    RF_DEVICE_MEMBER static Values values(const Raw &raw, const RfKvCache &) {
        return __builtin_shufflevector(raw.low, raw.high, 0, 1, 2, 3, 4, 5, 6, 7);
    }
};

template <>
struct KvRow<RF_KV_F16> {
    static constexpr bool SCALED = false, TRANSFORMED = false;
    static constexpr float FACTOR = 1.0f;
    using Raw = u32x4;
    using Values = f16x8;
    RF_DEVICE_MEMBER static Values values(const Raw &raw, const RfKvCache &) { return __builtin_bit_cast(f16x8, raw); }
};

template <>
struct KvRow<RF_KV_Q8_0> {
    static constexpr bool SCALED = true, TRANSFORMED = false;
    static constexpr float FACTOR = 1.0f;
    using Raw = u32x2;
    using Values = f16x8;
    RF_DEVICE_MEMBER static Values values(const Raw &raw, const RfKvCache &) {
        return detail::join(detail::f16_from_i8(raw[0]), detail::f16_from_i8(raw[1]));
    }
};

template <>
struct KvRow<RF_KV_FP8> {
    static constexpr bool SCALED = false, TRANSFORMED = false;
    static constexpr float FACTOR = 256.0f;
    using Raw = u32x2;
    using Values = f16x8;
    RF_DEVICE_MEMBER static Values values(const Raw &raw, const RfKvCache &) {
        return detail::join(detail::f16_from_fp8(raw[0]), detail::f16_from_fp8(raw[1]));
    }
};

template <>
struct KvRow<KV_PACKED> {
    static constexpr bool SCALED = true, TRANSFORMED = true;
    static constexpr float FACTOR = 1.0f;
    struct Raw {
        u32 nibbles;
        u32 fifth_bits; // of q5_0; any byte of q4_0
    };
    using Values = f16x8;
    RF_DEVICE_MEMBER static Values values(const Raw &raw, const RfKvCache &cache) {
        // A code is the mantissa of 1024 + code. The fifth bits of pairs of elements are 16 bits
        // apart after a shift, as the nibbles are; the mask drops those of q4_0.
        bool has_fifth_bits = kv_has_fifth_bits(cache);
        u32 mask = has_fifth_bits ? 0x00100010u : 0, spread = raw.fifth_bits | raw.fifth_bits << 12;
        f16 zero = has_fifth_bits ? (f16)1040.0f : (f16)1032.0f;
        f16x8 values;
#pragma unroll
        for (u32 pair = 0; pair < KV_CHUNK / 2; pair++) {
            u32 code = (raw.nibbles >> 4 * pair & 0x000f000fu) | 0x64006400u;
            code |= spread << (4 - pair) & mask;
            f16x2 two = __builtin_bit_cast(f16x2, code) - f16x2{zero, zero};
            values[2 * pair] = two[0];
            values[2 * pair + 1] = two[1];
        }
        return values;
    }
};

// The factor that makes a transform of the rows of a format its own inverse.
template <RfKvType TYPE>
RF_DEVICE float transform_factor(const RfKvCache &cache) {
    if constexpr (KvRow<TYPE>::TRANSFORMED) return hadamard_factor(cache.transform_len);
    return 1.0f;
}

// The rows of one head in one page: keys or values.
template <RfKvType TYPE>
struct KvHead {
    const u8 *rows;
    const u8 *scales; // q8_0, q4_0 and q5_0 only
    u32 row_bytes;
    u32 scale_bytes; // of a row
    // q4_0 and q5_0 only: the byte with the fifth bits of a chunk is after the rows, a fourth of
    // the chunk's offset from there. q4_0 loads a byte of its elements instead, which is near.
    u32 fifth_bits, fifth_bits_shift;

    template <KvHalf HALF>
    RF_DEVICE_MEMBER static KvHead in_page(const RfKvCache &cache, const u8 *page, u32 kv_head) {
        // The type is known at compile time: offsets need no selection at run time.
        RfKvCache known = cache;
        known.kv_type = TYPE;
        KvHead head = {};
        head.rows = page + kv_row_offset<HALF>(known, kv_head, 0);
        head.row_bytes = kv_bytes(TYPE, cache.head_dim);
        if constexpr (KvRow<TYPE>::SCALED) {
            head.scales = page + kv_scale_offset<HALF>(known, kv_head, 0);
            head.scale_bytes = kv_groups(cache) * (u32)sizeof(f16);
        }
        if constexpr (TYPE == KV_PACKED) {
            head.rows += kv_fifth_bits_bytes(cache, kv_head * cache.page_tokens);
            head.fifth_bits = kv_fifth_bits_offset(cache);
            head.fifth_bits_shift = kv_has_fifth_bits(cache) ? 2 : 0;
        }
        return head;
    }

    RF_DEVICE_MEMBER u32 offset(u32 slot, u32 chunk) const {
        return slot * row_bytes + chunk * kv_bytes(TYPE, KV_CHUNK);
    }
    RF_DEVICE_MEMBER const typename KvRow<TYPE>::Raw *address(u32 slot, u32 chunk) const {
        return reinterpret_cast<const typename KvRow<TYPE>::Raw *>(rows + offset(slot, chunk));
    }
    RF_DEVICE_MEMBER typename KvRow<TYPE>::Raw fetch(u32 slot, u32 chunk) const {
        if constexpr (TYPE == KV_PACKED) {
            u32 own = offset(slot, chunk);
            return {*reinterpret_cast<const u32 *>(rows + own), rows[fifth_bits + (own >> fifth_bits_shift)]};
        } else {
            return *address(slot, chunk);
        }
    }

    // The bits of the chunk's scale.
    RF_DEVICE_MEMBER u16 fetch_scale(u32 slot, u32 chunk) const {
        u32 offset = slot * scale_bytes + chunk / (KV_GROUP / KV_CHUNK) * (u32)sizeof(f16);
        return *reinterpret_cast<const u16 *>(scales + offset);
    }
};

} // namespace rf
