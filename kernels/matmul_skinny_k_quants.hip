// Matmuls of 2 to 64 rows on f16 matrix units with weights in super-blocks of 256:
// rf/matmul_skinny.h.
#include "rf/matmul_skinny.h"

RF_K_QUANT_FORMATS(RF_SKINNY)
