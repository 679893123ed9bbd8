// Prefill products with weights of the formats of 32 columns; see include/rf/matmul.h.
#include "rf/matmul.h"

RF_MATMUL(q4_0, Q4_0)
RF_MATMUL(q4_1, Q4_1)
RF_MATMUL(q5_0, Q5_0)
RF_MATMUL(q5_1, Q5_1)
RF_MATMUL(q8_0, Q8_0)
