/**
 * @file
 * CUDA streams as hardware queues. Link with -lhalcuda -lpreempt; CUDA's own header is not needed, and may be included
 * as well. The driver must be in the process already: it is never loaded from here, and no context is made or destroyed.
 */
#ifndef XSCHED_CUDA_HAL_H
#define XSCHED_CUDA_HAL_H

#include <xsched/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** As in cuda.h; a cudaStream_t is the same. */
typedef struct CUstream_st *CUstream;

/**
 * Returns a handle for a stream, the same each time until HwQueueDestroy(). May be called from any thread; for a default stream,
 * from one with a context.
 *
 * @param[out] hwq     The handle.
 * @param      stream  Must outlive the handle. Null = the legacy default stream of the calling thread's context.
 * @retval kXSchedErrorHardware      No driver in the process, no such stream, no context, or a per-thread default stream.
 * @retval kXSchedErrorInvalidValue  hwq is null.
 */
XResult CudaQueueCreate(HwQueueHandle *hwq, CUstream stream);

/**
 * Returns the handle of a stream that has one, or, if libxsched.so is preloaded, whose launches were seen. Errors as of
 * CudaQueueCreate(), and:
 * @retval kXSchedErrorNotFound  The stream has none.
 */
XResult CudaQueueGet(HwQueueHandle *hwq, CUstream stream);

#ifdef __cplusplus
}
#endif

#endif
