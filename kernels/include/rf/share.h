// Passes results from the workgroups of a launch to the last one to finish.
#pragma once

#include "rf/device.h"

namespace rf {

// Makes earlier writes of this thread visible in device memory to every workgroup before its later
// writes.
RF_DEVICE void publish() {
#if RF_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#else
    asm volatile("membar.gl;" ::: "memory");
#endif
}

// Reads a value that another workgroup published, bypassing caches that may hold an older value.
RF_DEVICE u64 read_published(const u64 *from) {
    #if RF_AMD
    // Not `__scoped_atomic_load_n`, which clang 17 (ROCm 6.0 and 6.1) lacks.
    return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    return __scoped_atomic_load_n(from, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
#endif
}

// Adds 1 to a counter in LDS and returns its previous value.
RF_DEVICE u32 count_up(u32 *counter) {
    #if RF_AMD
    return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
#else
    return __scoped_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
#endif
}

} // namespace rf
