// The device prelude: the GPU features that kernels use, on compiler builtins alone.
//
// One source serves AMD (clang's amdgcn target) and NVIDIA (PTX). No HIP header and no device
// library is included. Builtins and instructions of either platform appear only in this file and in
// the other prelude headers (README.md); kernels are plain C++.
//
// A wave is a group of 32 lanes. On targets with 64-lane hardware waves (gfx9) it is one half of a
// hardware wave, so no operation reaches beyond 32 lanes.
#pragma once

#define RF_DEVICE static inline __attribute__((device, always_inline))
#define RF_DEVICE_MEMBER inline __attribute__((device, always_inline))
// A table, which may be read 16 bytes at a time.
#define RF_CONSTANT static constexpr __attribute__((device, aligned(16)))
// Declares a kernel; `threads` is the largest workgroup of its launches. On RDNA the kernel is
// limited to the registers that allow 8 waves per SIMD. RF_LARGE_KERNEL, for tiles that need more
// registers, has no such limit. clang ignores launch_bounds for AMD.
#if defined(__AMDGCN__)
#define RF_LARGE_KERNEL(threads) extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, threads))) void
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define RF_KERNEL(threads)                                                                                             \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(8))) void
#else
#define RF_KERNEL(threads) RF_LARGE_KERNEL(threads)
#endif
#else
#define RF_KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads))) void
#define RF_LARGE_KERNEL(threads) RF_KERNEL(threads)
#endif
// As RF_KERNEL; on NVIDIA it limits the registers per thread such that `groups` workgroups fit on a
// multiprocessor.
#if defined(__NVPTX__)
#define RF_KERNEL_AT_ONCE(threads, groups)                                                                             \
    extern "C" __attribute__((global, launch_bounds(threads, groups))) void
#else
#define RF_KERNEL_AT_ONCE(threads, groups) RF_KERNEL(threads)
#endif
#define RF_SHARED __attribute__((shared))

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using u64 = unsigned long long;
using f16 = _Float16;

typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef i32 i32x2 __attribute__((ext_vector_type(2)));
typedef i32 i32x4 __attribute__((ext_vector_type(4)));
typedef i32 i32x8 __attribute__((ext_vector_type(8)));
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u16 u16x2 __attribute__((ext_vector_type(2)));
typedef f16 f16x2 __attribute__((ext_vector_type(2)));
typedef f16 f16x4 __attribute__((ext_vector_type(4)));
typedef f16 f16x8 __attribute__((ext_vector_type(8)));
typedef f16 f16x16 __attribute__((ext_vector_type(16)));

#if defined(__AMDGCN__)
#define RF_AMD 1
// The GPU families that this file distinguishes.
#if defined(__GFX12__)
#define RF_GFX12 1
#elif defined(__GFX11__)
#define RF_GFX11 1
#elif defined(__GFX10__)
#define RF_GFX10 1
#else
#define RF_GFX9 1
#endif
#elif defined(__NVPTX__)
#define RF_NVIDIA 1
#else
#error "device code for AMD or NVIDIA only"
#endif

// Whether the target has matrix units, in addition to dot4 and fused multiply-adds.
#if RF_GFX11 || RF_GFX12 || RF_NVIDIA
#define RF_MATRIX_UNIT 1
#else
#define RF_MATRIX_UNIT 0
#endif

