// Prefill matmuls with weights in the microscaling formats: rf/matmul.h.
#include "rf/matmul.h"

RF_MICROSCALING_FORMATS(RF_MATMUL)
