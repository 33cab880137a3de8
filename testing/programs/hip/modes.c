/* Captures: whom each mode forbids what, how threads say otherwise, and graphs that are changed while they are recorded. */
#include "hip.h"

#define N 1000
enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { ADD, SET };

static hipStream_t stream, side;
static hipEvent_t event;
static float *x, host[N];

/* What a thread of a watchdog or an allocator does beside a capture, having said `mode` (or nothing, if negative). */
struct beside { int mode, allocated, asked, told; };

static void *allocates(void *data)
{
    struct beside *own = data;
    void *memory = 0;
    own->told = own->mode;
    if (own->mode >= 0) {
        OK(hipThreadExchangeStreamCaptureMode(&own->told));
    }
    own->asked = hipEventQuery(event);
    own->allocated = hipMalloc(&memory, 64);
    if (own->allocated == SUCCESS) {
        OK(hipFree(memory));
    }
    return 0;
}

static struct beside beside(int mode)
{
    pthread_t thread;
    struct beside found = {mode, -1, -1, -1};
    if (pthread_create(&thread, 0, allocates, &found) || pthread_join(thread, 0)) {
        exit(1);
    }
    return found;
}

/* Ends a capture, whatever came of it. */
static int ends(void)
{
    hipGraph_t graph = 0;
    int ended = hipStreamEndCapture(stream, &graph);
    if (ended == SUCCESS) {
        OK(hipGraphDestroy(graph));
    }
    return ended;
}

static void modes(void)
{
    void *memory = 0;
    OK(hipStreamBeginCapture(stream, THREAD_LOCAL));
    struct beside other = beside(-1);
    CHECK("a capture of this thread's lets others do as they like",
          other.allocated == SUCCESS && other.asked == SUCCESS);
    GIVES("and ends well", SUCCESS, ends());
    OK(hipStreamBeginCapture(stream, THREAD_LOCAL));
    CHECK("but not this thread", hipMalloc(&memory, 64) == CAPTURE_UNSUPPORTED || on_cuda());
    ends();
    OK(hipStreamBeginCapture(stream, RELAXED));
    GIVES("a relaxed one lets everybody", SUCCESS, hipMalloc(&memory, 64));
    other = beside(-1);
    CHECK("others too", other.allocated == SUCCESS && other.asked == SUCCESS);
    GIVES("and ends well", SUCCESS, ends());
    OK(hipFree(memory));
    OK(hipStreamBeginCapture(stream, GLOBAL));
    other = beside(RELAXED);
    CHECK("a thread that says it is relaxed may", other.allocated == SUCCESS && other.asked == SUCCESS);
    CHECK("and was not before", other.told == GLOBAL);
    other = beside(THREAD_LOCAL);
    CHECK("so may one that answers for itself only", other.allocated == SUCCESS && other.asked == SUCCESS);
    GIVES("which harms nobody", SUCCESS, ends());
    OK(hipStreamBeginCapture(stream, GLOBAL));
    other = beside(-1);
    CHECK("others may not", other.asked == CAPTURE_UNSUPPORTED || on_cuda());
    CHECK("and spoil it", ends() == CAPTURE_INVALIDATED || on_cuda());

    int mode = 7;
    GIVES("no such mode", INVALID_VALUE, hipThreadExchangeStreamCaptureMode(&mode));
    GIVES("none given", INVALID_VALUE, hipThreadExchangeStreamCaptureMode(0));
    mode = THREAD_LOCAL;
    OK(hipThreadExchangeStreamCaptureMode(&mode));
    CHECK("nothing has changed by that", mode == GLOBAL);
    OK(hipThreadExchangeStreamCaptureMode(&mode));
    CHECK("modes are exchanged", mode == THREAD_LOCAL);
}

static void states(void)
{
    hipGraph_t graph = 0;
    hipEvent_t fork = 0;
    int status = 7;
    unsigned long long first = 0, second = 0, third = 0;
    OK(hipEventCreateWithFlags(&fork, 2));
    GIVES("no such mode", INVALID_VALUE, hipStreamBeginCapture(stream, 3));
    GIVES("not of the null stream", CAPTURE_UNSUPPORTED, hipStreamBeginCapture(0, RELAXED));
    GIVES("nothing to end", ILLEGAL_STATE, hipStreamEndCapture(stream, &graph));
    GIVES("nothing to tell of", SUCCESS, hipStreamGetCaptureInfo_v2(stream, &status, &first, &graph, 0, 0));
    CHECK("as it says", status == 0 && first == 0 && graph == 0);
    GIVES("nothing to change", ILLEGAL_STATE, hipStreamUpdateCaptureDependencies(stream, 0, 0, SET));
    OK(hipStreamBeginCapture(stream, RELAXED));
    GIVES("not twice", ILLEGAL_STATE, hipStreamBeginCapture(stream, RELAXED));
    OK(run_fill(x, N, 1, stream));
    OK(hipEventRecord(fork, stream));
    OK(hipStreamWaitEvent(side, fork, 0));
    OK(hipStreamGetCaptureInfo_v2(stream, &status, &first, 0, 0, 0));
    OK(hipStreamGetCaptureInfo_v2(side, &status, &second, 0, 0, 0));
    CHECK("a stream that waits for it takes part", status == 1 && first == second && first != 0);
    OK(run_fill(x, N, 2, side));
    GIVES("what is not joined", CAPTURE_UNJOINED, hipStreamEndCapture(stream, &graph));
    OK(hipStreamGetCaptureInfo_v2(side, &status, &second, 0, 0, 0));
    CHECK("ends for all", status == 0 && graph == 0);
    OK(hipStreamBeginCapture(stream, RELAXED));
    OK(hipStreamGetCaptureInfo_v2(stream, &status, &third, 0, 0, 0));
    CHECK("the next is another", third != first && third != 0);
    OK(hipEventRecord(fork, stream));
    OK(hipStreamWaitEvent(side, fork, 0));
    GIVES("only where it began", CAPTURE_UNMATCHED, hipStreamEndCapture(side, &graph));
    ends();
    OK(hipStreamIsCapturing(side, &status));
    CHECK("both run again", status == 0);
    GIVES("as commands do", SUCCESS, run_fill(x, N, 3, side));
    OK(hipStreamSynchronize(side));
    OK(hipEventDestroy(fork));
}

