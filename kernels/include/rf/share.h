// Results that workgroups of one launch pass to the last of them.
#pragma once

#include "rf/device.h"

namespace rf {

// What this thread wrote is in device memory, for every workgroup to see, before anything it writes later.
RF_DEVICE void publish() {
#if RF_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#else
    asm volatile("membar.gl;" ::: "memory");
#endif
}

// A value that another workgroup published; not from a cache that might hold an older one.
RF_DEVICE u64 read_published(const u64 *from) {
    return __scoped_atomic_load_n(from, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

// Adds 1 to a counter in LDS and returns what it was.
RF_DEVICE u32 count_up(u32 *counter) {
    return __scoped_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}

} // namespace rf
