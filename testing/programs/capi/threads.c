/* Many threads, few queues: submissions, waits, suspensions and resumptions at the same time. */
#include "device.h"

enum { QUEUES = 3, THREADS = 6, ROUNDS = 40, EACH = 5 };

static Queue queues[QUEUES];
static atomic_int left;

static void *submits(void *data)
{
    Queue *q = &queues[(intptr_t)data % QUEUES];
    for (int i = 0; i < ROUNDS; i++) {
        HwCommandHandle last = submit(q, EACH);
        if (i % 4 == 0) {
            OK(XQueueWait(q->xq, last));
        }
        if (i % 8 == 0) {
            OK(XQueueWaitAll(q->xq));
        }
        OK(HwCommandDestroy(last));
    }
    atomic_fetch_sub(&left, 1);
    return NULL;
}

static void *suspends(void *data)
{
    (void)data;
    for (unsigned i = 0; atomic_load(&left); i++) {
        Queue *q = &queues[i % QUEUES];
        OK(XQueueSuspend(q->xq, i % 3 ? 0 : kQueueSuspendFlagSyncHwQueue));
        usleep(300);
        OK(XHintPriority(q->xq, (int)(i % 7)));
        OK(XQueueResume(q->xq, 0));
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS], other;
    open_device();
    for (int i = 0; i < QUEUES; i++) {
        make(&queues[i], i % HIGHEST_LEVEL + 1, i == 2 ? kQueueCreateFlagBlockingSubmit : 0, 50);
    }
    atomic_store(&left, THREADS);
    for (intptr_t i = 0; i < THREADS; i++) {
        OK(pthread_create(&threads[i], NULL, submits, (void *)i));
    }
    OK(pthread_create(&other, NULL, suspends, NULL));
    for (int i = 0; i < THREADS; i++) {
        OK(pthread_join(threads[i], NULL));
    }
    OK(pthread_join(other, NULL));
    for (int i = 0; i < QUEUES; i++) {
        GIVES("a wait for all", kXSchedSuccess, XQueueWaitAll(queues[i].xq));
        CHECK("nothing is lost or launched twice", complete(&queues[i]) == THREADS / QUEUES * ROUNDS * EACH);
        OK(XQueueDestroy(queues[i].xq));
    }
    CHECKS_DONE;
}
