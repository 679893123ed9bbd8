// Host memory that the device accesses directly: the inputs and results of a step.
//
// The memory is coherent: rf-hip allocates it so that caches of the device do not keep it. Nothing
// here relies on what a runtime does between two kernels, so a captured graph that lacks the usual
// cache maintenance reads what the host wrote, and its results are complete when their stamp is.
#pragma once

#include "rf/device.h"

namespace rf {

// Reads 8 bytes that the host wrote before it queued the launch.
RF_DEVICE u64 read_host(const u64 *from) {
#if RF_AMD
    return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
#endif
}

// Makes earlier writes of this thread visible to the host before its later writes.
RF_DEVICE void release_to_host() {
#if RF_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
#else
    asm volatile("fence.acq_rel.sys;" : : : "memory");
#endif
}

// Writes a word that the host may read while the kernel runs.
RF_DEVICE void write_host(u32 *to, u32 value) {
#if RF_AMD
    __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
#endif
}

} // namespace rf
