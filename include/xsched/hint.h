/**
 * @file
 * What a program says to the scheduler. Link with -lpreempt.
 *
 * Which policy looks at which hint: docs/reference/policies.md. Every function may be called from any thread, and does not wait
 * for the scheduler but where it says so. With XSCHED_DISABLE=1, or where XSCHED_PLATFORMS leaves the platform out, hints succeed
 * without effect. Hints hold for what is launched afterwards; they outlive a change of the scheduler and of the daemon.
 *
 * A hint for an XQueue sets it apart from the program's other queues: the scheduler decides of it alone, by host gates as for
 * every program with several groups. kXSchedErrorNotSupported: the process has 64 groups.
 */
#ifndef XSCHED_HINT_H
#define XSCHED_HINT_H

#include <xsched/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Chooses what decides for this process, in place of what its environment says. Waits, for 2 s at most, until the former
 * scheduler has let go.
 *
 * @param scheduler  kSchedulerAppManaged: nothing but XQueueSuspend() holds a queue. kSchedulerLocal: a scheduler inside the
 *                   process, with this policy. kSchedulerGlobal: the daemon, with its own policy; as long as none answers, the
 *                   program goes on unscheduled.
 * @param policy     ::XPolicyType, of kSchedulerLocal only.
 * @retval kXSchedErrorInvalidValue  No such scheduler or policy.
 * @retval kXSchedErrorNotSupported  This policy needs a daemon.
 * @retval kXSchedErrorNotAllowed    kSchedulerAppManaged in a program that `xsched run --require` has started.
 * @retval kXSchedErrorBadResponse   The former scheduler has not let go yet; it will be changed.
 */
XResult XHintSetScheduler(XSchedulerType scheduler, XPolicyType policy);

/**
 * Priority of an XQueue. Under the daemon never above what the operator allows the program. With
 * ::XSCHED_PRIORITY_NOT_EXECUTED the queue is held, whatever the scheduler, until it gets another one.
 * @retval kXSchedErrorInvalidValue  Not -256 to 255.
 */
XResult XHintPriority(XQueueHandle xq, Priority priority);

/** Part of its device that an XQueue asks for, in percent. @retval kXSchedErrorInvalidValue  Not 0 to 100. */
XResult XHintUtilization(XQueueHandle xq, Utilization utilization);

/** How long turns of the program last, in microseconds. @retval kXSchedErrorInvalidValue  Not 100 to 10000000. */
XResult XHintTimeslice(Timeslice timeslice);

/**
 * How long a request of an XQueue may wait, and its priorities before and after.
 *
 * @param xq        The XQueue.
 * @param laxity    In microseconds; -1 = no laxity.
 * @param lax_prio  Its priority until that time is over.
 * @param crit_prio Its priority from then on.
 * @retval kXSchedErrorInvalidValue  A time or priority out of range.
 */
XResult XHintLaxity(XQueueHandle xq, Laxity laxity, Priority lax_prio, Priority crit_prio);

/** When a request of an XQueue is due. @retval kXSchedErrorInvalidValue  The time is out of range. */
XResult XHintDeadline(XQueueHandle xq, Deadline deadline);

/** How many queues may have the device together by their deadlines. @retval kXSchedErrorInvalidValue  Not 1 to 64. */
XResult XHintKDeadline(size_t k);

#ifdef __cplusplus
}
#endif

#endif
