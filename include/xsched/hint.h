/**
 * @file
 * Hints of a program to the scheduler. Link with -lpreempt.
 *
 * Policies and the hints that each uses: docs/reference/policies.md. Every function may be called from any thread, and only
 * XHintSetScheduler() waits. With XSCHED_DISABLE=1, or for a platform that XSCHED_PLATFORMS leaves out, hints succeed without
 * effect. A hint holds for later launches, and outlives a change of the scheduler or the daemon.
 *
 * A hint for an XQueue puts it into a group of its own, for which the scheduler decides separately, with gates on the host only.
 * It fails with kXSchedErrorNotSupported if the process has 64 groups.
 */
#ifndef XSCHED_HINT_H
#define XSCHED_HINT_H

#include <xsched/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Sets the scheduler of this process, in place of its environment's. Waits, for 2 s at most, until the former scheduler has
 * ended.
 *
 * @param scheduler  kSchedulerAppManaged: only XQueueSuspend() holds a queue. kSchedulerLocal: a scheduler inside the
 *                   process, with this policy. kSchedulerGlobal: the daemon, with its own policy; while none answers, the
 *                   program runs unscheduled.
 * @param policy     ::XPolicyType, of kSchedulerLocal only.
 * @retval kXSchedErrorInvalidValue  No such scheduler or policy.
 * @retval kXSchedErrorNotSupported  This policy needs a daemon.
 * @retval kXSchedErrorNotAllowed    kSchedulerAppManaged in a program that `xsched run --require` has started.
 * @retval kXSchedErrorBadResponse   The former scheduler has not ended yet; the change follows.
 */
XResult XHintSetScheduler(XSchedulerType scheduler, XPolicyType policy);

/**
 * Sets the priority of an XQueue; under the daemon never above what the operator allows the program. With
 * ::XSCHED_PRIORITY_NOT_EXECUTED the queue is held, under any scheduler, until it gets another priority.
 * @retval kXSchedErrorInvalidValue  Not -256 to 255.
 */
XResult XHintPriority(XQueueHandle xq, Priority priority);

/** Sets the part of its device that an XQueue asks for, in percent. @retval kXSchedErrorInvalidValue  Not 0 to 100. */
XResult XHintUtilization(XQueueHandle xq, Utilization utilization);

/** Sets the length of the program's turns, in microseconds. @retval kXSchedErrorInvalidValue  Not 100 to 10000000. */
XResult XHintTimeslice(Timeslice timeslice);

/**
 * Sets the longest wait of an XQueue's requests, and the priorities until then and from then on.
 *
 * @param xq        The XQueue.
 * @param laxity    Longest wait in microseconds; -1 = no laxity.
 * @param lax_prio  Priority until that time is over.
 * @param crit_prio Priority from then on.
 * @retval kXSchedErrorInvalidValue  A time or priority out of range.
 */
XResult XHintLaxity(XQueueHandle xq, Laxity laxity, Priority lax_prio, Priority crit_prio);

/** Sets the time from a request's begin until it is due. @retval kXSchedErrorInvalidValue  The time is out of range. */
XResult XHintDeadline(XQueueHandle xq, Deadline deadline);

/** Sets the number of queues that may have the device together. @retval kXSchedErrorInvalidValue  Not 1 to 64. */
XResult XHintKDeadline(size_t k);

#ifdef __cplusplus
}
#endif

#endif
