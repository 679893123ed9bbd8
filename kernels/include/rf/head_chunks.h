// Heads as attention loads them, where LANES lanes hold a head in chunks of eight elements:
// norm, RoPE, and the write to the cache. rf/heads.h does the same with a wave per head and smaller
// accesses to memory.
//
// A lane has PARTS chunks. RF_ROPE_NEOX pairs the elements of two chunks, and RF_ROPE_NORMAL those
// of one, if 16 · n elements are rotated; the host uses rf/heads.h for others.
#pragma once

#include "rf/estimate.h"
#include "rf/fp8.h"
#include "rf/kv_row.h"
#include "rf/params/rope.h"

namespace rf {

// The chunks that a lane has; one that is not inside is the last of the head instead.
template <u32 LANES, u32 PARTS>
struct ChunkPlaces {
    u32 chunk[PARTS];
    bool inside[PARTS];

    RF_DEVICE_MEMBER static ChunkPlaces of(u32 head_dim) {
        ChunkPlaces places;
        u32 chunks = head_dim / KV_CHUNK;
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            u32 chunk = part * LANES + lane() % LANES;
            places.inside[part] = chunk < chunks;
            places.chunk[part] = chunk < chunks ? chunk : chunks - 1;
        }
        return places;
    }
};

// The elements of a head that a lane has.
template <u32 PARTS>
using Chunks = float[PARTS * KV_CHUNK];

template <u32 PARTS>
RF_DEVICE void read_chunks(Chunks<PARTS> &x, const float *row, const u32 (&chunk)[PARTS]) {
#pragma unroll
    for (u32 part = 0; part < PARTS; part++) {
        const f32x4 *from = reinterpret_cast<const f32x4 *>(row + chunk[part] * KV_CHUNK);
        f32x4 low = from[0], high = from[1];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            x[part * KV_CHUNK + i] = low[i];
            x[part * KV_CHUNK + i + 4] = high[i];
        }
    }
}

// The rotation of the chunks of a lane at a position.
template <u32 PARTS>
struct ChunkTurns {
    Chunks<PARTS> cos, sin; // sin is negated for the first element of a pair
    u32 across[PARTS];      // the chunk with the other elements of pairs of RF_ROPE_NEOX
    bool neox;

    RF_DEVICE_MEMBER static ChunkTurns read(const RfRopeTable &rope, u32 position, const u32 (&chunk)[PARTS]) {
        ChunkTurns turns;
        turns.neox = rope.style == RF_ROPE_NEOX;
        const f32x4 *table = reinterpret_cast<const f32x4 *>(rope.table + (u64)position * rope.dims);
        u32 half = rope.dims / 2 / KV_CHUNK;
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            u32 own = chunk[part];
            // Elements from `dims` on pass through.
            bool turned = own * KV_CHUNK < rope.dims;
            float *cos = turns.cos + part * KV_CHUNK, *sin = turns.sin + part * KV_CHUNK;
            if (turns.neox) {
                bool is_first = own < half;
                u32 pairs = is_first ? own : own - half;
                turns.across[part] = is_first ? own + half : pairs;
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    f32x4 two = table[turned ? pairs * 4 + i : 0];
#pragma unroll
                    for (u32 j = 0; j < 2; j++) {
                        cos[2 * i + j] = turned ? two[2 * j] : 1.0f;
                        sin[2 * i + j] = !turned ? 0.0f : is_first ? -two[2 * j + 1] : two[2 * j + 1];
                    }
                }
            } else {
                turns.across[part] = own;
#pragma unroll
                for (u32 i = 0; i < 2; i++) {
                    f32x4 two = table[turned ? own * 2 + i : 0];
#pragma unroll
                    for (u32 j = 0; j < 2; j++) {
                        u32 first = 4 * i + 2 * j;
                        cos[first] = cos[first + 1] = turned ? two[2 * j] : 1.0f;
                        sin[first + 1] = turned ? two[2 * j + 1] : 0.0f;
                        sin[first] = -sin[first + 1];
                    }
                }
            }
        }
        return turns;
    }
};

// rope(x / √(mean(x²) + eps) · weight), or rope(x) without weights, of HEADS heads, where `changes`
// is set. For all lanes of a wave.
template <u32 LANES, u32 PARTS, u32 HEADS>
RF_DEVICE void turn_heads(Chunks<PARTS> (&x)[HEADS], const ChunkPlaces<LANES, PARTS> &places,
                          const ChunkTurns<PARTS> &turns, const float *weight, float eps, u32 head_dim,
                          bool changes = true) {
    if (weight) {
        Chunks<PARTS> own;
        read_chunks<PARTS>(own, weight, places.chunk);
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            float sum = 0.0f;
#pragma unroll
            for (u32 i = 0; i < PARTS * KV_CHUNK; i++) {
                sum = places.inside[i / KV_CHUNK] ? fma(x[h][i], x[h][i], sum) : sum;
            }
            float scale = rsqrt(wave_sum<LANES>(sum) * reciprocal_estimate((float)head_dim) + eps);
#pragma unroll
            for (u32 i = 0; i < PARTS * KV_CHUNK; i++) x[h][i] *= changes ? scale * own[i] : 1.0f;
        }
    }
    // The lanes that hold the same head.
    u32 first_lane = computed_here(lane()) & ~(LANES - 1);
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        Chunks<PARTS> pair;
#pragma unroll
        for (u32 i = 0; i < PARTS * KV_CHUNK; i++) pair[i] = x[h][i ^ 1];
        if (turns.neox) {
#pragma unroll
            for (u32 i = 0; i < PARTS * KV_CHUNK; i++) {
                u32 across = turns.across[i / KV_CHUNK], source = first_lane + across % LANES;
                pair[i] = read_lane(x[h][i % KV_CHUNK], source);
                if constexpr (PARTS == 2) {
                    float later = read_lane(x[h][i % KV_CHUNK + KV_CHUNK], source);
                    pair[i] = across < LANES ? pair[i] : later;
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i < PARTS * KV_CHUNK; i++) {
            x[h][i] = changes ? fma(x[h][i], turns.cos[i], pair[i] * turns.sin[i]) : x[h][i];
        }
    }
}

