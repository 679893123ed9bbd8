// Exchanges within groups of lanes, in addition to those of device.h.
#pragma once

#include "rf/device.h"

namespace rf {

// The value in lane SOURCE of each group of SIZE consecutive lanes.
template <u32 SIZE, u32 SOURCE>
RF_DEVICE float share(float value) {
    static_assert(SOURCE < SIZE && SIZE <= WAVE);
    if constexpr (SIZE == 1) return value;
    u32 bits = __builtin_bit_cast(u32, value);
#if RF_NVIDIA
    bits = (u32)__nvvm_shfl_sync_idx_i32(0xffffffffu, (i32)bits, (i32)SOURCE, (i32)((WAVE - SIZE) << 8 | 31));
#elif RF_GFX9
    // Lane s of 32 reads (s & ~(SIZE − 1)) | SOURCE.
    bits = (u32)__builtin_amdgcn_ds_swizzle((i32)bits, (31 & ~(SIZE - 1)) | SOURCE << 5);
#else
    if constexpr (SIZE == 32) {
        bits = (u32)__builtin_amdgcn_readlane((i32)bits, SOURCE);
    } else if constexpr (SIZE == 16) {
        bits = (u32)__builtin_amdgcn_update_dpp(0, (i32)bits, 0x150 | SOURCE, 0xf, 0xf, true); // row_share
    } else if constexpr (SIZE == 8) {
        bits = (u32)__builtin_amdgcn_mov_dpp8(bits, SOURCE * 0x249249u);
    } else {
        bits = read_lane(bits, (lane() & ~(SIZE - 1)) + SOURCE);
    }
#endif
    return __builtin_bit_cast(float, bits);
}

// Whether the condition holds in any lane of the wave. On gfx9 it covers both halves of the 64-lane
// wave, so use it only to skip work that has no effect.
RF_DEVICE bool any_lane(bool condition) {
#if RF_NVIDIA
    return __nvvm_vote_any_sync(0xffffffffu, condition);
#elif RF_GFX9
    return __builtin_amdgcn_ballot_w64(condition) != 0;
#else
    return __builtin_amdgcn_ballot_w32(condition) != 0;
#endif
}

// One bit per lane of the wave: whether the condition holds there.
RF_DEVICE u32 ballot(bool condition) {
#if RF_NVIDIA
    return __nvvm_vote_ballot_sync(0xffffffffu, condition);
#elif RF_GFX9
    // The upper half of the hardware wave has the upper half of the mask.
    return (u32)(__builtin_amdgcn_ballot_w64(condition) >> (thread_x() & WAVE));
#else
    return __builtin_amdgcn_ballot_w32(condition);
#endif
}

// Sums N values over groups of LANES consecutive lanes and distributes the sums: value i ends in
// register sum_register(i) of lane sum_lane(i) of its group (and, if N < LANES, of the lanes that
// differ from it in upper bits). N and LANES are powers of two. Takes about N exchanges instead of
// N · log₂ LANES.
template <u32 N, u32 LANES, u32 MASK = 1>
RF_DEVICE void shared_sums(float *values) {
    if constexpr (MASK < LANES) {
        if constexpr (N > 1) {
            bool upper = lane() & MASK;
            for (u32 i = 0; i < N / 2; i++) {
                // Read both first: selecting between two memory locations would keep the values out
                // of registers.
                float low = values[i], high = values[i + N / 2];
                values[i] = (upper ? high : low) + xor_lane<MASK>(upper ? low : high);
            }
            shared_sums<N / 2, LANES, 2 * MASK>(values);
        } else {
            values[0] += xor_lane<MASK>(values[0]);
            shared_sums<1, LANES, 2 * MASK>(values);
        }
    }
}

// The lowest bit of the lane selects the topmost bit of the index, and so on.
template <u32 N, u32 LANES>
constexpr u32 sum_lane(u32 i) {
    u32 result = 0;
    for (u32 half = N / 2, mask = 1; half > 0 && mask < LANES; half /= 2, mask *= 2) {
        if (i & half) result |= mask;
    }
    return result;
}
template <u32 N, u32 LANES>
constexpr u32 sum_register(u32 i) {
    return N > LANES ? i % (N / LANES) : 0;
}
template <u32 N, u32 LANES>
constexpr u32 SUM_REGISTERS = N > LANES ? N / LANES : 1;

// A loop over compile-time indices: body(Number<0>{}), body(Number<1>{}) …
template <u32 I>
struct Number {
    static constexpr u32 value = I;
};
template <u32 COUNT, u32 FIRST = 0, typename Body>
RF_DEVICE void for_each(Body body) {
    if constexpr (FIRST < COUNT) {
        body(Number<FIRST>{});
        for_each<COUNT, FIRST + 1>(body);
    }
}

// Makes earlier writes of all threads of the device visible to this thread, and its own writes
// visible to them, if an arrival (rf::arrive) between two such fences orders them. Every thread of
// a workgroup needs its own fence.
RF_DEVICE void device_fence() {
#if RF_AMD
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
#else
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

} // namespace rf
