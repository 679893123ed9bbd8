// Generated from crates/rf-kernels/src/params/step.rs: do not edit.
// `cargo test -p rf-kernels params` writes it.
#pragma once

#include "rf/params/numbers.h"

// The arrays of a batch, from host memory, and the stamp of the step.
//
// A stamp is a number that the host gives each step. `load_step_u32` writes it to device
// memory and the last kernel of the step writes it back, so the host sees if a step ran with
// older inputs.
struct RfLoadStepParams {
    // In host memory: the stamp, the number of pairs of words as u32, then the pairs. At least
    // `groups` · 256 pairs can be read.
    const unsigned long long *block;
    // Pairs of words: the arrays of the batch.
    unsigned long long *step;
    // The stamp of the step.
    unsigned *stamp;
    // Workgroups, from `LoadStepParams::GROUPS`.
    unsigned groups;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfLoadStepParams) == 32);
static_assert(__builtin_offsetof(RfLoadStepParams, block) == 0);
static_assert(__builtin_offsetof(RfLoadStepParams, step) == 8);
static_assert(__builtin_offsetof(RfLoadStepParams, stamp) == 16);
static_assert(__builtin_offsetof(RfLoadStepParams, groups) == 24);
static_assert(__builtin_offsetof(RfLoadStepParams, reserved) == 28);

// Rows of input, from host memory.
struct RfLoadRowsParams {
    // In host memory, pairs of f32.
    const unsigned long long *from;
    // Pairs of f32.
    unsigned long long *to;
    // Pairs of elements.
    unsigned pairs;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfLoadRowsParams) == 24);
static_assert(__builtin_offsetof(RfLoadRowsParams, from) == 0);
static_assert(__builtin_offsetof(RfLoadRowsParams, to) == 8);
static_assert(__builtin_offsetof(RfLoadRowsParams, pairs) == 16);
static_assert(__builtin_offsetof(RfLoadRowsParams, reserved) == 20);

// Rows of output, to host memory, and the stamp of the step.
struct RfStoreRowsParams {
    // Elements.
    const float *from;
    // Elements in host memory.
    float *to;
    // The stamp of the step.
    const unsigned *stamp;
    // `[⌈count / 4096⌉, at least 1]` in host memory: the stamp of each workgroup, after its
    // elements.
    unsigned *stamps;
    // Number of elements; may be 0.
    unsigned count;
    // Zero.
    unsigned reserved;
};
static_assert(sizeof(RfStoreRowsParams) == 40);
static_assert(__builtin_offsetof(RfStoreRowsParams, from) == 0);
static_assert(__builtin_offsetof(RfStoreRowsParams, to) == 8);
static_assert(__builtin_offsetof(RfStoreRowsParams, stamp) == 16);
static_assert(__builtin_offsetof(RfStoreRowsParams, stamps) == 24);
static_assert(__builtin_offsetof(RfStoreRowsParams, count) == 32);
static_assert(__builtin_offsetof(RfStoreRowsParams, reserved) == 36);

// A copy of a stamp, which proves that the launches before it, a graph of their own, ran for
// this step.
struct RfPassStampParams {
    // A stamp.
    const unsigned *from;
    // A stamp.
    unsigned *to;
};
static_assert(sizeof(RfPassStampParams) == 16);
static_assert(__builtin_offsetof(RfPassStampParams, from) == 0);
static_assert(__builtin_offsetof(RfPassStampParams, to) == 8);

// A copy within device memory.
struct RfCopyBytesParams {
    // Aligned to 16 bytes.
    const unsigned char *from;
    // Aligned to 16 bytes.
    unsigned char *to;
    // Number of vectors of 16 bytes.
    unsigned long long vectors;
};
static_assert(sizeof(RfCopyBytesParams) == 24);
static_assert(__builtin_offsetof(RfCopyBytesParams, from) == 0);
static_assert(__builtin_offsetof(RfCopyBytesParams, to) == 8);
static_assert(__builtin_offsetof(RfCopyBytesParams, vectors) == 16);
