/* One library in the middle: -DFROM=name -DTO=name. */
#include "chain.h"

STEP(FROM, TO)
