// Prefill products with weights of the MX formats; see include/rf/matmul.h.
#include "rf/matmul.h"

RF_MATMUL(mxfp4, Mxfp4)
RF_MATMUL(mxfp6_e2m3, Mxfp6E2M3)
RF_MATMUL(mxfp6_e3m2, Mxfp6E3M2)
