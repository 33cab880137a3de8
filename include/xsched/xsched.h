/**
 * @file
 * C interface of xsched: XQueues and hints. The vendors' queues are in `xsched/cuda/hal.h`, `xsched/hip/hal.h` and
 * `xsched/opencl/hal.h`.
 */
#ifndef XSCHED_XSCHED_H
#define XSCHED_XSCHED_H

#include <xsched/hint.h>
#include <xsched/xqueue.h>

#endif
