/* A scheduler inside the process, chosen by the program: of two queues the more urgent goes first, and equal parts go by
 * utilization. */
#include "device.h"

enum { US = 1000 };

/* The less urgent one has work all the time; the more urgent one comes and goes. */
static void priorities(void)
{
    Queue low, high;
    make(&low, kPreemptLevelBlock, 0, US);
    make(&high, kPreemptLevelBlock, 0, US);
    OK(XHintPriority(low.xq, 1));
    OK(XHintPriority(high.xq, 2));
    submit(&low, 400);
    UNTIL("the less urgent one works", complete(&low) > 0);
    for (int i = 0; i < 3; i++) {
        OK(XQueueWaitAll(high.xq));
        long before = complete(&low);
        submit(&high, 40);
        OK(XQueueWaitAll(high.xq));
        long meanwhile = complete(&low) - before;
        check_that(meanwhile <= 20, "the less urgent one is held");
        UNTIL("and goes on", complete(&low) > before + meanwhile);
    }
    CHECK("the more urgent one is served", complete(&high) == 120);
    OK(XQueueWaitAll(low.xq));
    CHECK("and the other one after it", complete(&low) == 400);
    OK(XQueueDestroy(low.xq));
    OK(XQueueDestroy(high.xq));
}

/* Two that both want the device all the time, 80 and 20 percent of it. */
static void parts(void)
{
    Queue most, least;
    GIVES("parts", kXSchedSuccess, XHintSetScheduler(kSchedulerLocal, kPolicyUtilizationPartition));
    GIVES("turns", kXSchedSuccess, XHintTimeslice(5 * US));
    make(&most, kPreemptLevelBlock, 0, US);
    make(&least, kPreemptLevelBlock, 0, US);
    OK(XQueueSetLaunchConfig(most.xq, 2, 1));
    OK(XQueueSetLaunchConfig(least.xq, 2, 1));
    OK(XHintUtilization(most.xq, 80));
    OK(XHintUtilization(least.xq, 20));
    submit(&most, 2000);
    submit(&least, 2000);
    UNTIL("both work", complete(&most) > 20 && complete(&least) > 20);
    long first = complete(&most), second = complete(&least);
    UNTIL("both go on", complete(&most) > first + 400);
    double part = (double)(complete(&least) - second) / (complete(&most) - first);
    check_that(part > 0.08 && part < 0.6, "each has its part: %.2f", part);
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
