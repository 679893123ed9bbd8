// Heads of queries, keys and values: load, normalise, rotate, store in the cache.
//
// A wave holds one head of one token: lane l holds its elements l, l + 32, l + 64 …, STEPS in all.
#pragma once

#include "rf/estimate.h"
#include "rf/fp8.h"
#include "rf/hadamard.h"
#include "rf/kv.h"
#include "rf/lanes.h"
#include "rf/params/rope.h"

namespace rf {

constexpr u32 MAX_HEAD_DIM = 512;

template <u32 STEPS>
struct Head {
    float x[STEPS]; // elements beyond the end are 0
    u32 dim;

    RF_DEVICE_MEMBER static Head read(const float *from, u32 dim) {
        Head head;
        head.dim = dim;
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            // No branch around a load: beyond the end the last element is read again.
            u32 d = index(i);
            float value = from[d < dim ? d : dim - 1];
            head.x[i] = d < dim ? value : 0.0f;
        }
        return head;
    }

    RF_DEVICE_MEMBER void write(float *to) const {
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            u32 d = index(i);
            if (d < dim) to[d] = x[i];
        }
    }

    // x / √(mean(x²) + eps) · weight.
    RF_DEVICE_MEMBER void norm(const float *weight, float eps) {
        float w[STEPS], sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            u32 d = index(i);
            w[i] = weight[d < dim ? d : dim - 1];
            sum = fma(x[i], x[i], sum);
        }
        float scale = rsqrt(wave_sum(sum) * reciprocal_estimate((float)dim) + eps);
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) x[i] *= scale * w[i];
    }

    // (x, y) → (x cos θ − y sin θ, x sin θ + y cos θ) for each pair; `exchange` is LDS of this
    // wave.
    RF_DEVICE_MEMBER void rotate(const RfRopeTable &rope, u32 position, float (&exchange)[MAX_HEAD_DIM]) {
        u32 half = rope.dims / 2;
        bool neox = rope.style == RF_ROPE_NEOX;
        const f32x2 *table = reinterpret_cast<const f32x2 *>(rope.table) + (u64)position * half;

        f32x2 turn[STEPS];
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            u32 d = index(i), pair = neox ? (d < half ? d : d - half) : d / 2;
            turn[i] = table[pair < half ? pair : half - 1];
            exchange[d] = x[i];
        }
        wave_barrier();
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) {
            u32 d = index(i);
            bool is_first = neox ? d < half : d % 2 == 0;
            float across = exchange[neox ? (is_first ? d + half : d - half) : d ^ 1] * turn[i][1];
            float turned = fma(x[i], turn[i][0], is_first ? -across : across);
            x[i] = d < rope.dims ? turned : x[i];
        }
    }

    // Applies the Hadamard transform to each `len` elements.
    RF_DEVICE_MEMBER void transform(u32 len) {
        hadamard<1, WAVE>(x, len);
        float factor = hadamard_factor(len);
#pragma unroll
        for (u32 i = 0; i < STEPS; i++) x[i] *= factor;
    }

    // Stores the head in the format of a cache, elements in order.
    RF_DEVICE_MEMBER void store(const RfKvCache &cache, const KvPlace &to) const {
        u32 type = cache.kv_type;
        u8 *row = to.elements;
        if (type == RF_KV_F32) {
            write(reinterpret_cast<float *>(row));
        } else if (type == RF_KV_F16) {
#pragma unroll
            for (u32 i = 0; i < STEPS; i++) {
                u32 d = index(i);
                if (d < dim) reinterpret_cast<f16 *>(row)[d] = (f16)x[i];
            }
        } else if (type == RF_KV_FP8) {
#pragma unroll
            for (u32 i = 0; i < STEPS; i++) {
                u32 d = index(i);
                if (d < dim) row[d] = fp8_e4m3_from_f32(x[i]);
            }
        } else if (type == RF_KV_Q8_0) {
#pragma unroll
            for (u32 i = 0; i < STEPS; i++) {
                if (i * WAVE < dim) store_q8_0(row, to.scales, i);
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < STEPS; i++) {
                if (i * WAVE < dim) store_packed(cache, to, i);
            }
        }
    }

    // Stores the head at the position of a token.
    RF_DEVICE_MEMBER void append(const RfBatch &batch, const RfKvCache &cache, u32 token, u32 kv_head,
                                 bool is_key) const {
        u32 position = batch.positions[token];
        const u32 *table = batch.pages + batch.spans[batch.span_of[token]].first_page;
        u32 slot = kv_slot(cache, position);
        u8 *page = kv_page_of(cache, table, position);
        Head head = *this;
        if (cache.transform_len > 1) head.transform(cache.transform_len);
        head.store(cache, is_key ? KvPlace::in_page<KvHalf::Key>(cache, page, kv_head, slot)
                                 : KvPlace::in_page<KvHalf::Value>(cache, page, kv_head, slot));
    }

  private:
    RF_DEVICE_MEMBER static u32 index(u32 step) {
#if RF_GFX9
        // Recomputed for each step: keeping 64-lane masks for all steps would fill the scalar
        // registers.
        return step * WAVE + opaque(lane());
#else
        return step * WAVE + lane();
#endif
    }

    // Quantises 32 elements.
    RF_DEVICE_MEMBER void store_q8_0(u8 *row, f16 *scales, u32 step) const {
        static_assert(KV_GROUP == WAVE);
        float scale = q8_0_scale(wave_max(__builtin_fabsf(x[step])));
        u32 d = index(step);
        if (d < dim) row[d] = q8_0_code(x[step], 1.0f / scale);
        if (lane() == 0) scales[step] = (f16)scale;
    }

    // Quantises 32 elements to four or five bits. Eight lanes hold those of a word.
    RF_DEVICE_MEMBER void store_packed(const RfKvCache &cache, const KvPlace &to, u32 step) const {
        float magnitude = __builtin_fabsf(x[step]);
        // The first element of that magnitude gives the sign.
        u32 first = (u32)__builtin_ctz(ballot(magnitude == wave_max(magnitude)));
        float scale = packed_scale(cache, read_lane(x[step], first));
        u32 d = index(step), place = packed_place(lane() % KV_CHUNK), code = packed_code(cache, x[step], scale);
        u32 nibbles = over_chunk((code & 15) << 4 * place), bits = over_chunk(code >> 4 << place);
        if (d < dim && lane() % KV_CHUNK == 0) {
            reinterpret_cast<u32 *>(to.elements)[d / KV_CHUNK] = nibbles;
            if (kv_has_fifth_bits(cache)) to.fifth_bits[d / KV_CHUNK] = (u8)bits;
        }
        if (lane() == 0) to.scales[step] = (f16)scale;
    }

    // The bits of the lanes that hold a chunk.
    RF_DEVICE_MEMBER static u32 over_chunk(u32 bits) {
        bits |= xor_lane<1>(bits);
        bits |= xor_lane<2>(bits);
        return bits | xor_lane<4>(bits);
    }
};

} // namespace rf
