/**
 * @file
 * OpenCL command queues as hardware queues. Link with -lhalopencl -lpreempt; OpenCL's own header is not needed, and may
 * be included as well. The library must be in the process already: it is never loaded from here.
 */
#ifndef XSCHED_OPENCL_HAL_H
#define XSCHED_OPENCL_HAL_H

#include <xsched/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** As in CL/cl.h. */
typedef struct _cl_command_queue *cl_command_queue;

/**
 * Returns a handle for a command queue, the same each time until HwQueueDestroy(). May be called from any thread.
 *
 * @param[out] hwq    The handle.
 * @param      queue  Must outlive the handle.
 * @retval kXSchedErrorHardware      No OpenCL (1.2) in the process, or no such queue.
 * @retval kXSchedErrorInvalidValue  hwq is null.
 */
XResult OclQueueCreate(HwQueueHandle *hwq, cl_command_queue queue);

#ifdef __cplusplus
}
#endif

#endif
