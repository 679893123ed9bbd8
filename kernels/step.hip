// The edges of a step. Kernels take the place of copies of the runtime, because those run on other
// queues of the device: a captured graph may start before such a copy is visible to it.
#include "rf/host_memory.h"
#include "rf/params/step.h"

using namespace rf;

constexpr u32 THREADS = 256;
// Elements of a thread: their loads are in flight together.
constexpr u32 ROWS_PER_THREAD = 16, PAIRS_PER_THREAD = 4, VECTORS_PER_THREAD = 4;

// Reads the block once, in pairs of words. The first pairs are in flight while the header is
// read, which takes a round trip over the bus.
RF_KERNEL(THREADS) load_step_u32(RfLoadStepParams p) {
    follow_previous_kernels();
    u32 first = group_x() * THREADS + thread_x(), stride = p.groups * THREADS;
    const u64 *pairs = p.block + 1;
    u64 header = read_host(p.block), pair = read_host(pairs + first);
    u32 count = (u32)(header >> 32);
    for (u32 i = first; i < count;) {
        p.step[i] = pair;
        i += stride;
        if (i < count) pair = read_host(pairs + i);
    }
    if (first == 0) *p.stamp = (u32)header;
}

// A workgroup copies 8 KiB.
RF_KERNEL(THREADS) load_rows_f32(RfLoadRowsParams p) {
    follow_previous_kernels();
    u32 first = group_x() * THREADS * PAIRS_PER_THREAD + thread_x();
    u64 pair[PAIRS_PER_THREAD];
#pragma unroll
    for (u32 i = 0; i < PAIRS_PER_THREAD; i++) {
        u32 at = first + i * THREADS;
        if (at < p.pairs) pair[i] = read_host(p.from + at);
    }
#pragma unroll
    for (u32 i = 0; i < PAIRS_PER_THREAD; i++) {
        u32 at = first + i * THREADS;
        if (at < p.pairs) p.to[at] = pair[i];
    }
}

// A workgroup copies 16 KiB. Every thread releases its writes, and the barrier orders them before
// the stamp of the workgroup.
RF_KERNEL(THREADS) store_rows_f32(RfStoreRowsParams p) {
    follow_previous_kernels();
    u32 stamp = *p.stamp, first = group_x() * THREADS * ROWS_PER_THREAD + thread_x();
    float value[ROWS_PER_THREAD];
#pragma unroll
    for (u32 i = 0; i < ROWS_PER_THREAD; i++) {
        u32 at = first + i * THREADS;
        if (at < p.count) value[i] = p.from[at];
    }
#pragma unroll
    for (u32 i = 0; i < ROWS_PER_THREAD; i++) {
        u32 at = first + i * THREADS;
        if (at < p.count) p.to[at] = value[i];
    }
    release_to_host();
    barrier();
    if (thread_x() == 0) write_host(p.stamps + group_x(), stamp);
}

RF_KERNEL(THREADS) pass_stamp(RfPassStampParams p) {
    follow_previous_kernels();
    if (thread_x() == 0) *p.to = *p.from;
}

// A workgroup copies 16 KiB.
RF_KERNEL(THREADS) copy_bytes(RfCopyBytesParams p) {
    follow_previous_kernels();
    u64 first = (u64)group_x() * THREADS * VECTORS_PER_THREAD + thread_x();
    const u32x4 *from = (const u32x4 *)p.from;
    u32x4 *to = (u32x4 *)p.to, vector[VECTORS_PER_THREAD];
#pragma unroll
    for (u32 i = 0; i < VECTORS_PER_THREAD; i++) {
        u64 at = first + i * THREADS;
        if (at < p.vectors) vector[i] = from[at];
    }
#pragma unroll
    for (u32 i = 0; i < VECTORS_PER_THREAD; i++) {
        u64 at = first + i * THREADS;
        if (at < p.vectors) to[at] = vector[i];
    }
}
