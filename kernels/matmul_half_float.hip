// Prefill matmuls on f16 matrix units with weights of 16 bits: rf/matmul_half.h.
#include "rf/matmul_half.h"

RF_HALF_MATMUL_OF(f16, rf::F16Halves)
RF_HALF_MATMUL_OF(bf16, rf::Bf16Halves)
RF_HALF_MATMUL_NATURAL(f16_natural, rf::F16Natural)
