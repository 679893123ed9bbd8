// Shared code of the matmul kernels: the tile of a workgroup, the addition of partial sums of waves
// with different columns, and the output of sums.
#pragma once

#include "rf/lanes.h"
#include "rf/params/matmul.h"

// On NVIDIA registers are limited such that AT_ONCE workgroups fit on a multiprocessor.
#if RF_NVIDIA
#define RF_MATMUL_KERNEL(SHAPE) RF_KERNEL_AT_ONCE(SHAPE::THREADS, SHAPE::AT_ONCE)
#else
#define RF_MATMUL_KERNEL(SHAPE) RF_LARGE_KERNEL(SHAPE::THREADS)
#endif

namespace rf {

// Keeps a value in a register of its own. Otherwise the compiler selects between addresses of
// parameters, which NVIDIA would then have to copy to memory.
template <typename T>
RF_DEVICE T held(T value) {
#if RF_NVIDIA
    if constexpr (sizeof(T) == 8) {
        asm("" : "+l"(value));
    } else {
        asm("" : "+r"(value));
    }
#endif
    return value;
}

RF_DEVICE RfProjection chosen(bool first, const RfProjection &a, const RfProjection &b) {
    return {{first ? held(a.weight.low) : held(b.weight.low), first ? held(a.weight.high) : held(b.weight.high),
             first ? held(a.weight.scale) : held(b.weight.scale), first ? held(a.weight.super_scale) : held(b.weight.super_scale)},
            first ? held(a.bias) : held(b.bias),
            first ? held(a.out) : held(b.out),
            first ? held(a.rows) : held(b.rows),
            first ? held(a.format) : held(b.format),
            first ? a.half_unit : b.half_unit,
            0};
}

// The place of a tile. Consecutive workgroups have tiles of other tokens, so that they share
// weights.
struct MatmulPlace {
    RfProjection projection;
    u32 first_row;
    u32 weight_row;  // the same in the matrix: rows of earlier experts included
    u32 first_token; // an index into the slots, if they are grouped
    u32 tokens;      // 0: no tile

    // The row of the output that token `token` of the tile writes.
    RF_DEVICE_MEMBER u32 out_row(const RfMatmulParams &params, u32 token) const {
        return params.groups.slots ? params.groups.slots[first_token + token] : first_token + token;
    }

    // The row of x that token `token` of the tile, or the last one before it, reads.
    RF_DEVICE_MEMBER u32 x_row(const RfMatmulParams &params, u32 token) const {
        u32 row = out_row(params, token < tokens ? token : tokens - 1);
        return params.groups.slots ? row / params.slots_per_row : row;
    }

