// y = a * x + y, in workgroups of 256 threads.
//
// Includes no header. axpy.ptx is this file, compiled with
//   clang-19 -x cuda --cuda-gpu-arch=sm_70 --cuda-device-only -nocudainc -nocudalib -O3 -S

struct Axpy {
    const float *x; // [len]
    float *y;       // [len]
    unsigned len;
    float a;
};

extern "C" __attribute__((global)) __attribute__((launch_bounds(256))) void
axpy_f32(const struct Axpy p) {
#if defined(__NVPTX__)
    unsigned i = __nvvm_read_ptx_sreg_ctaid_x() * 256 + __nvvm_read_ptx_sreg_tid_x();
#else
    unsigned i = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x();
#endif
    if (i < p.len) {
        p.y[i] = p.a * p.x[i] + p.y[i];
    }
}
