/* Capture: what is recorded does not run, what is not allowed spoils it, a graph runs what was recorded. */
#include "hip.h"

#define N 1000
enum { GLOBAL, THREAD_LOCAL, RELAXED };

static void *ends(void *stream)
{
    hipGraph_t graph = 0;
    GIVES("another thread's capture", CAPTURE_WRONG_THREAD, hipStreamEndCapture(stream, &graph));
    GIVES("that is the last error there", CAPTURE_WRONG_THREAD, hipGetLastError());
    return 0;
}

int main(void)
{
    need_device();
    hipStream_t stream = 0, side = 0;
    hipEvent_t fork = 0, join = 0;
    hipGraph_t graph = 0, seen_graph = 0;
    hipGraphExec_t exec = 0;
    float *x = 0, *y = 0, host[N];
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipMalloc(&y, N * sizeof *y));
    OK(hipStreamCreateWithFlags(&stream, 1));
    OK(hipStreamCreateWithFlags(&side, 1));
    OK(hipEventCreateWithFlags(&fork, 2));
    OK(hipEventCreateWithFlags(&join, 2));
    OK(run_fill(x, N, 1, stream));
    OK(run_fill(y, N, 1, stream));
    OK(hipStreamSynchronize(stream));

    int status = 7;
    OK(hipStreamIsCapturing(stream, &status));
    CHECK("no capture yet", status == 0);
    GIVES("it begins", SUCCESS, hipStreamBeginCapture(stream, RELAXED));
    OK(hipStreamIsCapturing(stream, &status));
    CHECK("it is active", status == 1);
    OK(run_fill(x, N, 2, stream));
    OK(hipEventRecord(fork, stream));
    OK(hipStreamWaitEvent(side, fork, 0));
    OK(run_fill(y, N, 3, side));
    OK(hipEventRecord(join, side));
    OK(hipStreamWaitEvent(stream, join, 0));
    OK(run_axpy(10, x, y, N, stream));
    unsigned long long id = 0;
    size_t count = 0;
    const hipGraphNode_t *nodes = 0;
    GIVES("it tells of itself", SUCCESS, hipStreamGetCaptureInfo_v2(stream, &status, &id, &seen_graph, &nodes, &count));
    CHECK("one node is the last", status == 1 && id != 0 && count == 1 && nodes && nodes[0]);
    GIVES("it ends", SUCCESS, hipStreamEndCapture(stream, &graph));
    CHECK("with the graph it told of", graph && graph == seen_graph);
    OK(hipMemcpy(host, y, sizeof host, DEVICE_TO_HOST));
    CHECK("nothing has run", all_are(host, N, 1));
    count = 0;
    OK(hipGraphGetNodes(graph, 0, &count));
    CHECK("three nodes", count == 3);
    OK(hipGraphInstantiate(&exec, graph, 0, 0, 0));
    OK(hipGraphDestroy(graph));
    for (int i = 0; i < 3; i++) {
        OK(hipGraphLaunch(exec, stream));
    }
    OK(hipStreamSynchronize(stream));
    OK(hipMemcpy(host, y, sizeof host, DEVICE_TO_HOST));
    CHECK("launches run it", all_are(host, N, 23));
    OK(hipGraphExecDestroy(exec));

    OK(hipStreamBeginCapture(stream, GLOBAL));
    void *more = 0;
    CHECK("a synchronous copy is not allowed", hipMemcpy(host, y, 4, DEVICE_TO_HOST) != SUCCESS || on_cuda());
    graph = (hipGraph_t)&more;
    int ended = hipStreamEndCapture(stream, &graph);
    /* A CUDA driver (580) leaves it as it is. */
    CHECK("and spoils it", (ended == CAPTURE_INVALIDATED && graph == 0) || (on_cuda() && ended == SUCCESS));
    CHECK("which is the last error", hipGetLastError() == ended);
    if (ended == SUCCESS) {
        OK(hipGraphDestroy(graph));
    }
    OK(hipStreamBeginCapture(stream, GLOBAL));
    int mode = RELAXED;
    OK(hipThreadExchangeStreamCaptureMode(&mode));
    CHECK("a thread that says so may", hipMalloc(&more, 64) == SUCCESS && mode == GLOBAL);
    OK(hipThreadExchangeStreamCaptureMode(&mode));
    OK(hipStreamEndCapture(stream, &graph));
    OK(hipGraphDestroy(graph));
    OK(hipStreamBeginCapture(stream, RELAXED));
    CHECK("waiting for a captured stream is an error", hipStreamSynchronize(stream) == CAPTURE_UNSUPPORTED);
    CHECK("and spoils it", hipStreamEndCapture(stream, &graph) == CAPTURE_INVALIDATED);
    GIVES("which is the last error again", CAPTURE_INVALIDATED, hipGetLastError());
    GIVES("the stream goes on after", SUCCESS, run_fill(y, N, 1, stream));
    OK(hipStreamSynchronize(stream));

    pthread_t thread;
    OK(hipStreamBeginCapture(stream, GLOBAL));
    CHECK("another thread", pthread_create(&thread, 0, ends, stream) == 0 && pthread_join(thread, 0) == 0);
    OK(hipStreamIsCapturing(stream, &status));
    /* AMD's runtime lets it go on; a CUDA driver ends it (580) or spoils it. */
    ended = hipStreamEndCapture(stream, &graph);
    CHECK("may not end it", status != 0 || on_cuda());
    CHECK("it ends on its own thread", ended == SUCCESS || ended == CAPTURE_INVALIDATED || on_cuda());
    GIVES("and commands run again", SUCCESS, run_fill(y, N, 5, stream));
    OK(hipStreamSynchronize(stream));
    OK(hipMemcpy(host, y, sizeof host, DEVICE_TO_HOST));
    CHECK("as ever", all_are(host, N, 5));
    CHECKS_DONE;
}