namespace rf {

constexpr u32 WAVE = 32;

// ---- indices ------------------------------------------------------------------------------

#if RF_AMD
RF_DEVICE u32 thread_x() { return __builtin_amdgcn_workitem_id_x(); }
RF_DEVICE u32 group_x() { return __builtin_amdgcn_workgroup_id_x(); }
RF_DEVICE u32 group_y() { return __builtin_amdgcn_workgroup_id_y(); }
RF_DEVICE u32 group_z() { return __builtin_amdgcn_workgroup_id_z(); }
#else
RF_DEVICE u32 thread_x() { return __nvvm_read_ptx_sreg_tid_x(); }
RF_DEVICE u32 group_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
RF_DEVICE u32 group_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
RF_DEVICE u32 group_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
#endif

RF_DEVICE u32 lane() { return thread_x() % WAVE; }

// The index of the wave in its workgroup. On AMD the value is made uniform explicitly: the compiler
// cannot know that the lanes of a wave have consecutive ids, and addresses computed from a uniform
// value stay in scalar registers.
RF_DEVICE u32 wave() {
#if RF_AMD && !RF_GFX9
    return __builtin_amdgcn_readfirstlane(thread_x() / WAVE);
#else
    return thread_x() / WAVE;
#endif
}

// ---- synchronisation ----------------------------------------------------------------------

// Workgroup barrier. Writes of each thread to LDS and memory before it are visible to the others
// after it.
RF_DEVICE void barrier() {
#if RF_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
    __nvvm_bar_sync(0);
#endif
}

// Workgroup barrier for LDS alone: writes to LDS before it are visible to the others after it, and
// loads from memory may still be in flight.
//
// `barrier` waits for all loads on AMD: before gfx12 LLVM waits for them at every `s_barrier` that
// it knows of, and the fence drops the vector cache.
RF_DEVICE void lds_barrier() {
#if RF_GFX12
    asm volatile("s_wait_dscnt 0x0\n\ts_barrier_signal -1\n\ts_barrier_wait -1" ::: "memory");
#elif RF_GFX10 || RF_GFX11
    asm volatile("s_waitcnt lgkmcnt(0)\n\ts_barrier" ::: "memory");
#else
    barrier();
#endif
}

// Wave barrier. The lanes of a wave run in lockstep; writes of one lane to LDS before it are
// visible to the others after it.
RF_DEVICE void wave_barrier() {
#if RF_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
    __nvvm_bar_warp_sync(0xffffffffu);
#endif
}

// Adds 1 to a counter in device memory and returns its previous value. Earlier writes of this
// thread (and, after a barrier, of its workgroup) are visible to every thread that reads the new
// count.
RF_DEVICE u32 arrive(u32 *counter) {
#if RF_AMD
    return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
#else
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
#endif
}

#if RF_NVIDIA
// A counter that other workgroups change; what they wrote before is visible after it.
RF_DEVICE u32 count_of(const u32 *counter) {
    u32 count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}
// Replaces a count by another, if it is there. Returns the previous count.
RF_DEVICE u32 replace_count(u32 *counter, u32 count, u32 other) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(counter), "r"(count), "r"(other)
                 : "memory");
    return before;
}
#endif

// ---- kernels in a row ---------------------------------------------------------------------

// On NVIDIA from compute capability 9.0 on, the workgroups of a kernel can start before the kernels
// queued before it end (programmatic dependent launch): what does not depend on those overlaps with
// their end. The host launches kernels this way that contain `await_previous_kernels`.
#if RF_NVIDIA && __CUDA_ARCH__ >= 900
#define RF_KERNELS_OVERLAP 1
#else
#define RF_KERNELS_OVERLAP 0
#endif

// Whether workgroups load what they need later when they start, as far as it does not depend on
// earlier kernels. On AMD other waves hide these loads, and registers are for more waves.
#if RF_NVIDIA
constexpr bool LOADS_EARLY = true;
#else
constexpr bool LOADS_EARLY = false;
#endif

// Lets the next kernel start as soon as all workgroups of this one have called this or ended.
RF_DEVICE void allow_next_kernel() {
#if RF_KERNELS_OVERLAP
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until all previous kernels are done and their writes are visible. Before it, a kernel reads
// weights and tables only, and writes LDS only.
RF_DEVICE void await_previous_kernels() {
#if RF_KERNELS_OVERLAP
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A vector of device memory that an earlier kernel wrote, which is known to be done without
// await_previous_kernels. The caches of this processor may hold older data.
RF_DEVICE u32x4 read_done(const u32x4 *from) {
#if RF_KERNELS_OVERLAP
    u32x4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(from)
                 : "memory");
    return v;
#else
    return *from;
#endif
}
RF_DEVICE u32 read_done(const u32 *from) {
#if RF_KERNELS_OVERLAP
    u32 v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
#else
    return *from;
#endif
}

// Loads a line of memory to the caches without waiting for it (NVIDIA).
RF_DEVICE void touch_line([[maybe_unused]] const void *from) {
#if RF_NVIDIA
    u32 unused;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(unused) : "l"(from) : "memory");
#endif
}

// For kernels that have nothing to do before their inputs are there.
RF_DEVICE void follow_previous_kernels() {
    allow_next_kernel();
    await_previous_kernels();
}

// ---- LDS ----------------------------------------------------------------------------------

// The LDS of a workgroup as a T, once per kernel. On NVIDIA, where the compiler allows 48 KiB, it
// is what the launch adds; on AMD it is part of the kernel.
template <typename T>
RF_DEVICE T *shared_memory() {
#if RF_NVIDIA
    extern RF_SHARED u32x4 rf_dynamic_lds[];
    auto lds = (__attribute__((address_space(3))) u8 *)reinterpret_cast<u8 *>(rf_dynamic_lds);
    // A launch adds space for larger alignments.
    u32 padding = alignof(T) > 16 ? -(u32)(u64)lds % alignof(T) : 0;
    return reinterpret_cast<T *>(reinterpret_cast<u8 *>(rf_dynamic_lds) + padding);
#else
    RF_SHARED static T memory;
    return &memory;
#endif
}

