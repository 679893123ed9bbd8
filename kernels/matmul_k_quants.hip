// Prefill products with weights of the formats of 256 columns; see include/rf/matmul.h.
#include "rf/matmul.h"

RF_MATMUL(q2_k, Q2_K)
RF_MATMUL(q3_k, Q3_K)
RF_MATMUL(q4_k, Q4_K)
RF_MATMUL(q5_k, Q5_K)
RF_MATMUL(q6_k, Q6_K)
