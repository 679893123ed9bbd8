// Prefill products with float weights; see include/rf/matmul_float.h.
#include "rf/matmul_float.h"

RF_FLOAT_MATMUL(f32, F32Weight)
RF_FLOAT_MATMUL(f16, F16Weight)
RF_FLOAT_MATMUL(bf16, Bf16Weight)
