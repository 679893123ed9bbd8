// Matmuls of 2 to 64 rows on f16 matrix units with weights in microscaling formats:
// rf/matmul_skinny.h.
#include "rf/matmul_skinny.h"

RF_MICROSCALING_FORMATS(RF_SKINNY)
