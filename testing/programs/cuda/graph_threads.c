/* Threads that each make graphs ready, launch, update and destroy them: the graph before its executable one, and that one
 * while it runs, so that handles come back at once. */
#include "cu.h"

enum { THREADS = 4, ROUNDS = 25, LINKS = 12, N = 64 };

static int right[THREADS];

/* y = 0, then LINKS times y += a x. */
static CUgraph captured(CUstream s, CUdeviceptr x, CUdeviceptr y, float a)
{
    CUgraph graph;
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(launch_fill(s, y, N, 0));
    for (int i = 0; i < LINKS; i++) {
        OK(launch_axpy(s, y, x, N, a));
    }
    OK(cuStreamEndCapture(s, &graph));
    return graph;
}

static int gives(CUgraphExec exec, CUstream s, CUdeviceptr y, float wanted)
{
    float back[N];
    OK(cuGraphLaunch(exec, s));
    OK(cuMemcpyDtoHAsync_v2(back, y, sizeof back, s));
    OK(cuStreamSynchronize(s));
    return back[0] == wanted && back[N - 1] == wanted;
}

static void *works(void *number)
{
    int me = (int)(intptr_t)number;
    CUstream s;
    CUdeviceptr x, y;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuMemAlloc_v2(&x, N * sizeof(float)));
    OK(cuMemAlloc_v2(&y, N * sizeof(float)));
    OK(launch_fill(s, x, N, 1));
    right[me] = 1;
    for (int i = 0; i < ROUNDS; i++) {
        CUgraphExec exec;
        CUgraph graph = captured(s, x, y, (float)me);
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphDestroy(graph));
        right[me] &= gives(exec, s, y, (float)(LINKS * me));
        CUgraphExecUpdateResultInfo info = { 0 };
        graph = captured(s, x, y, (float)(me + i));
        OK(cuGraphExecUpdate_v2(exec, graph, &info));
        OK(cuGraphDestroy(graph));
        right[me] &= gives(exec, s, y, (float)(LINKS * (me + i)));
        /* Some go while they run. */
        OK(cuGraphLaunch(exec, s));
        if (i % 2) {
            OK(cuStreamSynchronize(s));
        }
        OK(cuGraphExecDestroy(exec));
    }
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int all = 1;
    cu_start();
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, works, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        all &= right[i];
    }
    CHECK("each graph gave what was asked of it", all);
    CHECKS_DONE;
}
