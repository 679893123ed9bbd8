// Loads keys and values from the cache: eight consecutive elements of a head per lane.
#pragma once

#include "rf/kv.h"

namespace rf {

// The elements of a row per lane.
constexpr u32 KV_CHUNK = 8;

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
// FACTOR and, if SCALED, by the scale of their group.
template <RfKvType TYPE>
struct KvRow;

template <>
struct KvRow<RF_KV_F32> {
    static constexpr u32 BYTES = 4;
    static constexpr bool SCALED = false;
    static constexpr float FACTOR = 1.0f;
    struct Raw {
        f32x4 low, high;
    };
    using Values = f32x8;
    RF_DEVICE_MEMBER static Values values(const Raw &raw) {
        return __builtin_shufflevector(raw.low, raw.high, 0, 1, 2, 3, 4, 5, 6, 7);
    }
};

template <>
struct KvRow<RF_KV_F16> {
    static constexpr u32 BYTES = 2;
    static constexpr bool SCALED = false;
    static constexpr float FACTOR = 1.0f;
    using Raw = u32x4;
    using Values = f16x8;
    RF_DEVICE_MEMBER static Values values(const Raw &raw) { return __builtin_bit_cast(f16x8, raw); }
};

template <>
struct KvRow<RF_KV_Q8_0> {
    static constexpr u32 BYTES = 1;
    static constexpr bool SCALED = true;
    static constexpr float FACTOR = 1.0f;
    using Raw = u32x2;
    using Values = f16x8;
    RF_DEVICE_MEMBER static Values values(const Raw &raw) {
        return detail::join(detail::f16_from_i8(raw[0]), detail::f16_from_i8(raw[1]));
    }
};

template <>
struct KvRow<RF_KV_FP8> {
    static constexpr u32 BYTES = 1;
    static constexpr bool SCALED = false;
    static constexpr float FACTOR = 256.0f;
    using Raw = u32x2;
    using Values = f16x8;
    RF_DEVICE_MEMBER static Values values(const Raw &raw) {
        return detail::join(detail::f16_from_fp8(raw[0]), detail::f16_from_fp8(raw[1]));
    }
};

// The rows of one head in one page: keys or values.
template <RfKvType TYPE>
struct KvHead {
    const u8 *rows;
    const u8 *scales; // q8_0 only
    u32 row_bytes;
    u32 scale_bytes; // of a row

    template <KvHalf HALF>
    RF_DEVICE_MEMBER static KvHead in_page(const RfKvCache &cache, const u8 *page, u32 kv_head) {
        // The type is known at compile time: offsets need no selection at run time.
        RfKvCache known = cache;
        known.kv_type = TYPE;
        KvHead head = {page + kv_row_offset<HALF>(known, kv_head, 0), nullptr, cache.head_dim * KvRow<TYPE>::BYTES, 0};
        if constexpr (KvRow<TYPE>::SCALED) {
            head.scales = page + kv_scale_offset<HALF>(known, kv_head, 0);
            head.scale_bytes = kv_groups(cache) * (u32)sizeof(f16);
        }
        return head;
    }

    RF_DEVICE_MEMBER const typename KvRow<TYPE>::Raw *address(u32 slot, u32 chunk) const {
        u32 offset = slot * row_bytes + chunk * (KV_CHUNK * KvRow<TYPE>::BYTES);
        return reinterpret_cast<const typename KvRow<TYPE>::Raw *>(rows + offset);
    }
    RF_DEVICE_MEMBER typename KvRow<TYPE>::Raw fetch(u32 slot, u32 chunk) const { return *address(slot, chunk); }

    // The bits of the chunk's scale.
    RF_DEVICE_MEMBER u16 fetch_scale(u32 slot, u32 chunk) const {
        u32 offset = slot * scale_bytes + chunk / (KV_GROUP / KV_CHUNK) * (u32)sizeof(f16);
        return *reinterpret_cast<const u16 *>(scales + offset);
    }
};

} // namespace rf
