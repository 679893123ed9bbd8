// Matrix × 1, 2, 4 or 8 columns, formats with blocks of 32: rf/matvec.h.
#include "rf/matvec_glu.h"

using namespace rf;

RF_KERNEL(MATVEC_THREADS_1) matvec_q4_0_q8_f32_n1(RfMatvecParams p) { matvec<Q4_0, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q4_0_q8_f32_n2(RfMatvecParams p) { matvec<Q4_0, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q4_0_q8_f32_n4(RfMatvecParams p) { matvec<Q4_0, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q4_0_q8_f32_n8(RfMatvecParams p) { matvec<Q4_0, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q4_0_q8_n1(RfMatvecGluParams p) { matvec_glu<Q4_0>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_q4_1_q8_f32_n1(RfMatvecParams p) { matvec<Q4_1, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q4_1_q8_f32_n2(RfMatvecParams p) { matvec<Q4_1, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q4_1_q8_f32_n4(RfMatvecParams p) { matvec<Q4_1, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q4_1_q8_f32_n8(RfMatvecParams p) { matvec<Q4_1, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q4_1_q8_n1(RfMatvecGluParams p) { matvec_glu<Q4_1>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_q5_0_q8_f32_n1(RfMatvecParams p) { matvec<Q5_0, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q5_0_q8_f32_n2(RfMatvecParams p) { matvec<Q5_0, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q5_0_q8_f32_n4(RfMatvecParams p) { matvec<Q5_0, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q5_0_q8_f32_n8(RfMatvecParams p) { matvec<Q5_0, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q5_0_q8_n1(RfMatvecGluParams p) { matvec_glu<Q5_0>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_q5_1_q8_f32_n1(RfMatvecParams p) { matvec<Q5_1, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q5_1_q8_f32_n2(RfMatvecParams p) { matvec<Q5_1, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q5_1_q8_f32_n4(RfMatvecParams p) { matvec<Q5_1, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q5_1_q8_f32_n8(RfMatvecParams p) { matvec<Q5_1, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q5_1_q8_n1(RfMatvecGluParams p) { matvec_glu<Q5_1>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_q8_0_q8_f32_n1(RfMatvecParams p) { matvec<Q8_0, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q8_0_q8_f32_n2(RfMatvecParams p) { matvec<Q8_0, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q8_0_q8_f32_n4(RfMatvecParams p) { matvec<Q8_0, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_q8_0_q8_f32_n8(RfMatvecParams p) { matvec<Q8_0, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_q8_0_q8_n1(RfMatvecGluParams p) { matvec_glu<Q8_0>(p); }
