"""Counts what llama.cpp's matrix kernels for AMD cost in the emulator, for the estimates of docs/emulator.md.

Compiles the kernels with clang and runs them on the shapes of Llama 2 7B in Q4_0. Needs Linux, clang++ 19 or newer with
lld, a checkout of llama.cpp, the stand-in (cargo build --release -p rf-emu-hip) and HIP's headers of ROCm 5, for example
those of Debian 12's package libamdhip64-dev: apt-get download, dpkg-deb -x. Prints costs in TOML.

    python3 count_llama_cpp.py --source llama.cpp --headers unpacked/usr/include \\
        --library target/release/librf_emu_hip.so > llama_cpp_costs.toml
"""

import argparse
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Representatives of the three families; the kernels have the same code for every card of a family.
ARCHS = ("gfx1030", "gfx1100", "gfx1201")
TOKENS = 512

# What the kernels use of hipBLAS and of ROCm 6, as far as the compiler must know it.
HIPBLAS = """
#pragma once
typedef void * hipblasHandle_t;
typedef int hipblasDatatype_t, hipblasOperation_t;
enum hipblasStatus_t { HIPBLAS_STATUS_SUCCESS, HIPBLAS_STATUS_NOT_INITIALIZED, HIPBLAS_STATUS_ALLOC_FAILED,
    HIPBLAS_STATUS_INVALID_VALUE, HIPBLAS_STATUS_ARCH_MISMATCH, HIPBLAS_STATUS_MAPPING_ERROR,
    HIPBLAS_STATUS_EXECUTION_FAILED, HIPBLAS_STATUS_INTERNAL_ERROR, HIPBLAS_STATUS_NOT_SUPPORTED };
hipblasStatus_t hipblasCreate(hipblasHandle_t *);
hipblasStatus_t hipblasDestroy(hipblasHandle_t);
template <class S> hipblasStatus_t hipblasSetStream(hipblasHandle_t, S);
"""
BF16 = """
#pragma once
struct __hip_bfloat16 { unsigned short data; };
struct __hip_bfloat162 { __hip_bfloat16 x, y; };
#define DEVICE static inline __device__
#define LIBRARY extern "C" __device__ inline __attribute__((always_inline))
DEVICE __half2 __shfl_xor(__half2 value, int mask, int width = 32) {
    return __builtin_bit_cast(__half2, __shfl_xor(__builtin_bit_cast(int, value), mask, width));
}
DEVICE __half2 __shfl_up(__half2 value, unsigned by, int width = 32) {
    return __builtin_bit_cast(__half2, __shfl_up(__builtin_bit_cast(int, value), by, width));
}
DEVICE __half __hmax(__half a, __half b) { return __hgt(a, b) ? a : b; }
LIBRARY size_t __ockl_get_local_id(unsigned dimension) {
    return dimension == 0 ? __builtin_amdgcn_workitem_id_x()
        : dimension == 1 ? __builtin_amdgcn_workitem_id_y() : __builtin_amdgcn_workitem_id_z();
}
LIBRARY size_t __ockl_get_group_id(unsigned dimension) {
    return dimension == 0 ? __builtin_amdgcn_workgroup_id_x()
        : dimension == 1 ? __builtin_amdgcn_workgroup_id_y() : __builtin_amdgcn_workgroup_id_z();
}
LIBRARY unsigned __ockl_mul_hi_u32(unsigned a, unsigned b) { return (unsigned long long) a * b >> 32; }
LIBRARY float __ocml_exp_f32(float x) { return __builtin_amdgcn_exp2f(1.442695041f * x); }
LIBRARY float __ocml_tanh_f32(float x) { return 1.0f - 2.0f / (__ocml_exp_f32(2.0f * x) + 1.0f); }
LIBRARY void __atomic_work_item_fence(unsigned, int, int) { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
"""

INT, SIZES = "const int", "const uint32_t"
VECTOR_ARGUMENTS = ", ".join(
    ["const void *"] * 2 + ["const int32_t *", "const ggml_cuda_mm_fusion_args_device", "float *"]
    + [SIZES, "const uint3"] + [SIZES] * 3 + ["const uint3"] + [SIZES] * 3 + ["const uint3"] + [SIZES] * 4)
MATRIX_ARGUMENTS = ", ".join(
    ["const char *", "const int *"] + ["const int32_t *"] * 2 + ["float *"] * 2 + ["const float *", "const uint3"]
    + [INT] * 5 + ["const uint3"] * 2 + [INT] * 3 + ["const uint3"] * 2 + [INT] * 3 + ["const uint3"])

