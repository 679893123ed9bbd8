// Shared code of the matmul kernels: the tile of a workgroup, the addition of partial sums of waves
// with different columns, and the output of sums.
#pragma once

#include "rf/device.h"
#include "rf/params/matmul.h"

// Whether the target has matrix units, in addition to dot4 and fused multiply-adds.
#if RF_GFX11 || RF_GFX12 || RF_NVIDIA
#define RF_MATRIX_UNIT 1
#else
#define RF_MATRIX_UNIT 0
#endif

// Two workgroups per multiprocessor on NVIDIA: 128 registers for 256 threads.
#if RF_NVIDIA
#define RF_MATMUL_KERNEL(SHAPE) extern "C" __attribute__((global, launch_bounds(SHAPE::THREADS, 2))) void
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
             first ? held(a.weight.scale) : held(b.weight.scale), first ? held(a.weight.super) : held(b.weight.super)},
            first ? held(a.bias) : held(b.bias),
            first ? held(a.out) : held(b.out),
            first ? held(a.rows) : held(b.rows),
            first ? held(a.format) : held(b.format)};
}

// The tile of a workgroup. group_x is the tile of tokens, so that consecutive workgroups share
// weights; group_y is the tile of rows over all projections.
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
};

template <typename Shape>
RF_DEVICE MatmulPlace place_of_group(const RfMatmulParams &params) {
    RfProjection p = params.projections[0];
    u32 tile = group_y();
#pragma unroll
    for (u32 i = 1; i < 3; i++) {
        u32 tiles = (p.rows + Shape::ROWS - 1) / Shape::ROWS;
        bool later = i < params.num_projections && tile >= tiles;
        tile -= later ? tiles : 0;
        p = chosen(later, params.projections[i], p);
    }
    u32 row = tile * Shape::ROWS;
    if (params.groups.tiles) {
        RfExpertTile group = params.groups.tiles[group_x()];
        u32 weight_row = group.expert * p.rows + row;
        if (p.bias) p.bias += group.expert * p.rows;
        return {p, row, weight_row, group.first, group.count};
    }
    u32 first = group_x() * Shape::TOKENS, rest = params.tokens - first;
    return {p, row, row, first, rest < Shape::TOKENS ? rest : Shape::TOKENS};
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
        barrier();
        if (k_wave >= half && k_wave < 2 * half) {
#pragma unroll
            for (u32 i = 0; i < SUMS; i++) place[i * WAVE] = values[i];
        }
        barrier();
        if (k_wave < half) {
#pragma unroll
            for (u32 i = 0; i < SUMS; i++) values[i] += place[i * WAVE];
        }
    }
}

// In place of a row of the output: the tile has no such token.
constexpr u32 NO_ROW = ~0u;

// Adds bias and residual to a sum and writes it. The matrix may end before the row.
RF_DEVICE void write_sum(const RfMatmulParams &params, const RfProjection &p, u32 row, u32 out_row, float sum) {
    if (row >= p.rows || out_row == NO_ROW) return;
    u64 place = (u64)out_row * p.rows + row;
    if (p.bias) sum += p.bias[row];
    if (params.residual) sum += params.residual[place];
    p.out[place] = sum;
}

} // namespace rf
