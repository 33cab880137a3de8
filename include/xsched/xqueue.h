/**
 * @file
 * XQueues: preemptible command queues over queues of the hardware's. Link with -lpreempt.
 *
 * An XQueue buffers commands and launches them in the order of their submission, a few at a time. While it is suspended, by the
 * program or by the scheduler, nothing is launched. Commands that the program launches by itself, on the same stream, are
 * scheduled with it where libxsched.so is preloaded (`xsched run`), and else not.
 *
 * Every function may be called from any thread. Those that wait say so; none of them may wait for a queue from within one of
 * its own commands (kXSchedErrorNotAllowed). Handles are valid in the process that made them, not in a child that it forks.
 * Beside what is listed, each function answers kXSchedErrorNotFound for a handle that stands for nothing, and
 * kXSchedErrorInvalidValue for a null pointer.
 */
#ifndef XSCHED_XQUEUE_H
#define XSCHED_XQUEUE_H

#include <xsched/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes an XQueue over a queue of the hardware's that has none. What libxsched.so knows of the stream already (its priority,
 * its launches) stays.
 *
 * @param[out] xq     The XQueue.
 * @param      hwq    From CudaQueueCreate(), HipQueueCreate() or OclQueueCreate().
 * @param      level  ::XPreemptLevel, 1 to 3: what suspending it stops, and the most that the scheduler does to it.
 * @param      flags  ::XQueueCreateFlag bits.
 * @retval kXSchedErrorNotSupported  The device lacks this level, or there is no such level.
 * @retval kXSchedErrorNotAllowed    It has an XQueue.
 * @retval kXSchedErrorInvalidValue  Unknown flags.
 */
XResult XQueueCreate(XQueueHandle *xq, HwQueueHandle hwq, int64_t level, int64_t flags);

/**
 * Ends an XQueue: resumes it, launches what is buffered (which may wait for the scheduler) and returns. The stream stays, with
 * what still runs there; commands of level 2 and above are waited for. Wait with XQueueWaitAll() before if that matters.
 */
XResult XQueueDestroy(XQueueHandle xq);

/**
 * The XQueue over a queue of the hardware's: the one that was made, or, where libxsched.so is preloaded and has seen launches
 * there, one of level 1 that is made for it now.
 * @retval kXSchedErrorNotFound  It has none.
 */
XResult XQueueGet(XQueueHandle *xq, HwQueueHandle hwq);

/**
 * Changes the level; commands that were launched before keep theirs.
 * @retval kXSchedErrorNotSupported  The device lacks it, or there is no such level. The former one stays.
 */
XResult XQueueSetPreemptLevel(XQueueHandle xq, int64_t level);

/**
 * How much is launched ahead.
 *
 * @param xq          The XQueue.
 * @param threshold   Commands in flight at most; 16 unless said otherwise. At level 1 so many run on after a suspension.
 * @param batch_size  Commands launched one after the other; 8 unless said otherwise.
 * @retval kXSchedErrorInvalidValue  batch_size < 1 or threshold < batch_size; the former values stay.
 */
XResult XQueueSetLaunchConfig(XQueueHandle xq, int64_t threshold, int64_t batch_size);

/**
 * Takes a command into the buffer and returns; with kQueueCreateFlagBlockingSubmit, launches it on the calling thread, as soon
 * as the queue may go on, and answers what its callback returned. A command can be submitted again after it was launched.
 * @retval kXSchedErrorNotAllowed  It is in a buffer.
 */
XResult XQueueSubmit(XQueueHandle xq, HwCommandHandle command);

/**
 * Waits until a command is complete, however long its queue is suspended.
 * @return What its callback returned.
 * @retval kXSchedErrorNotFound  It was not submitted here, or XQueueResume() dropped it.
 * @retval kXSchedErrorHardware  The driver reports an error of the device.
 */
XResult XQueueWait(XQueueHandle xq, HwCommandHandle command);

/** Waits until all that was submitted or launched so far is complete. @retval kXSchedErrorHardware  As XQueueWait(). */
XResult XQueueWaitAll(XQueueHandle xq);

/**
 * Whether all is complete (kQueueStateIdle) or not (kQueueStateReady). Does not wait. On OpenCL, which cannot be asked, the
 * answer is that of a marker: an idle queue may be called ready the first time.
 */
XResult XQueueQuery(XQueueHandle xq, XQueueState *state);

/**
 * Stops launching: commands stay in the buffer, and other threads' launches on the stream wait where libxsched.so is preloaded.
 * A command whose launch has begun may still be launched, and a thread that holds Python's lock is not held. At level 1 what is in flight runs on. At level 2 and above
 * submitted commands in flight stop before the next of them; level 3 adds nothing here, since an interrupt would concern the
 * other queues of the program too. What the driver itself does to a held stream (freeing memory waits for it) holds the caller.
 *
 * @param xq     The XQueue. If it is suspended already, nothing happens.
 * @param flags  ::XQueueSuspendFlag bits. WaitIdle, and else WaitAll, waits before the queue is suspended; SyncHwQueue
 *               afterwards, for the last command that no closed gate holds.
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

/** How many submitted commands are not complete, as far as is known. Does not wait. */
XResult XQueueProfileHwCommandCount(XQueueHandle xq, int64_t *count);

/**
 * Gives a handle up; the stream or queue behind it is not touched.
 * @retval kXSchedErrorNotAllowed  It has an XQueue.
 */
XResult HwQueueDestroy(HwQueueHandle hwq);

/**
 * Launches a command on the calling thread, past the buffer of an XQueue. It waits like any launch: for the scheduler, and while
 * the XQueue is suspended. From within a command it is part of that.
 * @return What its callback returned.
 */
XResult HwQueueLaunch(HwQueueHandle hwq, HwCommandHandle command);

/** Waits until all that was launched there is complete. @retval kXSchedErrorHardware  As XQueueWait(). */
XResult HwQueueSynchronize(HwQueueHandle hwq);

/**
 * Makes a command of a function.
 *
 * @param[out] command   The command.
 * @param      callback  See ::LaunchCallback.
 * @param      data      Is passed to it; valid until the command is launched for the last time.
 */
XResult HwCommandCreateCallback(HwCommandHandle *command, LaunchCallback callback, void *data);

/** Gives a command up. One that was submitted is launched all the same. */
XResult HwCommandDestroy(HwCommandHandle command);

#ifdef __cplusplus
}
#endif

#endif
