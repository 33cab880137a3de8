/**
 * @file
 * HIP streams as hardware queues. Link with -lhalhip -lpreempt; HIP's own header is not needed, and may be included as
 * well. The runtime must be in the process already: it is never loaded from here.
 */
#ifndef XSCHED_HIP_HAL_H
#define XSCHED_HIP_HAL_H

#include <xsched/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** As in hip_runtime_api.h. */
typedef struct ihipStream_t *hipStream_t;

/**
 * Returns a handle for a stream, the same each time until HwQueueDestroy(). May be called from any thread; for the default
 * stream, from one that uses its device. If a process has several copies of the runtime, the stream must be of the first.
 *
 * @param[out] hwq     The handle.
 * @param      stream  Must outlive the handle. Null = the default stream of the calling thread's device.
 * @retval kXSchedErrorHardware      No runtime in the process, no device, or a per-thread default stream.
 * @retval kXSchedErrorInvalidValue  hwq is null.
 */
XResult HipQueueCreate(HwQueueHandle *hwq, hipStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