    // Four elements of the bias of another projection with as many rows, from an element on that is
    // a multiple of 4; zeros without a bias, or where there is no such element.
    RF_DEVICE_MEMBER f32x4 four_biases(const float *bias, u32 row) const {
        if (!bias || row >= projection.rows) return f32x4{0, 0, 0, 0};
        return *reinterpret_cast<const f32x4 *>(bias + (weight_row - first_row) + row);
    }
};

// A tile of the output: its index along the tokens, and along the rows of all projections.
struct MatmulTile {
    u32 token, row;
};

// Tiles along the rows of all projections.
template <typename Shape>
RF_DEVICE u32 row_tiles(const RfMatmulParams &params) {
    u32 tiles = 0;
#pragma unroll
    for (u32 i = 0; i < RF_MAX_PROJECTIONS; i++) {
        if (i < params.num_projections) tiles += (params.projections[i].rows + Shape::ROWS - 1) / Shape::ROWS;
    }
    return tiles;
}

template <typename Shape>
RF_DEVICE MatmulPlace place_of_tile(const RfMatmulParams &params, MatmulTile at) {
    RfProjection p = params.projections[0];
    u32 tile = at.row;
#pragma unroll
    for (u32 i = 1; i < RF_MAX_PROJECTIONS; i++) {
        u32 tiles = (p.rows + Shape::ROWS - 1) / Shape::ROWS;
        bool later = i < params.num_projections && tile >= tiles;
        tile -= later ? tiles : 0;
        p = chosen(later, params.projections[i], p);
    }
    u32 row = tile * Shape::ROWS;
    if (params.groups.tiles) {
        RfExpertTile group = params.groups.tiles[at.token];
        u32 weight_row = group.expert * p.rows + row;
        if (p.bias) p.bias += group.expert * p.rows;
        return {p, row, weight_row, group.first, group.count};
    }
    u32 first = at.token * Shape::TOKENS, rest = params.tokens - first;
    return {p, row, row, first, rest < Shape::TOKENS ? rest : Shape::TOKENS};
}

// The tile of a workgroup of a grid of tiles.
template <typename Shape>
RF_DEVICE MatmulPlace place_of_group(const RfMatmulParams &params) {
    return place_of_tile<Shape>(params, {group_x(), group_y()});
}

// The stages of a workgroup: all, or those of its part of the columns.
struct MatmulStages {
    u32 first, end;
};
template <typename Shape>
RF_DEVICE MatmulStages stages_of_group(const RfMatmulParams &params, u32 stages) {
    if (!Shape::SPLIT || params.parts <= 1) return {0, stages};
    return {stages * group_z() / params.parts, stages * (group_z() + 1) / params.parts};
}

// Bytes of LDS that add_parts needs for `sums` sums per lane.
template <typename Shape>
constexpr u32 parts_bytes(u32 sums) {
    return Shape::K_WAVES / 2 * Shape::ROW_WAVES * Shape::TOKEN_WAVES * sums * WAVE * 4;
}

// Adds the sums of waves with different parts of the columns: the upper half of the waves passes
// its sums to the lower half, until the first wave of each tile has the total.
template <typename Shape, u32 SUMS>
RF_DEVICE void add_parts(float (&values)[SUMS], float *lds, u32 k_wave, u32 tile_wave) {
    constexpr u32 TILE_WAVES = Shape::ROW_WAVES * Shape::TOKEN_WAVES;
#pragma unroll
    for (u32 half = Shape::K_WAVES / 2; half > 0; half /= 2) {
        float *place = lds + ((k_wave % half) * TILE_WAVES + tile_wave) * SUMS * WAVE + lane();
        lds_barrier();
        if (k_wave >= half && k_wave < 2 * half) {
#pragma unroll
            for (u32 i = 0; i < SUMS; i++) place[i * WAVE] = values[i];
        }
        lds_barrier();
        if (k_wave < half) {
#pragma unroll
            for (u32 i = 0; i < SUMS; i++) values[i] += place[i * WAVE];
        }
    }
}

// In place of a row of the output: the tile has no such token.
constexpr u32 NO_ROW = ~0u;

// Sums of a lane whose residuals are in registers at once.
#if RF_NVIDIA
constexpr u32 SUMS_AT_ONCE = 32;
#else
constexpr u32 SUMS_AT_ONCE = 8;
#endif

// Adds bias and residual to COUNT sums of a lane and writes them. Sum n, sum_of(n), is element
// row_of(n) of row out_row_of(n) of the output; the matrix may end before that element. A compiler
// may not move a load before a store, so the residuals of SUMS_AT_ONCE sums are loaded before these
// are stored: one latency of memory for all of them.
template <u32 COUNT, typename RowOf, typename OutRowOf, typename SumOf>
RF_DEVICE void write_sums(const RfMatmulParams &params, const RfProjection &p, RowOf row_of, OutRowOf out_row_of,
                          SumOf sum_of) {
    constexpr u32 AT_ONCE = COUNT < SUMS_AT_ONCE ? COUNT : SUMS_AT_ONCE;
    static_assert(COUNT % AT_ONCE == 0);
#pragma unroll
    for (u32 first = 0; first < COUNT; first += AT_ONCE) {
        // The last row, and output row 0, instead of those that do not exist.
        float bias[AT_ONCE], residual[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) bias[i] = residual[i] = 0.0f;
        if (p.bias) {
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                u32 row = row_of(first + i);
                bias[i] = p.bias[row < p.rows ? row : p.rows - 1];
            }
        }
        if (params.residual) {
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                u32 row = row_of(first + i);
                i32 out_row = (i32)out_row_of(first + i);
                u64 start = (u64)(u32)(out_row > (i32)NO_ROW ? out_row : 0) * p.rows;
                residual[i] = params.residual[start + (row < p.rows ? row : p.rows - 1)];
            }
        }
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            u32 row = row_of(first + i), out_row = out_row_of(first + i);
            float sum = sum_of(first + i) + bias[i] + residual[i];
            if (row < p.rows && out_row != NO_ROW) p.out[(u64)out_row * p.rows + row] = sum;
        }
    }
}

