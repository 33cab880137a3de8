/* Goes on and on: steady [US] [BATCH] [graph | blocking | joined | loading]. Batches of kernels of US microseconds, back to
 * back: each a graph; or on a stream that waits for the default stream, which is used once; or with another stream that waits
 * for each batch; or beside a thread that loads code again and again and says "loaded". Each batch is given before the one
 * before it is complete, so that the device always has something to do. After each batch a line with the time of
 * CLOCK_MONOTONIC in ns. Lines on stdin: "count" is answered with "given N done M", also while launches are held; "exit"
 * exits at once; "end", or the end of stdin, ends it: the result is checked. */
#include "cu.h"
#include "../../lib/steady.h"

static CUdeviceptr at;

static void give(CUstream s, uint64_t us, long batch, long counted)
{
    for (long i = 0; i < batch; i++) {
        OK(launch_spin(s, us));
        OK(launch_axpy(s, at, at + 4, 1, 1));
        atomic_fetch_add(&given, counted);
    }
}

static void *loads(void *context)
{
    OK(cuCtxSetCurrent(context));
    while (!atomic_load(&ending)) {
        CUmodule loaded;
        OK(cuModuleLoadData(&loaded, KERNELS));
        OK(cuModuleUnload(loaded));
        puts("loaded");
        fflush(stdout);
        usleep(2000);
    }
    return NULL;
}

static int is(int argc, char **argv, const char *mode)
{
    return argc > 3 && !strcmp(argv[3], mode);
}

int main(int argc, char **argv)
{
    uint64_t us = argc > 1 ? strtoull(argv[1], NULL, 10) : 200;
    long batch = argc > 2 ? atol(argv[2]) : 8;
    cu_start();
    CUstream s;
    CUevent reached[2];
    CUgraph graph;
    CUgraphExec exec = NULL;
    pthread_t listener, loader;
    float *cells = pinned(2 * sizeof *cells, &at);
    done = cells;
    cells[1] = 1;
    int blocking = is(argc, argv, "blocking"), joined = is(argc, argv, "joined"), loading = is(argc, argv, "loading");
    CUstream joining;
    OK(cuStreamCreate(&joining, NON_BLOCKING));
    OK(cuStreamCreate(&s, blocking ? 0 : NON_BLOCKING));
    if (blocking) {
        OK(cuMemcpyDtoH_v2(&(float){ 0 }, at, sizeof(float)));
    }
    OK(cuEventCreate(&reached[0], DISABLE_TIMING));
    OK(cuEventCreate(&reached[1], DISABLE_TIMING));
    if (is(argc, argv, "graph")) {
        OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
        give(s, us, batch, 0);
        OK(cuStreamEndCapture(s, &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphDestroy(graph));
    }
    puts("ready");
    fflush(stdout);
    pthread_create(&listener, NULL, listens, NULL);
    if (loading) {
        CUcontext context;
        OK(cuCtxGetCurrent(&context));
        pthread_create(&loader, NULL, loads, context);
    }
    for (long n = 0; !atomic_load(&ending); n++) {
        if (exec) {
            OK(cuGraphLaunch(exec, s));
            atomic_fetch_add(&given, batch);
        } else {
            give(s, us, batch, 1);
        }
        OK(cuEventRecord(reached[n % 2], s));
        if (joined) {
            OK(cuStreamWaitEvent(joining, reached[n % 2], 0));
            OK(launch_spin(joining, 1));
        }
        if (n > 0) {
            OK(cuEventSynchronize(reached[(n + 1) % 2]));
        }
        printf("%.0f\n", now_ms() * 1e6);
        fflush(stdout);
    }
    pthread_join(listener, NULL);
    if (loading) {
        pthread_join(loader, NULL);
    }
    OK(cuStreamSynchronize(s));
    CHECK("every kernel has run once", (long)*done == atomic_load(&given));
    CHECKS_DONE;
}
