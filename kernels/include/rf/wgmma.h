// The matrix unit of NVIDIA's compute capability 9.0; WGMMA is false on other targets. It reads
// both operands from LDS and works while the waves do something else: sums[row][token] += Σ_k
// W[row][k] · X[token][k] for 64 rows of four consecutive waves (a warpgroup), TOKENS tokens and 16
// k, f16 with sums in f32.
//
// An operand in LDS has rows of 64 f16. Piece p of 16 bytes of row r lies at place p XOR r % 8, and
// the first row at a multiple of 1024 bytes (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Instructions", swizzling of 128 bytes). The unit sees what a thread wrote to LDS after
// `publish_lds` and a barrier.
//
// A lane has the sums of MatrixTile: sum 8t + e is sum e of tile t of 16 tokens, for the 16 rows of
// its wave.
#pragma once

#include "rf/device.h"

// Code for sm_90a runs on no other compute capability.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RF_WGMMA 1
#else
#define RF_WGMMA 0
#endif

namespace rf {

#if RF_WGMMA
constexpr bool WGMMA = true;

// The low word of the descriptor of an operand. Its next 16 columns begin 32 bytes further, which
// adds 2. The high word is the distance of eight rows, 1024 bytes, with the swizzling.
RF_DEVICE u32 wgmma_operand(const void *lds) {
    u32 address = (u32)(u64)(__attribute__((address_space(3))) const u8 *)static_cast<const u8 *>(lds);
    return (address & 0x3ffffu) / 16 | 1u << 16;
}
#define RF_OPERANDS(rows, tokens)                                                                                      \
    ".reg .b64 rows, tokens; mov.b64 rows, {" rows ", 0x40000040}; mov.b64 tokens, {" tokens ", 0x40000040}; "

// Makes the LDS writes of this thread visible to the matrix unit after the next barrier.
RF_DEVICE void publish_lds() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Before the first multiplications after other uses of the sums.
RF_DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group of multiplications.
RF_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most GROUPS of the last groups are unfinished.
template <u32 GROUPS>
RF_DEVICE void wgmma_wait_but() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(GROUPS) : "memory");
}
// Waits for all multiplications; the sums are used after this only.
template <u32 SUMS>
RF_DEVICE void wgmma_wait(float (&sums)[SUMS]) {
    wgmma_wait_but<0>();
#pragma unroll
    for (u32 i = 0; i < SUMS; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

#define RF_SUMS_8(i)                                                                                                   \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]),      \
        "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define RF_SUMS_32(i) RF_SUMS_8(i), RF_SUMS_8(i + 8), RF_SUMS_8(i + 16), RF_SUMS_8(i + 24)
#define RF_SUMS_64(i) RF_SUMS_32(i), RF_SUMS_32(i + 32)
#define RF_SUMS_128(i) RF_SUMS_64(i), RF_SUMS_64(i + 64)
#define RF_REGISTERS_32                                                                                                \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RF_REGISTERS_64                                                                                                \
    RF_REGISTERS_32                                                                                                    \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                               \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RF_REGISTERS_128                                                                                               \
    RF_REGISTERS_64                                                                                                    \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                               \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                     \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Starts a multiplication of 64 rows × TOKENS tokens × 16 columns: `wgmma(sums, rows, tokens)`. The
// operands have the numbers after those of the sums.
#define RF_DEFINE_WGMMA(SUMS, TOKENS, ROWS_NUMBER, TOKENS_NUMBER)                                                      \
    RF_DEVICE void wgmma(float (&sums)[SUMS], u32 rows, u32 tokens) {                                                  \
        asm volatile("{.reg .pred add; setp.eq.u32 add, 0, 0; " RF_OPERANDS("%" #ROWS_NUMBER, "%" #TOKENS_NUMBER)      \
                     "wgmma.mma_async.sync.aligned.m64n" #TOKENS "k16.f32.f16.f16 {" RF_REGISTERS_##SUMS               \
                     "}, rows, tokens, add, 1, 1, 0, 0;}"                                                              \
                     : RF_SUMS_##SUMS(0)                                                                               \
                     : "r"(rows), "r"(tokens)                                                                          \
                     : "memory");                                                                                      \
    }
RF_DEFINE_WGMMA(32, 64, 32, 33)
RF_DEFINE_WGMMA(64, 128, 64, 65)
RF_DEFINE_WGMMA(128, 256, 128, 129)

#undef RF_DEFINE_WGMMA
#undef RF_OPERANDS
#undef RF_SUMS_8
#undef RF_SUMS_32
#undef RF_SUMS_64
#undef RF_SUMS_128
#undef RF_REGISTERS_32
#undef RF_REGISTERS_64
#undef RF_REGISTERS_128
#else
constexpr bool WGMMA = false;
RF_DEVICE u32 wgmma_operand(const void *) { return 0; }
RF_DEVICE void publish_lds() {}
RF_DEVICE void wgmma_begin() {}
RF_DEVICE void wgmma_commit() {}
template <u32>
RF_DEVICE void wgmma_wait_but() {}
template <u32 SUMS>
RF_DEVICE void wgmma_wait(float (&)[SUMS]) {}
template <u32 SUMS>
RF_DEVICE void wgmma(float (&)[SUMS], u32, u32) {}
#endif

} // namespace rf
