// Matrix × 1, 2, 4 or 8 columns, formats with super-blocks of 256: rf/matvec.h.
#include "rf/matvec_glu.h"

using namespace rf;

RF_KERNEL(MATVEC_THREADS_1) matvec_q2_k_q8_f32_n1(RfMatvecParams p) { matvec<Q2_K, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q2_k_q8_f32_n2(RfMatvecParams p) { matvec<Q2_K, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q2_k_q8_f32_n4(RfMatvecParams p) { matvec<Q2_K, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q2_k_q8_f32_n8(RfMatvecParams p) { matvec<Q2_K, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q2_k_q8_n1(RfMatvecGluParams p) { matvec_glu<Q2_K>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_q3_k_q8_f32_n1(RfMatvecParams p) { matvec<Q3_K, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q3_k_q8_f32_n2(RfMatvecParams p) { matvec<Q3_K, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q3_k_q8_f32_n4(RfMatvecParams p) { matvec<Q3_K, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q3_k_q8_f32_n8(RfMatvecParams p) { matvec<Q3_K, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q3_k_q8_n1(RfMatvecGluParams p) { matvec_glu<Q3_K>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_q4_k_q8_f32_n1(RfMatvecParams p) { matvec<Q4_K, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q4_k_q8_f32_n2(RfMatvecParams p) { matvec<Q4_K, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q4_k_q8_f32_n4(RfMatvecParams p) { matvec<Q4_K, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q4_k_q8_f32_n8(RfMatvecParams p) { matvec<Q4_K, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q4_k_q8_n1(RfMatvecGluParams p) { matvec_glu<Q4_K>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_q5_k_q8_f32_n1(RfMatvecParams p) { matvec<Q5_K, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q5_k_q8_f32_n2(RfMatvecParams p) { matvec<Q5_K, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q5_k_q8_f32_n4(RfMatvecParams p) { matvec<Q5_K, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q5_k_q8_f32_n8(RfMatvecParams p) { matvec<Q5_K, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q5_k_q8_n1(RfMatvecGluParams p) { matvec_glu<Q5_K>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_q6_k_q8_f32_n1(RfMatvecParams p) { matvec<Q6_K, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q6_k_q8_f32_n2(RfMatvecParams p) { matvec<Q6_K, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q6_k_q8_f32_n4(RfMatvecParams p) { matvec<Q6_K, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q6_k_q8_f32_n8(RfMatvecParams p) { matvec<Q6_K, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q6_k_q8_n1(RfMatvecGluParams p) { matvec_glu<Q6_K>(p); }
