// Matmuls of 2 to 64 rows on f16 matrix units with weights in blocks of 32: rf/matmul_skinny.h.
#include "rf/matmul_skinny.h"

RF_BLOCK32_FORMATS(RF_SKINNY)
