// Dequantises rows of weights to f32, bit-identical to rf_quant::dequantize.
//
// A lane processes four consecutive columns at a time, one word of a block's unpacked values; the 8
// lanes of a block read the same bytes. For matrices that are read row by row: embeddings.
#pragma once

#include "rf/formats.h"
#include "rf/params/embed.h"
#include "rf/rows.h"

namespace rf {

constexpr u32 EMBED_THREADS = 128;

// A row of a float table; T is float, f16 or, for bf16, u16.
template <typename T>
struct FloatRow {
    static constexpr bool ANY_WIDTH = true;
    const T *values;

    RF_DEVICE_MEMBER static void prepare(u32) {}

    RF_DEVICE_MEMBER static FloatRow of(const RfWeight &table, u32 row, u32 columns) {
        return {static_cast<const T *>(table.low) + (u64)row * columns};
    }
    RF_DEVICE_MEMBER static float to_f32(T value) {
        if constexpr (__is_same(T, u16)) {
            return bf16_value(value);
        } else {
            return (float)value;
        }
    }
    RF_DEVICE_MEMBER float one(u32 column) const { return to_f32(values[column]); }
    RF_DEVICE_MEMBER f32x4 four(u32 vector) const {
        typedef T Four __attribute__((ext_vector_type(4)));
        Four v = reinterpret_cast<const Four *>(values)[vector];
        return {to_f32(v[0]), to_f32(v[1]), to_f32(v[2]), to_f32(v[3])};
    }
};

using F32Row = FloatRow<float>;
using F16Row = FloatRow<f16>;
using Bf16Row = FloatRow<u16>;

// A row of a quantised table.
template <typename F>
struct BlockRow {
    static constexpr bool ANY_WIDTH = false;
    RfWeight planes;

    RF_DEVICE_MEMBER static void prepare(u32 threads) { load_grid<F>(threads); }

    RF_DEVICE_MEMBER static BlockRow of(const RfWeight &table, u32 row, u32 columns) {
        return {row_of<F>(table, row, columns / 32)};
    }

    RF_DEVICE_MEMBER f32x4 four(u32 vector) const {
        u32 word = vector % 8;
        auto raw = F::fetch(planes, vector / 8);
        BlockScales s = F::scales(raw);
        float scale = F::HALVES && word >= 4 ? s.scale[1] : s.scale[0];
        float minimum = F::HALVES && word >= 4 ? s.minimum[1] : s.minimum[0];

        // Small floats are decoded after the selection of the word.
        u32 words[8];
        if constexpr (SIX_BIT) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) words[j] = detail::six_bit_codes(raw, j);
        } else {
            F::unpack(raw, words);
        }
        u32 codes = choose(words, word), q = codes, large = 0;
        if constexpr (F::PARTS == 2) {
            q = F::template values<false>(codes);
            large = F::template values<true>(codes);
        } else if constexpr (SIX_BIT) {
            q = F::values(codes);
        }

        f32x4 v;
        for (u32 i = 0; i < 4; i++) {
            i32 level = (i32)(i8)(q >> 8 * i);
            if constexpr (F::PARTS == 2) level += F::LARGE * (i32)(i8)(large >> 8 * i);
            v[i] = (float)level * scale;
            if constexpr (F::MINIMA) v[i] -= minimum;
            // These codes have two zeros, integers only one.
            if constexpr (SIX_BIT) v[i] = __builtin_copysignf(v[i], codes >> 8 * i & 0x20 ? -1.0f : 1.0f);
        }
        return v;
    }

  private:
    static constexpr bool SIX_BIT = __is_same(F, Mxfp6E2M3) || __is_same(F, Mxfp6E3M2);

    // words[index] by comparisons, because registers cannot be indexed.
    RF_DEVICE_MEMBER static u32 choose(const u32 words[8], u32 index) {
        u32 word = words[0];
#pragma unroll
        for (u32 j = 1; j < 8; j++) word = index == j ? words[j] : word;
        return word;
    }
};

// The row of the table that belongs to row `index` of x.
RF_DEVICE u32 table_row(const RfEmbedParams &p, u64 index) {
    u32 id = p.ids[index];
    return id < p.last_id ? id : p.last_id;
}

// Scaled rows of a table; a workgroup per row (grid: x). Moves the bytes of the row in the table
// and 4 per column of x.
template <typename Row>
RF_DEVICE void embed(const RfEmbedParams &p) {
    Row::prepare(EMBED_THREADS);
    follow_previous_kernels();
    u32 index = group_x();
    Row row = Row::of(p.table, table_row(p, index), p.columns);
    float *x = p.x + (u64)index * p.columns;
    float scale = p.scale;
    if (!Row::ANY_WIDTH || p.columns % VECTOR == 0) {
        for (u32 vector = thread_x(); vector < p.columns / VECTOR; vector += EMBED_THREADS) {
            reinterpret_cast<f32x4 *>(x)[vector] = row.four(vector) * scale;
        }
    } else if constexpr (Row::ANY_WIDTH) {
        for (u32 column = thread_x(); column < p.columns; column += EMBED_THREADS) x[column] = row.one(column) * scale;
    }
}

// A source of rms_norm_row that dequantises a row and stores the result.
template <typename Row>
struct EmbeddingSource {
    Row row;
    float scale;
    f32x4 *x;

    RF_DEVICE_MEMBER f32x4 load(u32 vector) const { return row.four(vector) * scale; }
    RF_DEVICE_MEMBER void keep(u32 vector, f32x4 v) const { x[vector] = v; }
    RF_DEVICE_MEMBER f32x4 again(u32 vector) const { return x[vector]; }
};

// Embedding and the norm of the first layer; a workgroup per row (grid: x). The columns are a
// multiple of 4.
template <typename Row>
RF_DEVICE void embed_rms_norm(const RfEmbedParams &p) {
    Row::prepare(p.threads);
    follow_previous_kernels();
    u64 index = group_x();
    f32x4 *x = reinterpret_cast<f32x4 *>(p.x + index * p.columns);
    EmbeddingSource<Row> source = {Row::of(p.table, table_row(p, index), p.columns), p.scale, x};
    rms_norm_row<2>(source, p.norm, p.eps, p.out, index, p.columns, p.threads);
}

} // namespace rf
