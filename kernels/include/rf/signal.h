// Signals between kernels that run on different devices: numbers in device memory.
//
// What the kernel that raises a signal sees, the kernels that read it see afterwards. On NVIDIA
// that holds for the memory of devices that access each other (PTX memory model, scope .sys). On
// AMD it holds for memory that is coherent between devices only.
#pragma once

#include "rf/device.h"

namespace rf {

// Writes a signal after all that this thread sees.
RF_DEVICE void raise_signal(u32 *signal, u32 number) {
#if RF_AMD
    __hip_atomic_store(signal, number, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(signal), "r"(number) : "memory");
#endif
}

// The number of a signal. What precedes it is visible to later reads of this thread.
RF_DEVICE u32 signal_number(const u32 *signal) {
#if RF_AMD
    return __hip_atomic_load(signal, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    u32 number;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(number) : "l"(signal) : "memory");
    return number;
#endif
}

// Fails the launch: the device reports an error.
RF_DEVICE void fail_launch() {
#if RF_AMD
    // The emulator does not decode a trap.
    *static_cast<volatile u32 *>(nullptr) = 0;
#else
    __builtin_trap();
#endif
}

} // namespace rf
