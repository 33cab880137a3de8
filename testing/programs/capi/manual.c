/* The program itself suspends and resumes its queues, from another thread than the one that waits. `manual transparent`: also
 * what is launched by the driver's own functions, which needs the preload. `manual exit` ends with a suspended queue. */
#include "device.h"

enum { LONG_US = 5000 };

/* That nothing is launched in a while in which some would be. */
static int rests(Queue *q)
{
    long before = atomic_load(&q->launched);
    usleep(5 * LONG_US); /* a window in which nothing may happen */
    return atomic_load(&q->launched) == before;
}

static void *waits(void *data)
{
    Queue *q = data;
    return (void *)(intptr_t)XQueueWaitAll(q->xq);
}

static void block(void)
{
    Queue q;
    pthread_t waiter;
    void *result;
    XQueueState state;
    make(&q, kPreemptLevelBlock, 0, LONG_US);
    OK(XQueueSetLaunchConfig(q.xq, 2, 1));
    submit(&q, 30);
    OK(pthread_create(&waiter, NULL, waits, &q));
    UNTIL("level 1: it works", complete(&q) > 0);
    OK(XQueueSuspend(q.xq, kQueueSuspendFlagSyncHwQueue));
    long launched = atomic_load(&q.launched);
    CHECK("level 1: what was launched is complete", complete(&q) == launched);
    CHECK("level 1: not all was launched", launched < 30);
    CHECK("level 1: nothing more is launched", rests(&q));
    GIVES("a second suspension", kXSchedSuccess, XQueueSuspend(q.xq, kQueueSuspendFlagWaitAll));
    OK(XQueueQuery(q.xq, &state));
    CHECK("a suspended queue with commands is ready", state == kQueueStateReady);
    GIVES("flags that there are not", kXSchedErrorInvalidValue, XQueueSuspend(q.xq, 8));
    GIVES("flags that there are not", kXSchedErrorInvalidValue, XQueueResume(q.xq, 2));
    OK(XQueueResume(q.xq, kQueueResumeFlagDropCommands));
    GIVES("a second resumption", kXSchedSuccess, XQueueResume(q.xq, 0));
    OK(pthread_join(waiter, &result));
    CHECK("level 1: the waiting thread goes on", (intptr_t)result == kXSchedSuccess);
    CHECK("level 1: nothing was dropped", complete(&q) == 30);

    submit(&q, 5);
    OK(XQueueSuspend(q.xq, kQueueSuspendFlagWaitAll));
    CHECK("wait all comes before the suspension", complete(&q) == 35);
    submit(&q, 3);
    CHECK("which holds", rests(&q) && complete(&q) == 35);
    OK(XQueueResume(q.xq, 0));
    OK(XQueueSuspend(q.xq, kQueueSuspendFlagWaitIdle | kQueueSuspendFlagWaitAll));
    CHECK("wait idle does too", complete(&q) == 38);
    OK(XQueueDestroy(q.xq));
    CHECK("the end of a suspended queue", complete(&q) == 38);
}

/* Gates on the device: what is launched stops, too. */
static void deactivate(void)
{
    Queue q;
    int64_t count;
    make(&q, kPreemptLevelDeactivate, 0, LONG_US);
    HwCommandHandle last = submit(&q, 20);
    UNTIL("level 2: it works", complete(&q) > 0);
    OK(XQueueSuspend(q.xq, kQueueSuspendFlagSyncHwQueue));
    long done = complete(&q), launched = atomic_load(&q.launched);
    CHECK("level 2: commands are in flight", done < launched);
    CHECK("level 2: not all was launched", launched < 20);
    usleep(5 * LONG_US); /* a window in which nothing may happen */
    CHECK("level 2: nothing more runs", complete(&q) == done);
    OK(XQueueResume(q.xq, kQueueResumeFlagDropCommands));
    GIVES("level 2: the last one is dropped", kXSchedErrorNotFound, XQueueWait(q.xq, last));
    OK(XQueueWaitAll(q.xq));
    CHECK("level 2: what was in flight is complete", complete(&q) == launched);
    OK(XQueueProfileHwCommandCount(q.xq, &count));
    CHECK("level 2: nothing is left", count == 0);
    /* Again, without a loss, and with a level that changes under way. */
    submit(&q, 20);
    OK(XQueueSetPreemptLevel(q.xq, kPreemptLevelBlock));
    for (int i = 0; i < 5; i++) {
        OK(XQueueSuspend(q.xq, i % 2 ? 0 : kQueueSuspendFlagSyncHwQueue));
        OK(XQueueSetPreemptLevel(q.xq, i % 2 ? kPreemptLevelBlock : kPreemptLevelDeactivate));
        OK(XQueueResume(q.xq, 0));
    }
    OK(XQueueWaitAll(q.xq));
    CHECK("level 2: all is complete", complete(&q) == launched + 20);
    OK(XQueueDestroy(q.xq));
}

