// Matmuls of 2 to 64 rows on f16 matrix units with weights of 16 bits: rf/matmul_skinny.h.
#include "rf/matmul_skinny.h"

RF_SKINNY_MATMULS(f16, rf::F16Halves)
RF_SKINNY_MATMULS(bf16, rf::Bf16Halves)
