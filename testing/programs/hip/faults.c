/* A little of everything that a preloaded library takes part in: streams, the null stream, events, copies, host functions, a
 * graph, a second thread. It asks the runtime for nothing that it does not need, so that whatever else is called in its process
 * was called by something else; and it looks for errors that it did not make. */
#include "hip.h"

enum { N = 512, ROUNDS = 6, SPINS = 8, NS = 60000, TIMES = 3 };

static hipStream_t first, second;
static float *x, *y;
static int called;

static void counts(hipStream_t stream, hipError_t status, void *unused)
{
    (void)unused;
    called += stream == second && status == SUCCESS;
}

static void no_error(void) { GIVES("no error is left", SUCCESS, hipGetLastError()); }

static void in_streams(void)
{
    hipEvent_t reached = 0;
    float back[N];
    OK(hipEventCreateWithFlags(&reached, 2));
    OK(run_fill(y, N, 0, first));
    no_error();
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < SPINS; i++) {
            OK(run_spin(NS, first));
        }
        OK(run_fill(x, N, (float)round, first));
        OK(run_axpy(1, x, y, N, first));
        OK(hipEventRecord(reached, first));
        OK(hipStreamWaitEvent(second, reached, 0));
        OK(hipMemcpyAsync(back, y, sizeof back, DEVICE_TO_HOST, second));
        OK(hipStreamAddCallback(second, counts, 0, 0));
        no_error();
        if (round % 2) {
            GIVES("wait for the stream", SUCCESS, hipStreamSynchronize(second));
        } else {
            OK(hipEventRecord(reached, second));
            GIVES("wait for an event", SUCCESS, hipEventSynchronize(reached));
        }
        CHECK("what came before has run", all_are(back, N, (float)(round * (round + 1) / 2)) && called == round);
        no_error();
    }
    OK(hipEventDestroy(reached));
}

static void in_the_null_stream(void)
{
    float back[N];
    OK(run_fill(x, N, 7, 0));
    OK(run_spin(NS, 0));
    OK(run_axpy(1, x, x, N, 0));
    OK(hipMemcpy(back, x, sizeof back, DEVICE_TO_HOST));
    CHECK("the null stream", all_are(back, N, 14));
    GIVES("wait for all", SUCCESS, hipDeviceSynchronize());
    no_error();
}

static void in_a_graph(void)
{
    hipGraph_t graph = 0;
    hipGraphExec_t exec = 0;
    float back[N];
    OK(run_fill(x, N, 1, first));
    OK(hipStreamSynchronize(first));
    OK(hipStreamBeginCapture(first, 1));
    for (int i = 0; i < SPINS; i++) {
        OK(run_spin(NS, first));
    }
    OK(run_axpy(1, x, x, N, first));
    OK(hipStreamEndCapture(first, &graph));
    GIVES("instantiate", SUCCESS, hipGraphInstantiate(&exec, graph, 0, 0, 0));
    OK(hipGraphDestroy(graph));
    for (int i = 0; i < TIMES; i++) {
        OK(hipGraphLaunch(exec, first));
    }
    OK(hipMemcpyAsync(back, x, sizeof back, DEVICE_TO_HOST, first));
    GIVES("wait for graphs", SUCCESS, hipStreamSynchronize(first));
    CHECK("each launch has run once", all_are(back, N, 1 << TIMES));
    OK(hipGraphExecDestroy(exec));
    no_error();
}

static void *in_a_thread(void *unused)
{
    hipStream_t own = 0;
    float *z = 0, back = 0;
    OK(hipStreamCreateWithFlags(&own, 1));
    OK(hipMalloc(&z, sizeof back));
    for (int i = 0; i < 2 * SPINS; i++) {
        OK(run_spin(NS, own));
    }
    OK(run_fill(z, 1, 5, own));
    OK(hipStreamSynchronize(own));
    OK(hipMemcpy(&back, z, sizeof back, DEVICE_TO_HOST));
    CHECK("another thread", back == 5);
    no_error();
    OK(hipStreamDestroy(own));
    OK(hipFree(z));
    return unused;
}

int main(void)
{
    pthread_t thread;
    need_device();
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipMalloc(&y, N * sizeof *y));
    OK(hipStreamCreateWithFlags(&first, 0));
    OK(hipStreamCreateWithFlags(&second, 1));
    no_error();
    in_streams();
    in_the_null_stream();
    in_a_graph();
    pthread_create(&thread, 0, in_a_thread, 0);
    pthread_join(thread, 0);
    in_the_null_stream();
    OK(hipStreamDestroy(first));
    OK(hipStreamDestroy(second));
    OK(hipFree(x));
    OK(hipFree(y));
    CHECKS_DONE;
}
