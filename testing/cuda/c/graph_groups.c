/* A graph made ready while all streams are alike is launched in a more urgent one later: graph_groups [LINKS]. Prints
 * "ready", waits for a line, makes the stream, launches the graph there twenty times and waits for each. */
#include "cu.h"

int main(int argc, char **argv)
{
    int links = argc > 1 ? atoi(argv[1]) : 16, least, greatest;
    CUstream s, urgent;
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
    for (int i = 0; i < 20; i++) {
        OK(cuGraphLaunch(exec, urgent));
        OK(cuStreamSynchronize(urgent));
    }
    float sum = 0;
    OK(cuMemcpyDtoHAsync_v2(&sum, x, sizeof sum, urgent));
    OK(cuStreamSynchronize(urgent));
    CHECK("every kernel has run once", sum == 21.0f * (float)links);
    CHECKS_DONE;
}