// ---- lanes --------------------------------------------------------------------------------

// The value in the lane whose index is this lane's XOR MASK (< 32).
template <u32 MASK>
RF_DEVICE u32 xor_lane(u32 value) {
    static_assert(MASK > 0 && MASK < WAVE);
#if RF_NVIDIA
    return (u32)__nvvm_shfl_sync_bfly_i32(0xffffffffu, (i32)value, (i32)MASK, 31);
#elif RF_GFX9
    return (u32)__builtin_amdgcn_ds_swizzle((i32)value, 0x1f | (MASK << 10));
#else
    if constexpr (MASK < 16) {
        return (u32)__builtin_amdgcn_update_dpp(0, (i32)value, 0x160 | MASK, 0xf, 0xf, true); // row_xmask
    } else if constexpr (MASK == 16) {
        u32 other = __builtin_amdgcn_permlanex16(0, value, 0x76543210u, 0xfedcba98u, false, false);
        // LLVM 19 does not treat the instruction as convergent and sinks it into branches with
        // fewer lanes; an assembly statement prevents that.
        asm("" : "+v"(other));
        return other;
    } else {
        return xor_lane<16>(xor_lane<MASK - 16>(value));
    }
#endif
}

template <u32 MASK>
RF_DEVICE float xor_lane(float value) {
    return __builtin_bit_cast(float, xor_lane<MASK>(__builtin_bit_cast(u32, value)));
}
template <u32 MASK>
RF_DEVICE i32 xor_lane(i32 value) {
    return (i32)xor_lane<MASK>((u32)value);
}

// The value in another lane of the wave, selected at run time.
RF_DEVICE u32 read_lane(u32 value, u32 source) {
#if RF_NVIDIA
    return (u32)__nvvm_shfl_sync_idx_i32(0xffffffffu, (i32)value, (i32)source, 31);
#elif RF_GFX9
    // Lane indices are relative to this lane's half of the hardware wave.
    u32 half = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)) & ~31u;
    return (u32)__builtin_amdgcn_ds_bpermute((i32)((half + source) * 4), (i32)value);
#else
    return (u32)__builtin_amdgcn_ds_bpermute((i32)(source * 4), (i32)value);
#endif
}
RF_DEVICE float read_lane(float value, u32 source) {
    return __builtin_bit_cast(float, read_lane(__builtin_bit_cast(u32, value), source));
}

// Sum and maximum over groups of SIZE consecutive lanes, returned to every lane. The order of
// additions depends only on SIZE.
template <u32 SIZE = WAVE, typename T>
RF_DEVICE T wave_sum(T value) {
    if constexpr (SIZE > 1) value += xor_lane<1>(value);
    if constexpr (SIZE > 2) value += xor_lane<2>(value);
    if constexpr (SIZE > 4) value += xor_lane<4>(value);
    if constexpr (SIZE > 8) value += xor_lane<8>(value);
    if constexpr (SIZE > 16) value += xor_lane<16>(value);
    return value;
}
template <u32 SIZE = WAVE>
RF_DEVICE float wave_max(float value) {
    if constexpr (SIZE > 1) value = __builtin_fmaxf(value, xor_lane<1>(value));
    if constexpr (SIZE > 2) value = __builtin_fmaxf(value, xor_lane<2>(value));
    if constexpr (SIZE > 4) value = __builtin_fmaxf(value, xor_lane<4>(value));
    if constexpr (SIZE > 8) value = __builtin_fmaxf(value, xor_lane<8>(value));
    if constexpr (SIZE > 16) value = __builtin_fmaxf(value, xor_lane<16>(value));
    return value;
}

RF_DEVICE u32 wave_max(u32 value) {
#if RF_NVIDIA
    return __nvvm_redux_sync_umax(value, 0xffffffffu);
#else
    auto larger = [](u32 a, u32 b) { return a > b ? a : b; };
    value = larger(value, xor_lane<1>(value));
    value = larger(value, xor_lane<2>(value));
    value = larger(value, xor_lane<4>(value));
    value = larger(value, xor_lane<8>(value));
    return larger(value, xor_lane<16>(value));
#endif
}

// ---- arithmetic ---------------------------------------------------------------------------

