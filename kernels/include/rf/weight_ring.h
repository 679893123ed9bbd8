// Weights of a wave that pass through LDS: copies that bypass registers (NVIDIA).
//
// Registers cannot hold the weights of later steps while those of a step are awaited: ptxas counts
// all loads of a loop in one scoreboard, so a wait for the first of them is one for all.
// Asynchronous copies are counted in groups, a group per step.
//
// A step is 32 blocks of ROWS rows. Every plane of a row is copied in pieces of 16 bytes from the
// one in which the row starts, piece `id` by lane id % 32.
#pragma once

#include "rf/copy_async.h"
#include "rf/planes.h"

namespace rf {

// The LDS of a wave. Twin: `RING_BYTES` of crates/rf-kernels/src/params/matvec.rs.
constexpr u32 RING_BYTES = 6144;

template <typename F, u32 ROWS>
struct WeightRing {
    static constexpr u32 PLANES = 4, PIECE = 16;

    // Bytes of a row in a step.
    static constexpr u32 step_bytes(u32 plane) {
        constexpr u32 BYTES[PLANES] = {F::LOW * 32, F::HIGH * 32, F::SCALE * 32, F::SUPER * 4};
        return plane < PLANES ? BYTES[plane] : 0;
    }
    // Whether rows of a plane start with a piece.
    static constexpr bool is_aligned(u32 plane) { return (plane == 0 ? F::LOW : plane == 1 ? F::HIGH : 1) % PIECE == 0; }
    static constexpr u32 pieces(u32 plane) {
        u32 whole = (step_bytes(plane) + PIECE - 1) / PIECE;
        return whole == 0 || is_aligned(plane) ? whole : whole + 1;
    }
    // The first piece of a row in a plane: all rows of a plane, then the next plane.
    static constexpr u32 first_piece(u32 plane, u32 row) {
        u32 first = row * pieces(plane);
        for (u32 p = 0; p < plane; p++) first += ROWS * pieces(p);
        return first;
    }
    static constexpr u32 ALL = first_piece(PLANES, 0), ROUNDS = (ALL + WAVE - 1) / WAVE;
    static constexpr u32 STEP_BYTES = ALL * PIECE, FIT = RING_BYTES / STEP_BYTES, DEPTH = FIT < 8 ? FIT : 8;
    static_assert(DEPTH >= 2);

    // Whether all steps of a row start at the same place of a piece, and those of a round do.
    static constexpr bool keeps_shift(u32 plane) { return step_bytes(plane) % PIECE == 0; }
    static constexpr bool is_in(u32 plane, u32 row, u32 round) {
        u32 first = first_piece(plane, row), past = first + pieces(plane);
        return past > first && past > round * WAVE && first < (round + 1) * WAVE;
    }
    static constexpr bool keeps_shifts(u32 round) {
        for (u32 plane = 0; plane < PLANES; plane++)
            for (u32 r = 0; r < ROWS; r++)
                if (is_in(plane, r, round) && !keeps_shift(plane)) return false;
        return true;
    }

    u8 *lds;                // of this wave
    const u8 *from[ROUNDS]; // what this lane copies next
    u32 stride[ROUNDS];     // bytes to its part of the step after that

    RF_DEVICE_MEMBER static const u8 *plane_of(const RfWeight &row, u32 plane) {
        return static_cast<const u8 *>(plane == 0 ? row.low : plane == 1 ? row.high : plane == 2 ? row.scale : row.super_scale);
    }
    RF_DEVICE_MEMBER static const u8 *piece_of(const u8 *at) {
        return reinterpret_cast<const u8 *>((u64)at & ~(u64)(PIECE - 1));
    }

    // Begins with the rows of a group.
    RF_DEVICE_MEMBER void start(const RfWeight (&row_weight)[ROWS]) {
#pragma unroll
        for (u32 k = 0; k < ROUNDS; k++) {
            u32 id = k * WAVE + lane();
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane++)
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) {
                    if (!is_in(plane, r, k)) continue;
                    u32 first = first_piece(plane, r);
                    bool is_own = first <= k * WAVE || id >= first;
                    const u8 *own = plane_of(row_weight[r], plane) + (i32)(id - first) * (i32)PIECE;
                    from[k] = is_own ? own : from[k];
                    stride[k] = is_own ? step_bytes(plane) : stride[k];
                }
            if (keeps_shifts(k)) from[k] = piece_of(from[k]);
        }
    }

    // Copies the next step to a place of the ring. Behind the last row of a plane is space for a
    // step.
    RF_DEVICE_MEMBER void request(u32 place) {
        u8 *to = lds + place * STEP_BYTES + lane() * PIECE;
#pragma unroll
        for (u32 k = 0; k < ROUNDS; k++) {
            if (k * WAVE + lane() < ALL)
                copy_async_16(to + k * (WAVE * PIECE), keeps_shifts(k) ? from[k] : piece_of(from[k]), true);
            from[k] += stride[k];
        }
    }

    // The planes of row r in a place of the ring, from the first block of the step on.
    RF_DEVICE_MEMBER RfWeight row(const RfWeight (&row_weight)[ROWS], u32 r, u32 place, u32 step) const {
        const u8 *at[PLANES];
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane++) {
            u32 shift = (u32)(u64)plane_of(row_weight[r], plane) + (keeps_shift(plane) ? 0 : step * step_bytes(plane));
            shift = is_aligned(plane) ? 0 : shift % PIECE;
            at[plane] = lds + place * STEP_BYTES + first_piece(plane, r) * PIECE + shift;
        }
        return {at[0], at[1], at[2], at[3]};
    }
};

} // namespace rf
