/* Order within and among streams: user streams, the legacy default stream and its barriers, the thread's own. */
#include "cu.h"

enum { N = 1024, LONG_US = 20000, HELD = 3 };

static CUdeviceptr at;
static volatile uint64_t *stamps;

static CUdeviceptr slot(int i) { return at + 8u * (unsigned)i; }

static void attributes(void)
{
    CUstream a, b;
    CUcontext of;
    int least, greatest, priority = 1;
    unsigned flags = 7;
    uint64_t ids[3];
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK("a smaller number is more urgent", greatest < least && least == 0);
    OK(cuStreamCreateWithPriority(&a, NON_BLOCKING, greatest));
    OK(cuStreamCreateWithPriority(&b, 0, greatest - 100));
    OK(cuStreamGetPriority(a, &priority));
    CHECK("priority", priority == greatest);
    OK(cuStreamGetPriority(b, &priority));
    CHECK("priority is clamped", priority == greatest);
    OK(cuStreamGetFlags(a, &flags));
    CHECK("flags", flags == NON_BLOCKING);
    OK(cuStreamGetCtx(a, &of));
    CHECK("context", of == context);
    OK(cuStreamGetId(a, &ids[0]));
    OK(cuStreamGetId(b, &ids[1]));
    OK(cuStreamGetId(NULL, &ids[2]));
    CHECK("ids differ", ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    OK(cuStreamGetId(LEGACY, &ids[0]));
    CHECK("null is the legacy stream", ids[0] == ids[2]);
    OK(cuStreamGetId_ptsz(NULL, &ids[0]));
    OK(cuStreamGetId(PER_THREAD, &ids[1]));
    CHECK("or the thread's, by the other entry points", ids[0] == ids[1] && ids[0] != ids[2]);
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
}

/* What comes next in a stream waits, however long this thread is held up before it looks. */
static void holds(CUstream s)
{
    stamps[HELD] = 0;
    OK(cuStreamWaitValue32_v2(s, slot(HELD), 1, WAIT_EQ));
}

static void releases(void) { stamps[HELD] = 1; }

static void order(void)
{
    CUstream s;
    CUdeviceptr x;
    float back[N];
    OK(cuMemAlloc_v2(&x, sizeof back));
    OK(cuStreamCreate(&s, NON_BLOCKING));
    holds(s);
    OK(launch_fill(s, x, N, 1));
    for (int i = 0; i < 10; i++) {
        OK(launch_axpy(s, x, x, N, 1));
    }
    GIVES("query of a busy stream", NOT_READY, cuStreamQuery(s));
    releases();
    OK(cuMemcpyDtoHAsync_v2(back, x, sizeof back, s));
    GIVES("synchronize", SUCCESS, cuStreamSynchronize(s));
    GIVES("query of an idle stream", SUCCESS, cuStreamQuery(s));
    CHECK("commands of a stream run in order", back[0] == 1024 && back[N - 1] == 1024);
    GIVES("destroy", SUCCESS, cuStreamDestroy_v2(s));
    OK(cuMemFree_v2(x));
}

/* A long kernel in one stream, then a stamp in another. Did the second wait? */
static int waits(CUstream first, CUstream second)
{
    stamps[0] = stamps[1] = 0;
    OK(cuCtxSynchronize());
    OK(launch_spin(first, LONG_US));
    OK(launch_stamp(first, slot(0)));
    OK(launch_stamp(second, slot(1)));
    OK(cuStreamSynchronize(second));
    int waited = stamps[0] != 0 && stamps[1] >= stamps[0];
    OK(cuCtxSynchronize());
    return waited;
}

static void barriers(void)
{
    CUstream blocking, other, free_one;
    OK(cuStreamCreate(&blocking, 0));
    OK(cuStreamCreate(&other, 0));
    OK(cuStreamCreate(&free_one, NON_BLOCKING));
    CHECK("the legacy stream waits for a blocking one", waits(blocking, NULL));
    CHECK("a blocking one waits for the legacy stream", waits(NULL, blocking));
    CHECK("so does the thread's own", waits(NULL, PER_THREAD) && waits(PER_THREAD, NULL));
    stamps[0] = stamps[1] = 0;
    OK(launch_spin(blocking, LONG_US));
    OK(launch_stamp(blocking, slot(0)));
    OK(launch_stamp(LEGACY, slot(2)));
    OK(launch_stamp(other, slot(1)));
    OK(cuStreamSynchronize(other));
    CHECK("through the legacy stream one waits for another", stamps[0] && stamps[2] >= stamps[0] &&
                                                                 stamps[1] >= stamps[2]);
    holds(blocking);
    GIVES("the legacy stream is busy while a blocking one is", NOT_READY, cuStreamQuery(NULL));
    releases();
    GIVES("synchronize the legacy stream", SUCCESS, cuStreamSynchronize(NULL));
    GIVES("then the blocking one is idle", SUCCESS, cuStreamQuery(blocking));
    OK(launch_spin(free_one, LONG_US));
    GIVES("a non-blocking one is not waited for", SUCCESS, cuStreamQuery(NULL));
    OK(cuCtxSynchronize());
    GIVES("synchronize the context", SUCCESS, cuStreamQuery(free_one));
    OK(cuStreamDestroy_v2(blocking));
    OK(cuStreamDestroy_v2(other));
    OK(cuStreamDestroy_v2(free_one));
}

static void *elsewhere(void *id)
{
    OK(cuCtxSetCurrent(context));
    OK(cuStreamGetId(PER_THREAD, id));
    OK(cuLaunchKernel_ptsz(empty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    GIVES("another thread's own stream", SUCCESS, cuStreamSynchronize_ptsz(NULL));
    return NULL;
}

static void threads(void)
{
    uint64_t mine, its = 0;
    pthread_t thread;
    OK(cuStreamGetId(PER_THREAD, &mine));
    pthread_create(&thread, NULL, elsewhere, &its);
    pthread_join(thread, NULL);
    CHECK("is another one", its != 0 && its != mine);
}

static void many(void)
{
    CUstream streams[64];
    CUdeviceptr x;
    float back[64];
    OK(cuMemAlloc_v2(&x, 64 * 4));
    for (int i = 0; i < 64; i++) {
        OK(cuStreamCreate(&streams[i], i % 2 ? NON_BLOCKING : 0));
        OK(launch_fill(streams[i], x + 4u * (unsigned)i, 1, (float)i));
        OK(launch_axpy(streams[i], x + 4u * (unsigned)i, x + 4u * (unsigned)i, 1, 1));
    }
    for (int i = 0; i < 64; i++) {
        OK(cuStreamDestroy_v2(streams[i]));
    }
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(back, x, sizeof back));
    int right = 1;
    for (int i = 0; i < 64; i++) {
        right &= back[i] == 2.0f * i;
    }
    CHECK("what a destroyed stream was given still runs", right);
    OK(cuMemFree_v2(x));
}

/* More than a channel holds: the call waits, and nothing is lost. */
static void deep(void)
{
    CUstream s;
    CUdeviceptr x;
    enum { DEEP = 5000 };
    float back;
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuMemAlloc_v2(&x, 8));
    OK(launch_fill(s, x, 1, 1));
    OK(launch_fill(s, x + 4, 1, 0));
    for (int i = 0; i < DEEP; i++) {
        OK(launch_axpy(s, x + 4, x, 1, 1));
    }
    OK(cuStreamSynchronize(s));
    OK(cuMemcpyDtoH_v2(&back, x + 4, 4));
    CHECK("thousands of launches in a row", back == DEEP);
    OK(cuMemFree_v2(x));
    OK(cuStreamDestroy_v2(s));
}

int main(void)
{
    cu_start();
    stamps = pinned(64, &at);
    attributes();
    order();
    barriers();
    threads();
    many();
    deep();
    CHECKS_DONE;
}