// c + Σ a[i]·b[i] over the four int8 of each word.
RF_DEVICE i32 dot4(u32 a, u32 b, i32 c) {
#if RF_NVIDIA
    i32 d;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
#elif RF_GFX11 || RF_GFX12
    return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false);
#elif RF_GFX10 || defined(__gfx90a__) || defined(__gfx942__)
    return __builtin_amdgcn_sdot4((i32)a, (i32)b, c, false);
#else
    for (u32 i = 0; i < 4; i++) c += (i32)(i8)(a >> 8 * i) * (i32)(i8)(b >> 8 * i);
    return c;
#endif
}

RF_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// 2^x within 2 ulp; results below 2^-126 may be 0.
RF_DEVICE float exp2(float x) {
#if RF_AMD
    return __builtin_amdgcn_exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// log₂ x with an absolute error of 2^-22 between ½ and 2, and within a few ulp elsewhere; x is a
// normal number.
RF_DEVICE float log2(float x) {
#if RF_AMD
    return __builtin_amdgcn_logf(x);
#else
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// e^x within a few ulp: e^x = 2^(x·log2 e). The exponent is a sum of two parts, so that its
// rounding error is negligible for large x.
RF_DEVICE float exp(float x) {
    constexpr float log2e = 1.44269504f, log2e_rest = 1.92596299e-8f;
    float hi = x * log2e;
    float lo = fma(x, log2e, -hi) + x * log2e_rest;
    // 2^lo ≈ 1 + lo·ln 2, accurate because |lo| < 2^-17 for |hi| < 128.
    float y = exp2(hi);
    // For infinite y or hi the correction would be NaN.
    return __builtin_fabsf(hi) < 128.0f ? fma(y, lo * 0.693147182f, y) : y;
}

// 1/x and 1/√x within 1 to 2 ulp.
RF_DEVICE float reciprocal(float x) { return 1.0f / x; }
RF_DEVICE float rsqrt(float x) {
#if RF_AMD
    return __builtin_amdgcn_rsqf(x);
#else
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// Round to nearest, ties to even.
RF_DEVICE float round_even(float x) { return __builtin_rintf(x); }

RF_DEVICE float tanh(float x) {
    // tanh x = 1 − 2 / (e^2x + 1). This cancels for small |x|, where a polynomial in x² is used.
    float x2 = x * x;
    if (x2 < 0.0625f) {
        float p = fma(x2, fma(x2, fma(x2, fma(x2, 0.0218694885f, -0.0539682540f), 0.133333333f), -0.333333333f), 0.0f);
        return fma(x, p, x);
    }
    float e = exp(2.0f * __builtin_fabsf(x));
    return __builtin_copysignf(1.0f - 2.0f / (e + 1.0f), x);
}

// The two f16 of a word.
RF_DEVICE float f16_low(u32 pair) { return (float)__builtin_bit_cast(f16, (u16)pair); }
RF_DEVICE float f16_high(u32 pair) { return (float)__builtin_bit_cast(f16, (u16)(pair >> 16)); }
RF_DEVICE float f16_value(u16 bits) { return (float)__builtin_bit_cast(f16, bits); }
RF_DEVICE float bf16_value(u16 bits) { return __builtin_bit_cast(float, (u32)bits << 16); }

// The same value, opaque to the optimizer.
RF_DEVICE u32 opaque(u32 value) {
#if RF_AMD
    asm("" : "+v"(value));
#endif
    return value;
}
RF_DEVICE float opaque(float value) { return __builtin_bit_cast(float, opaque(__builtin_bit_cast(u32, value))); }

// A value that is the same in all lanes, in a scalar register where there are those.
RF_DEVICE u32 uniform(u32 value) {
#if RF_AMD && !RF_GFX9
    return __builtin_amdgcn_readfirstlane(value);
#else
    return value;
#endif
}

// The same value, computed where this call is: what depends on it is not kept in registers across a
// loop around the call.
RF_DEVICE u32 computed_here(u32 value) {
#if RF_AMD
    asm volatile("" : "+v"(value));
#else
    asm volatile("" : "+r"(value));
#endif
    return value;
}

// Prevents instructions from being moved across this point (AMD).
RF_DEVICE void schedule_fence() {
#if RF_AMD
    __builtin_amdgcn_sched_barrier(0);
#endif
}

// Computes a value before the loads from memory that follow a call of forget_memory (AMD).
RF_DEVICE void computed_before([[maybe_unused]] float &value) {
#if RF_AMD
    asm volatile("" : "+v"(value));
#endif
}

// Prevents the compiler from reusing values that were loaded from memory before this call.
RF_DEVICE void forget_memory() { asm volatile("" ::: "memory"); }

} // namespace rf
