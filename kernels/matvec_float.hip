// Matrix × 1, 2, 4 or 8 columns of float weights: rf/matvec_float.h.
#include "rf/matvec_float.h"

using namespace rf;

RF_KERNEL(MATVEC_THREADS) matvec_f32_f32_n1(RfMatvecParams p) { matvec_float<F32, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_f32_f32_n2(RfMatvecParams p) { matvec_float<F32, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_f32_f32_n4(RfMatvecParams p) { matvec_float<F32, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_f32_f32_n8(RfMatvecParams p) { matvec_float<F32, 8>(p); }

RF_KERNEL(MATVEC_THREADS) matvec_f16_f32_n1(RfMatvecParams p) { matvec_float<F16, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_f16_f32_n2(RfMatvecParams p) { matvec_float<F16, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_f16_f32_n4(RfMatvecParams p) { matvec_float<F16, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_f16_f32_n8(RfMatvecParams p) { matvec_float<F16, 8>(p); }

RF_KERNEL(MATVEC_THREADS) matvec_bf16_f32_n1(RfMatvecParams p) { matvec_float<BF16, 1>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_bf16_f32_n2(RfMatvecParams p) { matvec_float<BF16, 2>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_bf16_f32_n4(RfMatvecParams p) { matvec_float<BF16, 4>(p); }
RF_KERNEL(MATVEC_THREADS) matvec_bf16_f32_n8(RfMatvecParams p) { matvec_float<BF16, 8>(p); }
