/* A scheduler inside the process, chosen by the program: of two queues the more urgent goes first, and equal parts go by
 * utilization. */
#include "device.h"

enum { US = 1000 };

static Queue low, high;
static long low_then;

/* How far the less urgent one is when the last of the more urgent one's commands is launched. */
static XResult note(HwQueueHandle hwq, void *data)
{
    (void)hwq, (void)data;
    low_then = complete(&low);
    return kXSchedSuccess;
}

/* The less urgent one has work all the time; the more urgent one comes and goes. */
static void priorities(void)
{
    HwCommandHandle last;
    make(&low, kPreemptLevelBlock, 0, US);
    make(&high, kPreemptLevelBlock, 0, US);
    OK(XQueueSetLaunchConfig(low.xq, 4, 2));
    OK(XHintPriority(low.xq, 1));
    OK(XHintPriority(high.xq, 2));
    OK(HwCommandCreateCallback(&last, note, NULL));
    submit(&low, 500);
    UNTIL("the less urgent one works", complete(&low) > 0);
    for (int i = 0; i < 3; i++) {
        OK(XQueueSuspend(high.xq, 0));
        submit(&high, 40);
        OK(XQueueSubmit(high.xq, last));
        long before = complete(&low);
        OK(XQueueResume(high.xq, 0));
        OK(XQueueWaitAll(high.xq));
        /* Without a scheduler about 40. */
        check_that(low_then - before <= 20, "the less urgent one is held");
        UNTIL("and goes on", complete(&low) > low_then);
    }
    CHECK("the more urgent one is served", complete(&high) == 120);
    OK(XQueueWaitAll(low.xq));
    CHECK("and the other one after it", complete(&low) == 500);
    OK(XQueueDestroy(low.xq));
    OK(XQueueDestroy(high.xq));
}

/* Two that both want the device all the time, 80 and 20 percent of it. */
static void parts(void)
{
    Queue most, least;
    GIVES("parts", kXSchedSuccess, XHintSetScheduler(kSchedulerLocal, kPolicyUtilizationPartition));
    GIVES("turns", kXSchedSuccess, XHintTimeslice(20 * US));
    make(&most, kPreemptLevelBlock, 0, US);
    make(&least, kPreemptLevelBlock, 0, US);
    OK(XQueueSetLaunchConfig(most.xq, 8, 4));
    OK(XQueueSetLaunchConfig(least.xq, 8, 4));
    OK(XHintUtilization(most.xq, 80));
    OK(XHintUtilization(least.xq, 20));
    /* Both begin with all of their work in the buffer. */
    OK(XQueueSuspend(most.xq, 0));
    OK(XQueueSuspend(least.xq, 0));
    submit(&most, 900);
    submit(&least, 900);
    OK(XQueueResume(most.xq, 0));
    OK(XQueueResume(least.xq, 0));
    UNTIL("both go on", complete(&most) >= 600);
    double part = (double)complete(&least) / complete(&most);
    check_that(part > 0.05 && part < 0.6, "each has its part: %.2f", part);
    /* What is left is of no interest. */
    _exit(checks_failed);
}

int main(void)
{
    open_device();
    GIVES("priorities", kXSchedSuccess, XHintSetScheduler(kSchedulerLocal, kPolicyHighestPriorityFirst));
    priorities();
    parts();
    CHECKS_DONE;
}
