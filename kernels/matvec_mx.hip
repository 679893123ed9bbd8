// Matrix × 1, 2, 4 or 8 columns, microscaling formats: rf/matvec.h.
#include "rf/matvec_glu.h"

using namespace rf;

RF_KERNEL(MATVEC_THREADS_1) matvec_mxfp4_q8_f32_n1(RfMatvecParams p) { matvec<Mxfp4, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mxfp4_q8_f32_n2(RfMatvecParams p) { matvec<Mxfp4, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mxfp4_q8_f32_n4(RfMatvecParams p) { matvec<Mxfp4, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mxfp4_q8_f32_n8(RfMatvecParams p) { matvec<Mxfp4, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_mxfp4_q8_n1(RfMatvecGluParams p) { matvec_glu<Mxfp4>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_mxfp6_e2m3_q8_f32_n1(RfMatvecParams p) { matvec<Mxfp6E2M3, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mxfp6_e2m3_q8_f32_n2(RfMatvecParams p) { matvec<Mxfp6E2M3, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mxfp6_e2m3_q8_f32_n4(RfMatvecParams p) { matvec<Mxfp6E2M3, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mxfp6_e2m3_q8_f32_n8(RfMatvecParams p) { matvec<Mxfp6E2M3, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_mxfp6_e2m3_q8_n1(RfMatvecGluParams p) { matvec_glu<Mxfp6E2M3>(p); }

RF_KERNEL(MATVEC_THREADS_1) matvec_mxfp6_e3m2_q8_f32_n1(RfMatvecParams p) { matvec<Mxfp6E3M2, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mxfp6_e3m2_q8_f32_n2(RfMatvecParams p) { matvec<Mxfp6E3M2, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mxfp6_e3m2_q8_f32_n4(RfMatvecParams p) { matvec<Mxfp6E3M2, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_mxfp6_e3m2_q8_f32_n8(RfMatvecParams p) { matvec<Mxfp6E3M2, 8>(p); }
RF_KERNEL_AT_ONCE(GLU_THREADS, 3) matvec_glu_mxfp6_e3m2_q8_n1(RfMatvecGluParams p) { matvec_glu<Mxfp6E3M2>(p); }