static atomic_int ending;

static void *launches(void *data)
{
    Queue *q = data;
    while (!atomic_load(&ending)) {
        work(q->hwq, q);
        drain(q->native);
    }
    return NULL;
}

/* Launches by the driver's own functions, on another thread. */
static void transparent(void)
{
    Queue q, free;
    pthread_t threads[2];
    make(&q, kPreemptLevelBlock, 0, 500);
    make(&free, kPreemptLevelBlock, 0, 500);
    OK(pthread_create(&threads[0], NULL, launches, &q));
    OK(pthread_create(&threads[1], NULL, launches, &free));
    for (int i = 0; i < 3; i++) {
        long before = atomic_load(&q.launched);
        UNTIL("launches go on", atomic_load(&q.launched) > before + 3);
        OK(XQueueSuspend(q.xq, kQueueSuspendFlagSyncHwQueue));
        /* The thread counts before it calls the driver, so one count may be of a launch that waits. */
        UNTIL("the thread stands still", rests(&q));
        long held = complete(&q), other = complete(&free);
        UNTIL("another queue goes on", complete(&free) > other + 3);
        CHECK("the suspended one does not", complete(&q) == held);
        OK(XQueueResume(q.xq, 0));
    }
    atomic_store(&ending, 1);
    OK(pthread_join(threads[0], NULL));
    OK(pthread_join(threads[1], NULL));
    CHECK("nothing is lost", complete(&q) == atomic_load(&q.launched));
    OK(XQueueDestroy(q.xq));
    OK(XQueueDestroy(free.xq));
}

/* What is held must not keep the program from its end. */
static void ends_suspended(void)
{
    Queue q;
    make(&q, HIGHEST_LEVEL, 0, LONG_US);
    submit(&q, 20);
    UNTIL("it works", complete(&q) > 0);
    OK(XQueueSuspend(q.xq, kQueueSuspendFlagSyncHwQueue));
}

/* A stream that was used has an XQueue, in all but a handle. */
static void found(void)
{
    Queue q = { .native = new_native(), .us = 50, .cell = cells_used++ };
    OK(handle_of(&q.hwq, q.native));
    GIVES("an unused stream has no XQueue", kXSchedErrorNotFound, XQueueGet(&q.xq, q.hwq));
    OK(give(q.native, 50, q.cell));
    OK(drain(q.native));
    GIVES("one that was used has", kXSchedSuccess, XQueueGet(&q.xq, q.hwq));
    GIVES("which takes hints", kXSchedSuccess, XHintPriority(q.xq, 3));
    submit(&q, 2);
    OK(XQueueWaitAll(q.xq));
    CHECK("and commands", complete(&q) == 3);
    OK(XQueueDestroy(q.xq));
}

int main(int argc, char **argv)
{
    open_device();
    GIVES("the program itself decides", kXSchedSuccess, XHintSetScheduler(kSchedulerAppManaged, kPolicyUnknown));
    block();
    if (HIGHEST_LEVEL >= 2) {
        deactivate();
    }
    if (argc > 1 && !strcmp(argv[1], "transparent")) {
        transparent();
        found();
    }
    if (argc > 1 && !strcmp(argv[1], "exit")) {
        ends_suspended();
    }
    CHECKS_DONE;
}