# Rows and columns of tokens of a workgroup's tile, its threads, and the bytes of LDS of the tile of weights: the
# choices of launch_mul_mat_q for Q4_0 and 512 tokens.
TILES = {
    "gfx1030": (128, 64, 256, (128 * 32 + 128 + 128 * 32 // 4 + 128 // 4) * 4),
    "gfx1100": (64, 128, 128, 64 * 76 * 4),
    "gfx1201": (128, 128, 256, 128 * 76 * 4),
}
# Waves of a workgroup of mul_mat_vec_q: calc_nwarps.
VECTOR_WAVES = {"gfx1030": {"Q4_0": 1, "Q6_K": 1}, "gfx1100": {"Q4_0": 8, "Q6_K": 2}, "gfx1201": {"Q4_0": 8, "Q6_K": 8}}
BLOCKS = {"Q4_0": (32, 18), "Q6_K": (256, 210)}  # elements and bytes
SWIGLU = 2  # GGML_GLU_OP_SWIGLU


def compile_kernels(options, arch, folder):
    """Compiles the kernels; returns the paths of the code objects."""
    cuda = options.source / "ggml/src/ggml-cuda"
    (folder / "include/hipblas").mkdir(parents=True)
    (folder / "include/hip").mkdir()
    (folder / "include/hipblas/hipblas.h").write_text(HIPBLAS)
    (folder / "include/hip/hip_bf16.h").write_text(BF16)
    # The functions of the host would instantiate the kernels of every type.
    vector, _, _ = (cuda / "mmvq.cu").read_text().partition("template<ggml_type type>\nstatic std::pair")
    for kind, fused in ("Q4_0", "false"), ("Q4_0", "true"), ("Q6_K", "false"):
        name = f"mul_mat_vec_q<GGML_TYPE_{kind}, 1, {fused}>"
        vector += f"template __global__ void {name}({VECTOR_ARGUMENTS});\n"
    matrix = '#include "common.cuh"\n#include "mmq.cuh"\n'
    matrix += f"template __global__ void mul_mat_q<GGML_TYPE_Q4_0, {TILES[arch][1]}, false>({MATRIX_ARGUMENTS});\n"
    objects = []
    for name, source in ("vector", vector), ("matrix", matrix):
        (folder / f"{name}.hip").write_text(source)
        objects.append(folder / f"{name}.co")
        ggml = options.source / "ggml"
        includes = (folder / "include", options.headers, ggml / "include", ggml / "src", cuda)
        subprocess.run(
            [options.clang, "-x", "hip", f"--offload-arch={arch}", "--cuda-device-only", "--no-gpu-bundle-output",
             "-nogpulib", "-nogpuinc", "-include", "__clang_hip_runtime_wrapper.h", "-O3", "-std=c++17", "-w",
             "-D__HIP_PLATFORM_AMD__", "-DGGML_USE_HIP", "-DNDEBUG", *(f"-I{path}" for path in includes),
             folder / f"{name}.hip", "-o", objects[-1]], check=True)
    return objects


class Device:
    """The first device of the stand-in."""

    def __init__(self, library):
        self.hip = ctypes.CDLL(library)
        self.check("hipSetDevice", 0)

    def check(self, name, *arguments):
        status = getattr(self.hip, name)(*arguments)
        if status != 0:
            sys.exit(f"{name} failed with status {status}")

    def buffer(self, size):
        """Allocates zeros."""
        address = ctypes.c_void_p()
        self.check("hipMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        self.check("hipMemset", address, 0, ctypes.c_size_t(size))
        return address

    def kernel(self, path, *parts):
        """The kernel of a code object whose mangled name has the parts."""
        data = pathlib.Path(path).read_bytes()
        names = {name.decode() for name in re.findall(rb"_Z[0-9A-Za-z_]+", data)}
        [name] = [name for name in names if all(part in name for part in parts)]
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check("hipModuleLoadData", ctypes.byref(module), data)
        self.check("hipModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def launch(self, function, grid, threads, lds_bytes, arguments):
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        self.check("hipModuleLaunchKernel", function, *grid, *threads, lds_bytes, None, places, None)
        self.check("hipDeviceSynchronize")


def division(by):
    """The arguments of llama.cpp's division by a constant (init_fastdiv_values)."""
    shift = (by - 1).bit_length()
    return (ctypes.c_uint32 * 3)(2**32 * (2**shift - by) // by + 1, shift, by)


def numbers(*values):
    return [ctypes.c_int32(value) for value in values]


class Fusion(ctypes.Structure):
    """ggml_cuda_mm_fusion_args_device."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("x_bias", "gate", "gate_bias", "x_scale", "gate_scale")] + [
        ("glu_op", ctypes.c_int32), ("glu_limit", ctypes.c_float)]


def vector_product(device, path, arch, kind, rows, columns, fused):
    """A product of a matrix with one token; fused: two matrices and their SwiGLU."""
    elements, size = BLOCKS[kind]
    number = {"Q4_0": 2, "Q6_K": 14}[kind]
    function = device.kernel(path, "mul_mat_vec_q", f"ggml_type{number}E", f"ELi1ELb{int(fused)}E")
    weights = rows * columns // elements * size
    fusion = Fusion(gate=device.buffer(weights).value, glu_op=SWIGLU) if fused else Fusion()
    one, none = division(1), (ctypes.c_uint32 * 3)()
    stride = columns // elements
    device.launch(function, (rows, 1, 1), (32, VECTOR_WAVES[arch][kind], 1), 0, [
        device.buffer(weights), device.buffer(columns // 32 * 36), ctypes.c_void_p(), fusion, device.buffer(rows * 4),
        *numbers(columns), none, *numbers(stride, columns // 32, rows), one, *numbers(0, 0, 0), one, *numbers(0, 0, 0, 0)])


def matrix_product(device, path, arch, rows, columns):
    """A product of a matrix with 512 tokens."""
    tile_rows, tile_tokens, threads, tile_bytes = TILES[arch]
    function = device.kernel(path, "mul_mat_q")
    inputs = tile_tokens * 144
    lds_bytes = tile_tokens * 4 + tile_bytes + -(-inputs // (threads * 4)) * threads * 4
    one, null = division(1), ctypes.c_void_p()
    tiles = TOKENS // tile_tokens
    device.launch(function, (rows // tile_rows, tiles, 1), (32, threads // 32, 1), lds_bytes, [
        device.buffer(rows * columns // 32 * 18), device.buffer(TOKENS * columns // 128 * 144 + inputs), null, null,
        device.buffer(rows * TOKENS * 4), null, null, division(columns // 32),
        *numbers(rows, TOKENS, columns // 32, TOKENS, rows), one, one, *numbers(0, 0, 0), one, one, *numbers(0, 0, 0),
        division(tiles)])


# The products of Llama 2 7B: name, function, arguments.
PRODUCTS = {
    "vector Q4_0 4096x4096": (vector_product, ("Q4_0", 4096, 4096, False)),
    "vector Q4_0 gate and up 11008x4096": (vector_product, ("Q4_0", 11008, 4096, True)),
    "vector Q4_0 4096x11008": (vector_product, ("Q4_0", 4096, 11008, False)),
    "vector Q6_K 32000x4096": (vector_product, ("Q6_K", 32000, 4096, False)),
    "matrix Q4_0 4096x4096": (matrix_product, (4096, 4096)),
    "matrix Q4_0 11008x4096": (matrix_product, (11008, 4096)),
    "matrix Q4_0 4096x11008": (matrix_product, (4096, 11008)),
}


def count(options, arch, objects, name, folder):
    """Runs one product in a process of its own, with its counters; returns them with a readable name."""
    environment = dict(os.environ, ROCFORGE_EMU_ARCH=arch, ROCFORGE_EMU_CHECK="none",
                       ROCFORGE_EMU_COUNTERS=str(folder / "costs"))
    kind = 0 if PRODUCTS[name][0] is vector_product else 1
    subprocess.run([sys.executable, __file__, "--library", options.library, "--product", name, "--arch", arch,
                    "--object", objects[kind]], env=environment, check=True)
    costs = (folder / "costs/costs.toml").read_text()
    return re.sub(r'^kernel = ".*"$', f'kernel = "{name}"', costs, flags=re.MULTILINE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, help="a checkout of llama.cpp")
    parser.add_argument("--headers", type=pathlib.Path, help="the folder with hip/hip_runtime.h")
    parser.add_argument("--library", type=pathlib.Path, required=True, help="librf_emu_hip.so")
    parser.add_argument("--clang", default="clang++-19")
    parser.add_argument("--product", choices=PRODUCTS, help=argparse.SUPPRESS)
    parser.add_argument("--arch", help=argparse.SUPPRESS)
    parser.add_argument("--object", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.product:
        function, arguments = PRODUCTS[options.product]
        return function(Device(options.library), options.object, options.arch, *arguments)
    if not (options.source and options.headers):
        parser.error("--source and --headers are needed")
    for arch in ARCHS:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            objects = compile_kernels(options, arch, folder)
            for name in PRODUCTS:
                print(count(options, arch, objects, name, folder), flush=True)


if __name__ == "__main__":
    main()
