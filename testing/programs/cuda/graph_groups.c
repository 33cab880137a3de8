/* A graph made ready while all streams are alike is launched in a more urgent one later: graph_groups [LINKS]. Prints
 * "ready", waits for a line, and from then on has a thread that keeps the first stream busy. Makes the urgent stream,
 * launches the graph there so many times, waits for each, and prints the median wait in ms. */
#include "cu.h"

enum { TIMES = 21 };

static CUstream s;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *busy(void *unused)
{
    cuCtxSetCurrent(context);
    /* Until the program ends, which it may do at any moment. */
    while (launch_spin(s, 200) == SUCCESS && cuStreamSynchronize(s) == SUCCESS) {
    }
    return unused;
}

int main(int argc, char **argv)
{
    int links = argc > 1 ? atoi(argv[1]) : 16, least, greatest;
    CUstream urgent;
    pthread_t thread;
    double waits[TIMES];
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr x;
    char line[32];
    cu_start();
    OK(cuMemAlloc_v2(&x, 4 * sizeof(float)));
    OK(cuMemsetD32_v2(x, 0, 4));
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(launch_fill(s, x + 8, 1, 1));
    OK(cuStreamSynchronize(s));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    for (int i = 0; i < links; i++) {
        OK(launch_axpy(s, x, x + 8, 1, 1));
    }
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) {
        return 1;
    }
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    OK(cuStreamCreateWithPriority(&urgent, NON_BLOCKING, greatest));
    pthread_create(&thread, NULL, busy, NULL);
    for (int i = 0; i < TIMES; i++) {
        usleep(2000); /* others get on meanwhile */
        double begin = now_ms();
        OK(cuGraphLaunch(exec, urgent));
        OK(cuStreamSynchronize(urgent));
        waits[i] = now_ms() - begin;
    }
    qsort(waits, TIMES, sizeof *waits, by_value);
    printf("%.3f\n", waits[TIMES / 2]);
    float sum = 0;
    OK(cuMemcpyDtoHAsync_v2(&sum, x, sizeof sum, urgent));
    OK(cuStreamSynchronize(urgent));
    CHECK("every kernel has run once", sum == (TIMES + 1.0f) * (float)links);
    CHECKS_DONE;
}
