/**
 * @file
 * The C interface of xsched: XQueues and hints. `xsched/cuda/hal.h`, `xsched/hip/hal.h` and `xsched/opencl/hal.h` have what is
 * the vendor's.
 */
#ifndef XSCHED_XSCHED_H
#define XSCHED_XSCHED_H

#include <xsched/hint.h>
#include <xsched/xqueue.h>

#endif
