/**
 * @file
 * XQueues: preemptible command queues over hardware queues (streams). Link with -lpreempt.
 *
 * An XQueue buffers commands and launches them in the order of their submission, a few at a time. While it is suspended, by the
 * program or by the scheduler, nothing is launched. The program's other launches on the same stream are scheduled with it if
 * libxsched.so is preloaded (`xsched run`), and else not scheduled.
 *
 * Every function may be called from any thread. Functions that wait say so; none may wait for a queue from within one of the
 * queue's own commands (kXSchedErrorNotAllowed). Handles are valid in the process that made them, not in a forked child.
 * Beside the results listed, each function returns kXSchedErrorNotFound for an unknown handle, and kXSchedErrorInvalidValue for
 * a null pointer.
 */
#ifndef XSCHED_XQUEUE_H
#define XSCHED_XQUEUE_H

#include <xsched/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes an XQueue over a hardware queue that has none. Priority and launches that libxsched.so knows of the stream are kept.
 *
 * @param[out] xq     The XQueue.
 * @param      hwq    From CudaQueueCreate(), HipQueueCreate() or OclQueueCreate().
 * @param      level  ::XPreemptLevel, 1 to 3: the effect of a suspension, and the most that the scheduler does to the queue.
 * @param      flags  ::XQueueCreateFlag bits.
 * @retval kXSchedErrorNotSupported  The device lacks this level, or there is no such level.
 * @retval kXSchedErrorNotAllowed    The hardware queue has an XQueue.
 * @retval kXSchedErrorInvalidValue  Unknown flags.
 */
XResult XQueueCreate(XQueueHandle *xq, HwQueueHandle hwq, int64_t level, int64_t flags);

/**
 * Ends an XQueue: resumes it, launches its buffer, which may wait for the scheduler, and returns. The stream stays, with the
 * commands that still run there; only those of level 2 and above are waited for. To wait for all, call XQueueWaitAll() before.
 */
XResult XQueueDestroy(XQueueHandle xq);

/**
 * Returns the XQueue over a hardware queue. If none was made, but libxsched.so is preloaded and has seen launches there, one of
 * level 1 is made.
 * @retval kXSchedErrorNotFound  The hardware queue has none.
 */
XResult XQueueGet(XQueueHandle *xq, HwQueueHandle hwq);

/**
 * Changes the level; commands that were launched before keep theirs.
 * @retval kXSchedErrorNotSupported  The device lacks the level, or there is no such level. The former one stays.
 */
XResult XQueueSetPreemptLevel(XQueueHandle xq, int64_t level);

/**
 * Sets the number of commands launched ahead.
 *
 * @param xq          The XQueue.
 * @param threshold   Commands in flight at most, 16 by default. At level 1 so many run on after a suspension.
 * @param batch_size  Commands launched in one go, 8 by default.
 * @retval kXSchedErrorInvalidValue  batch_size < 1 or threshold < batch_size; the former values stay.
 */
XResult XQueueSetLaunchConfig(XQueueHandle xq, int64_t threshold, int64_t batch_size);

/**
 * Buffers a command and returns. With kQueueCreateFlagBlockingSubmit, launches it on the calling thread as soon as the queue may
 * go on, and returns the result of its callback. A command can be submitted again after it was launched.
 * @retval kXSchedErrorNotAllowed  The command is in a buffer already.
 */
XResult XQueueSubmit(XQueueHandle xq, HwCommandHandle command);

/**
 * Waits until a command is complete, however long its queue is suspended.
 * @return Result of its callback.
 * @retval kXSchedErrorNotFound  The command was not submitted here, or XQueueResume() dropped it.
 * @retval kXSchedErrorHardware  The driver reports an error of the device.
 */
XResult XQueueWait(XQueueHandle xq, HwCommandHandle command);

/** Waits until all commands submitted or launched so far are complete. @retval kXSchedErrorHardware  As XQueueWait(). */
XResult XQueueWaitAll(XQueueHandle xq);

/**
 * Reports whether all commands are complete (kQueueStateIdle) or not (kQueueStateReady). Does not wait. On OpenCL, which has no
 * such query, a marker is used: an idle queue may be reported as ready the first time.
 */
XResult XQueueQuery(XQueueHandle xq, XQueueState *state);

/**
 * Stops launching: commands stay in the buffer, and, if libxsched.so is preloaded, the program's other launches on the stream
 * wait. A command whose launch has begun may still be launched, and a thread that holds Python's lock is not held up.
 *
 * At level 1 commands in flight run on. At level 2 and above submitted commands in flight stop before the next of them. Level 3
 * adds nothing here, since an interrupt would stop the program's other queues too. Driver calls that wait for a held stream, such
 * as freeing memory, wait for the resumption.
 *
 * @param xq     The XQueue. If it is suspended already, nothing happens.
 * @param flags  ::XQueueSuspendFlag bits. WaitIdle, or else WaitAll, waits before the suspension; SyncHwQueue afterwards, for
 *               the last command that no closed gate holds.
 * @retval kXSchedErrorInvalidValue  Unknown flags.
 */
XResult XQueueSuspend(XQueueHandle xq, int64_t flags);

/**
 * Lets a suspended queue go on.
 *
 * @param xq     The XQueue. If it is not suspended, nothing happens.
 * @param flags  ::XQueueResumeFlag bits.
 * @retval kXSchedErrorInvalidValue  Unknown flags.
 */
XResult XQueueResume(XQueueHandle xq, int64_t flags);

/** Counts submitted commands that are not complete, as far as is known. Does not wait. */
XResult XQueueProfileHwCommandCount(XQueueHandle xq, int64_t *count);

/**
 * Releases a handle; the stream or queue behind it is not touched.
 * @retval kXSchedErrorNotAllowed  The hardware queue has an XQueue.
 */
XResult HwQueueDestroy(HwQueueHandle hwq);

/**
 * Launches a command on the calling thread, past the buffer of an XQueue. It waits like any launch: for the scheduler, and while
 * the XQueue is suspended. Called within another command, it is part of that one.
 * @return Result of its callback.
 */
XResult HwQueueLaunch(HwQueueHandle hwq, HwCommandHandle command);

/** Waits until all commands launched there are complete. @retval kXSchedErrorHardware  As XQueueWait(). */
XResult HwQueueSynchronize(HwQueueHandle hwq);

/**
 * Makes a command of a function.
 *
 * @param[out] command   The command.
 * @param      callback  See ::LaunchCallback.
 * @param      data      Passed to the callback; must be valid until the command is launched for the last time.
 */
XResult HwCommandCreateCallback(HwCommandHandle *command, LaunchCallback callback, void *data);

/** Releases a command. A submitted one is launched all the same. */
XResult HwCommandDestroy(HwCommandHandle command);

#ifdef __cplusplus
}
#endif

#endif