static const float *launched(hipGraph_t graph)
{
    hipGraphExec_t exec = 0;
    OK(hipGraphInstantiateWithFlags(&exec, graph, 1));
    OK(hipGraphLaunch(exec, stream));
    OK(hipStreamSynchronize(stream));
    OK(hipMemcpy(host, x, sizeof host, DEVICE_TO_HOST));
    OK(hipGraphExecDestroy(exec));
    return host;
}

static hipGraphNode_t node_of(hipGraph_t graph, const hipGraphNode_t *after, size_t count, float value)
{
    unsigned n = N;
    hipGraphNode_t node = 0;
    struct kernel_params fills = {{256, 1, 1}, 0, &fill, {BLOCKS(N), 1, 1}, ARGS(&n, &value, &x), 0};
    OK(hipGraphAddKernelNode(&node, graph, after, count, &fills));
    return node;
}

/* A node that is added by hand to what is being recorded, as frameworks do. */
static void dependencies(void)
{
    hipGraph_t graph = 0, other = 0;
    const hipGraphNode_t *front = 0;
    hipGraphNode_t first, added, foreign, found[4];
    size_t count = 0;
    int status = 0;
    OK(hipGraphCreate(&other, 0));
    foreign = node_of(other, 0, 0, 9);
    OK(hipStreamBeginCapture(stream, RELAXED));
    OK(run_fill(x, N, 1, stream));
    OK(hipStreamGetCaptureInfo_v2(stream, &status, 0, &graph, &front, &count));
    CHECK("the stream is behind its command", status == 1 && count == 1);
    first = front[0];
    added = node_of(graph, &first, 1, 2);
    GIVES("behind a node made by hand", SUCCESS, hipStreamUpdateCaptureDependencies(stream, &added, 1, SET));
    OK(hipStreamGetCaptureInfo_v2(stream, &status, 0, 0, &front, &count));
    CHECK("instead", count == 1 && front[0] == added);
    GIVES("behind both", SUCCESS, hipStreamUpdateCaptureDependencies(stream, &first, 1, ADD));
    OK(hipStreamGetCaptureInfo_v2(stream, &status, 0, 0, &front, &count));
    CHECK("as well", count == 2 && front[0] != front[1]);
    GIVES("behind a node of another graph", INVALID_VALUE,
          hipStreamUpdateCaptureDependencies(stream, &foreign, 1, ADD));
    GIVES("no such way", INVALID_VALUE, hipStreamUpdateCaptureDependencies(stream, &first, 1, 5));
    GIVES("no list", INVALID_VALUE, hipStreamUpdateCaptureDependencies(stream, 0, 1, SET));
    OK(run_axpy(1, x, x, N, stream));
    OK(hipStreamGetCaptureInfo_v2(stream, &status, 0, 0, &front, &count));
    hipGraphNode_t last = count == 1 ? front[0] : 0;
    OK(hipStreamEndCapture(stream, &graph));
    count = 4;
    OK(hipGraphNodeGetDependencies(last, found, &count));
    CHECK("the next command waits for both", count == 2 && found[0] != found[1]
                                                 && (found[0] == first || found[1] == first)
                                                 && (found[0] == added || found[1] == added));
    CHECK("and runs behind them", all_are(launched(graph), N, 4));

    GIVES("a capture into the graph", SUCCESS, hipStreamBeginCaptureToGraph(stream, graph, &last, 0, 1, RELAXED));
    OK(run_axpy(1, x, x, N, stream));
    GIVES("that a node of another cannot begin", ILLEGAL_STATE,
          hipStreamBeginCaptureToGraph(stream, other, &foreign, 0, 1, RELAXED));
    hipGraph_t same = 0;
    OK(hipStreamEndCapture(stream, &same));
    OK(hipGraphGetNodes(graph, 0, &count));
    CHECK("adds to it", same == graph && count == 4);
    CHECK("in its place", all_are(launched(graph), N, 8));
    GIVES("behind a node of another graph", INVALID_VALUE,
          hipStreamBeginCaptureToGraph(stream, graph, &foreign, 0, 1, RELAXED));
    OK(hipStreamIsCapturing(stream, &status));
    CHECK("none begins", status == 0);
    OK(hipGraphDestroy(graph));
    OK(hipGraphDestroy(other));
    GIVES("into a graph that is gone", INVALID_VALUE, hipStreamBeginCaptureToGraph(stream, graph, 0, 0, 0, RELAXED));
    GIVES("commands run again", SUCCESS, run_fill(x, N, 7, stream));
    OK(hipStreamSynchronize(stream));
    OK(hipMemcpy(host, x, sizeof host, DEVICE_TO_HOST));
    CHECK("as ever", all_are(host, N, 7));
}

int main(void)
{
    need_device();
    OK(hipStreamCreateWithFlags(&stream, 1));
    OK(hipStreamCreateWithFlags(&side, 1));
    OK(hipEventCreateWithFlags(&event, 2));
    OK(hipMalloc(&x, N * sizeof *x));
    modes();
    states();
    dependencies();
    CHECKS_DONE;
}
