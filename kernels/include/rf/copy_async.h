// Asynchronous copies from memory to LDS that bypass registers. NVIDIA only; COPY_ASYNC is false on
// other targets.
#pragma once

#include "rf/device.h"

namespace rf {

#if RF_NVIDIA
constexpr bool COPY_ASYNC = true;

// Copies 16 bytes, or writes zeros without a load if the source does not exist. Both addresses are
// multiples of 16.
RF_DEVICE void copy_async_16(void *lds, const void *from, bool exists) {
    u32 to = (u32)(u64)(__attribute__((address_space(3))) u8 *)static_cast<u8 *>(lds);
    u32 bytes = exists ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

// Ends a group of copies of this thread, which may be empty.
RF_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }

// Waits until at most GROUPS of the last groups of this thread are unfinished.
template <u32 GROUPS>
RF_DEVICE void copy_async_wait_but() {
    asm volatile("cp.async.wait_group %0;" : : "n"(GROUPS) : "memory");
}

// Waits for all copies of this thread. A barrier makes them visible to the other threads.
RF_DEVICE void copy_async_wait() { asm volatile("cp.async.wait_all;" : : : "memory"); }

// A barrier in LDS of which some threads wait for others. Its phases end with the last of COUNT
// arrivals and have the numbers 0, 1, 2 …
struct PhaseBarrier {
    u64 state;

    RF_DEVICE_MEMBER u32 address() { return (u32)(u64)(__attribute__((address_space(3))) u64 *)&state; }
    // By one thread, before a barrier of the workgroup.
    RF_DEVICE_MEMBER void start(u32 count) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(address()), "r"(count) : "memory");
    }
    RF_DEVICE_MEMBER void arrive() {
        asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}" : : "r"(address()) : "memory");
    }
    // Arrives when all copies that this thread has started are done.
    RF_DEVICE_MEMBER void arrive_after_copies() {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" : : "r"(address()) : "memory");
    }
    // Waits for the end of a phase. Number -1 has ended.
    RF_DEVICE_MEMBER void wait(u32 phase) {
        asm volatile("{.reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1; @!done bra again;}"
                     :
                     : "r"(address()), "r"(phase % 2)
                     : "memory");
    }
};
#else
constexpr bool COPY_ASYNC = false;
RF_DEVICE void copy_async_16(void *, const void *, bool) {}
RF_DEVICE void copy_async_commit() {}
template <u32 GROUPS>
RF_DEVICE void copy_async_wait_but() {}
RF_DEVICE void copy_async_wait() {}

struct PhaseBarrier {
    u64 state;

    RF_DEVICE_MEMBER void start(u32) {}
    RF_DEVICE_MEMBER void arrive() {}
    RF_DEVICE_MEMBER void arrive_after_copies() {}
    RF_DEVICE_MEMBER void wait(u32) {}
};
#endif

} // namespace rf
