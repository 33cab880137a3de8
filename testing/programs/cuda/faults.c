/* A little of everything that a preloaded library takes part in: streams, the default stream, events, copies, host functions,
 * a graph, a second thread, a second context. It asks the driver for nothing that it does not need, so that whatever else is
 * called in its process was called by something else. */
#include "cu.h"

enum { N = 512, ROUNDS = 6, SPINS = 8, US = 60, TIMES = 3 };

static CUstream first, second;
static CUdeviceptr x, y;
static int called;

static void counts(void *unused)
{
    (void)unused;
    called++;
}

/* In two streams, of which one waits for the other. */
static void in_streams(void)
{
    CUevent reached;
    float back[N];
    OK(cuEventCreate(&reached, DISABLE_TIMING));
    OK(launch_fill(first, y, N, 0));
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < SPINS; i++) {
            OK(launch_spin(first, US));
        }
        OK(launch_fill(first, x, N, (float)round));
        OK(launch_axpy(first, y, x, N, 1));
        OK(cuEventRecord(reached, first));
        OK(cuStreamWaitEvent(second, reached, 0));
        OK(cuMemcpyDtoHAsync_v2(back, y, sizeof back, second));
        OK(cuLaunchHostFunc(second, counts, NULL));
        if (round % 2) {
            GIVES("wait for the stream", SUCCESS, cuStreamSynchronize(second));
        } else {
            OK(cuEventRecord(reached, second));
            GIVES("wait for an event", SUCCESS, cuEventSynchronize(reached));
        }
        float sum = (float)(round * (round + 1) / 2);
        CHECK("what came before has run", back[0] == sum && back[N - 1] == sum && called == round);
    }
    OK(cuEventDestroy_v2(reached));
}

static void in_the_default_stream(void)
{
    float back[N];
    OK(launch_fill(NULL, x, N, 7));
    OK(launch_spin(NULL, US));
    OK(launch_axpy(NULL, x, x, N, 1));
    OK(cuMemcpyDtoH_v2(back, x, sizeof back));
    CHECK("the default stream", back[0] == 14 && back[N - 1] == 14);
    GIVES("wait for all", SUCCESS, cuCtxSynchronize());
}

static void in_a_graph(void)
{
    CUgraph graph;
    CUgraphExec exec;
    float back[N];
    OK(launch_fill(first, x, N, 1));
    OK(cuStreamSynchronize(first));
    OK(cuStreamBeginCapture_v2(first, CAPTURE_THREAD_LOCAL));
    for (int i = 0; i < SPINS; i++) {
        OK(launch_spin(first, US));
    }
    OK(launch_axpy(first, x, x, N, 1));
    OK(cuStreamEndCapture(first, &graph));
    GIVES("instantiate", SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < TIMES; i++) {
        OK(cuGraphLaunch(exec, first));
    }
    OK(cuMemcpyDtoHAsync_v2(back, x, sizeof back, first));
    GIVES("wait for graphs", SUCCESS, cuStreamSynchronize(first));
    CHECK("each launch has run once", back[0] == 1 << TIMES && back[N - 1] == 1 << TIMES);
    OK(cuGraphExecDestroy(exec));
}

static void *in_a_thread(void *unused)
{
    CUstream own;
    CUdeviceptr z;
    float back = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&own, NON_BLOCKING));
    OK(cuMemAlloc_v2(&z, sizeof back));
    for (int i = 0; i < 2 * SPINS; i++) {
        OK(launch_spin(own, US));
    }
    OK(launch_fill(own, z, 1, 5));
    OK(cuStreamSynchronize(own));
    OK(cuMemcpyDtoH_v2(&back, z, sizeof back));
    CHECK("another thread", back == 5);
    OK(cuStreamDestroy_v2(own));
    OK(cuMemFree_v2(z));
    return unused;
}

static void in_another_context(void)
{
    CUcontext other;
    CUstream own;
    CUdeviceptr z;
    float back = 0;
    OK(cuCtxCreate_v2(&other, 0, device));
    cu_functions();
    OK(cuStreamCreate(&own, 0));
    OK(cuMemAlloc_v2(&z, sizeof back));
    OK(launch_spin(own, US));
    OK(launch_fill(own, z, 1, 9));
    OK(cuStreamSynchronize(own));
    OK(cuMemcpyDtoH_v2(&back, z, sizeof back));
    CHECK("another context", back == 9);
    GIVES("its end", SUCCESS, cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(context));
    cu_functions();
}

int main(void)
{
    pthread_t thread;
    cu_start();
    OK(cuMemAlloc_v2(&x, N * sizeof(float)));
    OK(cuMemAlloc_v2(&y, N * sizeof(float)));
    OK(cuStreamCreate(&first, 0));
    OK(cuStreamCreate(&second, NON_BLOCKING));
    in_streams();
    in_the_default_stream();
    in_a_graph();
    pthread_create(&thread, NULL, in_a_thread, NULL);
    pthread_join(thread, NULL);
    in_another_context();
    in_the_default_stream();
    OK(cuStreamDestroy_v2(first));
    OK(cuStreamDestroy_v2(second));
    OK(cuMemFree_v2(x));
    OK(cuMemFree_v2(y));
    CHECKS_DONE;
}
