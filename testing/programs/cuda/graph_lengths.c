/* A graph of long kernels that were launched by themselves before, as CUDA's runtime launches them: kernels of a library, by their
 * handle. After a line on stdin they are launched, recorded and made ready; then it says "ready" and ends with its input. */
#include "cu.h"

enum { KERNELS_OF_A_GRAPH = 12, US = 2000 };

static CUkernel kernel;

static CUresult give(CUstream stream)
{
    uint64_t ns = US * 1000;
    return cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){ &ns }, NULL);
}

int main(void)
{
    CUlibrary library;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    cu_start();
    OK(cuLibraryLoadData(&library, KERNELS, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "spin"));
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    OK(give(stream));
    OK(cuStreamSynchronize(stream));
    puts("attached");
    fflush(stdout);
    if (getchar() == EOF) return 0;
    for (int i = 0; i < 4 * KERNELS_OF_A_GRAPH; i++) OK(give(stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL));
    for (int i = 0; i < KERNELS_OF_A_GRAPH; i++) OK(give(stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuLibraryUnload(library));
    return 0;
}