// Quantises a chunk to four or five bits; four lanes have the chunks of a group. For all lanes of a
// wave.
RF_DEVICE void store_packed(const RfKvCache &cache, const float (&x)[KV_CHUNK], bool inside, bool writes, u32 chunk,
                            const KvPlace &to) {
    // Not from 0 on: then clang 19 compares the magnitude of the second element with the first
    // element itself.
    float largest = x[0];
#pragma unroll
    for (u32 i = 1; i < KV_CHUNK; i++) largest = __builtin_fabsf(x[i]) > __builtin_fabsf(largest) ? x[i] : largest;
    largest = inside ? largest : 0.0f;
    // Of equal magnitudes the first one gives the sign.
    auto first = [&](float other, u32 mask) {
        float own = __builtin_fabsf(largest), across = __builtin_fabsf(other);
        return across > own || (across == own && lane() & mask) ? other : largest;
    };
    largest = first(xor_lane<1>(largest), 1);
    largest = first(xor_lane<2>(largest), 2);
    float scale = packed_scale(cache, largest);
    u32 nibbles = 0, bits = 0;
#pragma unroll
    for (u32 i = 0; i < KV_CHUNK; i++) {
        u32 code = packed_code(cache, x[i], scale);
        nibbles |= (code & 15) << 4 * packed_place(i);
        bits |= code >> 4 << packed_place(i);
    }
    if (!inside || !writes) return;
    reinterpret_cast<u32 *>(to.elements)[chunk] = nibbles;
    if (kv_has_fifth_bits(cache)) to.fifth_bits[chunk] = (u8)bits;
    if (chunk % (KV_GROUP / KV_CHUNK) == 0) to.scales[chunk / (KV_GROUP / KV_CHUNK)] = (f16)scale;
}

// Stores a head in a row of the cache, where `writes` is set. For all lanes of a wave.
template <RfKvType TYPE, u32 LANES, u32 PARTS>
RF_DEVICE void store_chunks(const Chunks<PARTS> &x, const ChunkPlaces<LANES, PARTS> &places, bool writes,
                            const RfKvCache &cache, const KvPlace &place) {
    if constexpr (TYPE == KV_PACKED) {
        Chunks<PARTS> y;
#pragma unroll
        for (u32 i = 0; i < PARTS * KV_CHUNK; i++) y[i] = x[i];
        hadamard<KV_CHUNK, LANES>(y, cache.transform_len);
        float factor = transform_factor<TYPE>(cache);
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            float own[KV_CHUNK];
#pragma unroll
            for (u32 i = 0; i < KV_CHUNK; i++) own[i] = y[part * KV_CHUNK + i] * factor;
            store_packed(cache, own, places.inside[part], writes, places.chunk[part], place);
        }
        return;
    }
#pragma unroll
    for (u32 part = 0; part < PARTS; part++) {
        const float *own = x + part * KV_CHUNK;
        u32 chunk = places.chunk[part];
        bool inside = places.inside[part] && writes;
        u8 *to = place.elements + chunk * kv_bytes(TYPE, KV_CHUNK);
        if constexpr (TYPE == RF_KV_F32) {
            if (inside) reinterpret_cast<f32x4 *>(to)[0] = f32x4{own[0], own[1], own[2], own[3]};
            if (inside) reinterpret_cast<f32x4 *>(to)[1] = f32x4{own[4], own[5], own[6], own[7]};
        } else if constexpr (TYPE == RF_KV_F16) {
            f16x8 halves;
#pragma unroll
            for (u32 i = 0; i < KV_CHUNK; i++) halves[i] = (f16)own[i];
            if (inside) *reinterpret_cast<f16x8 *>(to) = halves;
        } else {
            constexpr u32 GROUP_LANES = KV_GROUP / KV_CHUNK;
            float scale = 1.0f, inverse = 1.0f;
            if constexpr (TYPE == RF_KV_Q8_0) {
                float largest = 0.0f;
#pragma unroll
                for (u32 i = 0; i < KV_CHUNK; i++) largest = __builtin_fmaxf(largest, __builtin_fabsf(own[i]));
                scale = q8_0_scale(wave_max<GROUP_LANES>(places.inside[part] ? largest : 0.0f));
                inverse = 1.0f / scale;
                if (inside && chunk % GROUP_LANES == 0) place.scales[chunk / GROUP_LANES] = (f16)scale;
            }
            u32x2 codes = {0, 0};
#pragma unroll
            for (u32 i = 0; i < KV_CHUNK; i++) {
                u8 code = TYPE == RF_KV_Q8_0 ? q8_0_code(own[i], inverse) : fp8_e4m3_from_f32(own[i]);
                codes[i / 4] |= (u32)code << i % 4 * 8;
            }
            if (inside) *reinterpret_cast<u32x2 *>(to) = codes;
        }
    }
}

} // namespace rf
