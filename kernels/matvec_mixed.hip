// Matrix × vector for projections of several formats in one launch, such as Q, K and V of a Q4_K_M
// file: rf/matvec.h. The pairs of llama.cpp's mixes have kernels of their own, which need fewer
// registers. The microscaling and codebook formats are left out: unpacking them would cost the
// others registers.
#include "rf/matvec.h"

using namespace rf;

#define COMMA_FORMAT(NAME, FORMAT, NUMBER) , FORMAT
#define MIXED(N)                                                                                   \
    RF_KERNEL(MATVEC_THREADS) matvec_mixed_q8_f32_n##N(RfMatvecParams p) {                         \
        matvec_mixed<N, void RF_BLOCK32_FORMATS(COMMA_FORMAT) RF_K_QUANT_FORMATS(COMMA_FORMAT)>(p); \
    }                                                                                              \
    RF_KERNEL(MATVEC_THREADS) matvec_mixed_q4_k_q6_k_q8_f32_n##N(RfMatvecParams p) {               \
        matvec_mixed<N, void, Q4K, Q6K>(p);                                                        \
    }                                                                                              \
    RF_KERNEL(MATVEC_THREADS) matvec_mixed_q5_k_q6_k_q8_f32_n##N(RfMatvecParams p) {               \
        matvec_mixed<N, void, Q5K, Q6K>(p);                                                        \
    }
MIXED(1)
#if RF_NVIDIA || !RF_MATRIX_UNIT
MIXED(2)
#endif
