// Matrix × vector where one launch has projections of several formats, such as the Q, K and V of a Q4_K_M file:
// rf/matvec.h. The pairs that mixes of llama.cpp make have kernels of their own, which need fewer registers. The
// microscaling formats are not in it: their unpacking would cost all others their registers.
#include "rf/matvec.h"

using namespace rf;

RF_KERNEL(MATVEC_THREADS) matvec_mixed_q8_f32_n1(RfMatvecParams p) {
    matvec_mixed<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K>(p);
}
RF_KERNEL(MATVEC_THREADS) matvec_mixed_q4_k_q6_k_q8_f32_n1(RfMatvecParams p) { matvec_mixed<Q4_K, Q6_K>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mixed_q5_k_q6_k_q8_f32_n1(RfMatvecParams p) { matvec_mixed<Q5_K, Q6_K>(p); }
