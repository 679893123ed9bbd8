// The edges of a step: inputs from host memory, results to host memory, and copies of pages. Twin:
// crates/rf-kernels/src/params/step.rs.
//
// A stamp is a number that the host gives each step. load_step_u32 writes it to device memory and
// the last kernel of the step writes it back, so the host sees if a step ran with older inputs.

// step[i] = the arrays of the batch, *stamp = the number of the step.
struct RfLoadStepParams {
    // In host memory: the stamp, the number of pairs of words as u32, then the pairs. At least
    // `groups` * 256 pairs can be read.
    const unsigned long long *block;
    unsigned long long *step; // pairs of words
    unsigned *stamp;
    unsigned groups; // workgroups
    unsigned reserved;
};

// to[i] = from[i] in host memory.
struct RfLoadRowsParams {
    const unsigned long long *from;
    unsigned long long *to;
    unsigned pairs; // of f32
    unsigned reserved;
};

// to[i] = from[i], to in host memory; then stamps[g] = *stamp for each workgroup g.
struct RfStoreRowsParams {
    const float *from;
    float *to;
    const unsigned *stamp;
    unsigned *stamps; // [⌈count / 4096⌉, at least 1], in host memory
    unsigned count;
    unsigned reserved;
};

// *to = *from: proves that the launches before it, a graph of their own, ran for this step.
struct RfPassStampParams {
    const unsigned *from;
    unsigned *to;
};

// to[i] = from[i]; both are multiples of 16 bytes.
struct RfCopyBytesParams {
    const unsigned char *from;
    unsigned char *to;
    unsigned long long vectors; // of 16 bytes
};
