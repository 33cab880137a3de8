/* Stream capture: what is recorded, what is not allowed meanwhile, in all modes. */
#include "cu.h"

enum { N = 256, NONE = 0, ACTIVE = 1, INVALIDATED = 2 };

static CUdeviceptr x;
static CUstream s, t;

static int status_of(CUstream stream)
{
    int status = -1;
    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

/* Ends a capture that has been spoilt. */
static CUresult end_spoilt(CUstream stream)
{
    CUgraph graph = (CUgraph)1;
    CUresult result = cuStreamEndCapture(stream, &graph);
    return graph == NULL ? result : SUCCESS;
}

static void run(CUgraph graph)
{
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void records(void)
{
    CUgraph graph, seen;
    const CUgraphNode *front;
    size_t count = 0;
    uint64_t id = 0;
    int status;
    CHECK("no capture at first", status_of(s) == NONE);
    GIVES("end without a beginning", ILLEGAL_STATE, cuStreamEndCapture(s, &graph));
    OK(cuMemsetD32_v2(x, 0, N));
    OK(cuCtxSynchronize());
    GIVES("begin", SUCCESS, cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    GIVES("begin twice", ILLEGAL_STATE, cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    OK(launch_fill(s, x, N, 1));
    OK(launch_axpy(s, x, x, N, 1));
    OK(cuStreamGetCaptureInfo_v2(s, &status, &id, &seen, &front, &count));
    CHECK("one node to depend on", status == ACTIVE && id != 0 && count == 1 && front[0] != NULL);
    GIVES("end", SUCCESS, cuStreamEndCapture(s, &graph));
    CHECK("the graph was known before", seen == graph);
    CHECK("no capture any more", status_of(s) == NONE);
    CHECK("nothing has run", all_are(x, N, 0));
    count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK("two nodes", count == 2);
    run(graph);
    CHECK("now it has", all_are(x, N, 2));
}

static void forks(void)
{
    CUgraph graph;
    CUevent fork, join;
    OK(cuEventCreate(&fork, DISABLE_TIMING));
    OK(cuEventCreate(&join, DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(launch_fill(s, x, N, 1));
    OK(cuEventRecord(fork, s));
    GIVES("another stream joins by an event", SUCCESS, cuStreamWaitEvent(t, fork, 0));
    CHECK("and is captured", status_of(t) == ACTIVE);
    OK(launch_axpy(t, x, x, N, 1));
    GIVES("end in the other stream", CAPTURE_UNMATCHED, end_spoilt(t));
    GIVES("then the first", CAPTURE_INVALIDATED, end_spoilt(s));
    CHECK("both run again", status_of(s) == NONE && status_of(t) == NONE);

    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(launch_fill(s, x, N, 1));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    OK(launch_axpy(t, x, x, N, 1));
    GIVES("a branch that is not joined", CAPTURE_UNJOINED, end_spoilt(s));

    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(launch_fill(s, x, N, 1));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    OK(launch_axpy(t, x, x, N / 2, 1));
    OK(launch_axpy(s, x + N * 2, x + N * 2, N / 2, 1));
    OK(cuEventRecord(join, t));
    OK(cuStreamWaitEvent(s, join, 0));
    OK(launch_axpy(s, x, x, N, 1));
    GIVES("fork and join", SUCCESS, cuStreamEndCapture(s, &graph));
    run(graph);
    CHECK("all of it ran, in order", all_are(x, N, 4));
    GIVES("an event of a capture cannot be asked", INVALID_VALUE, cuEventQuery(fork));

    /* Work outside and inside must not meet. */
    OK(launch_spin(t, 1000));
    OK(cuEventRecord(join, t));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    GIVES("waiting for work that is not captured", CAPTURE_ISOLATION, cuStreamWaitEvent(s, join, 0));
    GIVES("spoils it", CAPTURE_INVALIDATED, end_spoilt(s));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    OK(cuStreamBeginCapture_v2(t, CAPTURE_RELAXED));
    OK(launch_fill(t, x, N, 1));
    OK(cuEventRecord(join, t));
    GIVES("two captures do not merge", CAPTURE_MERGE, cuStreamWaitEvent(s, join, 0));
    CHECK("both are spoilt", status_of(s) == INVALIDATED && status_of(t) == INVALIDATED);
    GIVES("the one", CAPTURE_INVALIDATED, end_spoilt(s));
    GIVES("and the other", CAPTURE_INVALIDATED, end_spoilt(t));
    OK(cuEventDestroy_v2(fork));
    OK(cuEventDestroy_v2(join));
}

/* Calls that no capture allows for its own streams. */
static void illegal(void)
{
    CUevent event;
    GIVES("the legacy stream cannot be captured", CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, CAPTURE_RELAXED));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    GIVES("synchronize a captured stream", CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
    CHECK("spoilt", status_of(s) == INVALIDATED);
    GIVES("launch into it", CAPTURE_INVALIDATED, launch_fill(s, x, N, 1));
    GIVES("end", CAPTURE_INVALIDATED, end_spoilt(s));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    GIVES("query a captured stream", CAPTURE_UNSUPPORTED, cuStreamQuery(s));
    GIVES("end again", CAPTURE_INVALIDATED, end_spoilt(s));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    GIVES("synchronize the context", CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    GIVES("end after that", CAPTURE_INVALIDATED, end_spoilt(s));
    OK(cuEventCreate(&event, DISABLE_TIMING));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    OK(cuEventRecord(event, s));
    GIVES("synchronize an event of it", CAPTURED_EVENT, cuEventSynchronize(event));
    GIVES("end after that, too", CAPTURE_INVALIDATED, end_spoilt(s));
    OK(cuEventDestroy_v2(event));

    CUstream blocking;
    OK(cuStreamCreate(&blocking, 0));
    OK(cuStreamBeginCapture_v2(blocking, CAPTURE_RELAXED));
    GIVES("the legacy stream would wait for it", CAPTURE_IMPLICIT, launch_fill(NULL, x, N, 1));
    GIVES("so it is spoilt", CAPTURE_INVALIDATED, end_spoilt(blocking));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    GIVES("not for a non-blocking one", SUCCESS, launch_fill(NULL, x, N, 1));
    CUgraph graph;
    GIVES("which goes on", SUCCESS, cuStreamEndCapture(s, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(blocking));
}

typedef struct {
    CUresult result;
    int mode;
} Other;

static void *allocates(void *argument)
{
    Other *other = argument;
    CUdeviceptr p;
    OK(cuCtxSetCurrent(context));
    OK(cuThreadExchangeStreamCaptureMode(&other->mode));
    other->result = cuMemAlloc_v2(&p, 1024);
    if (other->result == SUCCESS) {
        int relaxed = CAPTURE_RELAXED;
        OK(cuThreadExchangeStreamCaptureMode(&relaxed));
        OK(cuMemFree_v2(p));
    }
    return NULL;
}

/* What an allocation in another thread, in this mode of that thread, gives during a capture. */
static CUresult elsewhere(int mode)
{
    Other other = { -1, mode };
    pthread_t thread;
    pthread_create(&thread, NULL, allocates, &other);
    pthread_join(thread, NULL);
    return other.result;
}

static void modes(void)
{
    const char *names[] = { "global", "thread-local", "relaxed" };
    for (int mode = CAPTURE_GLOBAL; mode <= CAPTURE_RELAXED; mode++) {
        CUdeviceptr p;
        CUgraph graph;
        OK(cuStreamBeginCapture_v2(s, mode));
        CUresult wanted = mode == CAPTURE_RELAXED ? SUCCESS : CAPTURE_UNSUPPORTED;
        CUresult got = cuMemAlloc_v2(&p, 1024);
        check_that(got == wanted, "%s capture: an allocation of this thread", names[mode]);
        check_that(status_of(s) == (wanted == SUCCESS ? ACTIVE : INVALIDATED), "%s capture: what it does", names[mode]);
        check_that((cuStreamEndCapture(s, &graph) == SUCCESS) == (wanted == SUCCESS), "%s capture: its end",
                   names[mode]);

        OK(cuStreamBeginCapture_v2(s, mode));
        int lenient = CAPTURE_RELAXED;
        OK(cuThreadExchangeStreamCaptureMode(&lenient));
        check_that(lenient == CAPTURE_GLOBAL, "%s capture: the thread's mode was global", names[mode]);
        check_that(cuMemAlloc_v2(&p, 1024) == SUCCESS, "%s capture: allowed in a relaxed thread", names[mode]);
        OK(cuThreadExchangeStreamCaptureMode(&lenient));
        check_that(status_of(s) == ACTIVE, "%s capture: goes on", names[mode]);
        wanted = mode == CAPTURE_GLOBAL ? CAPTURE_UNSUPPORTED : SUCCESS;
        check_that(elsewhere(CAPTURE_THREAD_LOCAL) == SUCCESS, "%s capture: allowed in a thread-local thread",
                   names[mode]);
        check_that(elsewhere(CAPTURE_GLOBAL) == wanted, "%s capture: an allocation of another thread", names[mode]);
        check_that((cuStreamEndCapture(s, &graph) == SUCCESS) == (wanted == SUCCESS), "%s capture: its end then",
                   names[mode]);
    }
}

static void *ends(void *result)
{
    CUgraph graph;
    OK(cuCtxSetCurrent(context));
    *(CUresult *)result = cuStreamEndCapture(s, &graph);
    return NULL;
}

static CUresult end_elsewhere(void)
{
    CUresult result;
    pthread_t thread;
    pthread_create(&thread, NULL, ends, &result);
    pthread_join(thread, NULL);
    return result;
}

static void threads(void)
{
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    GIVES("end in another thread", CAPTURE_WRONG_THREAD, end_elsewhere());
    cuStreamEndCapture(s, &(CUgraph){ NULL });
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    GIVES("relaxed: any thread may end it", SUCCESS, end_elsewhere());
    CHECK("nothing is left", status_of(s) == NONE && cuCtxSynchronize() == SUCCESS);
}

int main(void)
{
    cu_start();
    OK(cuMemAlloc_v2(&x, N * 4));
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuStreamCreate(&t, NON_BLOCKING));
    records();
    forks();
    illegal();
    modes();
    threads();
    CHECKS_DONE;
}