// The sums of workgroups with different parts of the columns of a tile.
template <typename Shape, u32 SUMS>
struct MatmulParts {
    static constexpr u32 TILE_WAVES = Shape::ROW_WAVES * Shape::TOKEN_WAVES;

    // The first sum of a lane in a part; its sums are WAVE apart.
    RF_DEVICE_MEMBER static float *place(const RfMatmulParams &params, u32 tile, u32 part, u32 tile_wave) {
        u64 wave = (u64)(tile * params.parts + part) * TILE_WAVES + tile_wave;
        return params.partials + wave * (SUMS * WAVE) + lane();
    }

    // Passes the sums on to the last workgroup of the tile to arrive; returns true in that one.
    RF_DEVICE_MEMBER static bool is_last(const RfMatmulParams &params, const float (&values)[SUMS], u32 tile,
                                         u32 k_wave, u32 tile_wave) {
        RF_SHARED static u32 arrived;
        if (k_wave == 0) {
            float *own = place(params, tile, group_z(), tile_wave);
#pragma unroll
            for (u32 n = 0; n < SUMS; n++) own[n * WAVE] = values[n];
        }
        device_fence();
        barrier();
        if (thread_x() == 0) arrived = arrive(params.arrivals + tile);
        barrier();
        if (arrived + 1 != params.parts) return false;
        device_fence();
        if (thread_x() == 0) params.arrivals[tile] = 0;
        return true;
    }

    // Sums `first` … `first` + COUNT of a lane, over the parts in order.
    template <u32 COUNT>
    RF_DEVICE_MEMBER static void total(const RfMatmulParams &params, float (&values)[COUNT], u32 tile, u32 tile_wave,
                                       u32 first) {
        const float *from = place(params, tile, 0, tile_wave) + first * WAVE;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) values[i] = from[i * WAVE];
#pragma unroll 1
        for (u32 part = 1; part < params.parts; part++) {
            from += TILE_WAVES * SUMS * WAVE;
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) values[i] += from[i * WAVE];
        }
    }
};

// Adds the sums of all parts of a tile and writes the results: sum n of a lane is row row_of(n) of
// the projection for token token_of(n) of the tile.
template <typename Shape, u32 SUMS, typename RowOf, typename TokenOf>
RF_DEVICE void write_parts(const RfMatmulParams &params, const MatmulPlace &place, const float (&values)[SUMS],
                           u32 k_wave, u32 tile_wave, RowOf row_of, TokenOf token_of) {
    using Parts = MatmulParts<Shape, SUMS>;
    u32 tile = group_y() * ((params.tokens + Shape::TOKENS - 1) / Shape::TOKENS) + group_x();
    if (!Parts::is_last(params, values, tile, k_wave, tile_wave)) return;
    constexpr u32 SHARE = SUMS / Shape::K_WAVES;
    float totals[SHARE];
    Parts::total(params, totals, tile, tile_wave, k_wave * SHARE);
    auto out_row_of = [&](u32 i) {
        u32 token = token_of(k_wave * SHARE + i);
        return token < place.tokens ? place.first_token + token : NO_ROW;
    };
    write_sums<SHARE>(
        params, place.projection, [&](u32 i) { return row_of(k_wave * SHARE + i); }, out_row_of,
        [&](u32 i) { return totals[i]; });
}

} // namespace rf
