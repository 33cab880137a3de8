/* Graphs: captured and built, launched, nested, with copies, sets, host functions and gates in them. */
#include "cu.h"

enum { N = 512 };

static CUstream s;
static CUdeviceptr x;

static void bump(void *count) { ++*(int *)count; }

static void captured(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr at, pinned_at;
    int host_calls = 0;
    float pageable[N], back[N], *pin = pinned(N * 4, &pinned_at);
    volatile uint64_t *page = shared_page(&at);
    for (int i = 0; i < N; i++) {
        pin[i] = 3;
    }
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(cuMemcpyHtoDAsync_v2(x, pin, N * 4, s));
    OK(launch_axpy(s, x, x, N, 1));
    OK(cuMemsetD32Async(x, 0, 1, s));
    OK(cuLaunchHostFunc(s, bump, &host_calls));
    OK(cuStreamWriteValue32_v2(s, at, 17, 0));
    OK(cuStreamWaitValue32_v2(s, at + 8, 1, WAIT_EQ));
    OK(launch_axpy(s, x, x, N, 1));
    OK(cuMemcpyDtoHAsync_v2(pin, x, N * 4, s));
    GIVES("capture of many kinds", SUCCESS, cuStreamEndCapture(s, &graph));
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK("eight nodes", count == 8);
    GIVES("instantiate", SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    page[0] = page[1] = 0;
    GIVES("launch", SUCCESS, cuGraphLaunch(exec, s));
    while (page[0] == 0) {
        usleep(100);
    }
    GIVES("held inside by a word", NOT_READY, cuStreamQuery(s));
    page[1] = 1;
    GIVES("and let go", SUCCESS, cuStreamSynchronize(s));
    CHECK("its effects", pin[0] == 0 && pin[1] == 12 && pin[N - 1] == 12 && host_calls == 1 && page[0] == 17);
    for (int i = 0; i < 9; i++) {
        OK(cuGraphLaunch(exec, s));
    }
    OK(cuStreamSynchronize(s));
    CHECK("ten launches", host_calls == 10 && pin[1] == 12 * pow(4, 9));
    GIVES("destroy", SUCCESS, cuGraphExecDestroy(exec));

    /* Pageable memory is read and written at the launch. */
    for (int i = 0; i < N; i++) {
        pageable[i] = 1;
        back[i] = 0;
    }
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(cuMemcpyHtoDAsync_v2(x, pageable, N * 4, s));
    OK(launch_axpy(s, x, x, N, 1));
    OK(cuMemcpyDtoHAsync_v2(back, x, N * 4, s));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    pageable[0] = 5;
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK("pageable memory", back[0] == 10 && back[1] == 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeHost(pin));
}

static CUDA_KERNEL_NODE_PARAMS kernel_node(CUfunction function, void **arguments)
{
    return (CUDA_KERNEL_NODE_PARAMS){ .func = function, .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64,
                                      .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments };
}

static void built(void)
{
    CUgraph graph, child;
    CUgraphExec exec;
    CUgraphNode first, second, third, host, nested;
    int calls = 0, type = -1;
    unsigned n = N;
    float v = 1, a = 1;
    OK(cuGraphCreate(&graph, 0));
    CUDA_KERNEL_NODE_PARAMS node = kernel_node(fill, (void *[]){ &n, &v, &x });
    GIVES("a kernel node", SUCCESS, cuGraphAddKernelNode_v2(&first, graph, NULL, 0, &node));
    v = 100; /* the arguments were taken */
    node = kernel_node(axpy, (void *[]){ &n, &a, &x, &x });
    GIVES("after it another", SUCCESS, cuGraphAddKernelNode_v2(&second, graph, &first, 1, &node));
    GIVES("an empty node", SUCCESS, cuGraphAddEmptyNode(&third, graph, &second, 1));
    CUDA_HOST_NODE_PARAMS call = { bump, &calls };
    GIVES("a host node", SUCCESS, cuGraphAddHostNode(&host, graph, &third, 1, &call));
    OK(cuGraphNodeGetType(second, &type));
    CHECK("type of a kernel node", type == 0);
    OK(cuGraphNodeGetType(host, &type));
    CHECK("type of a host node", type == 3);

    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(launch_axpy(s, x, x, N, 1));
    OK(cuStreamEndCapture(s, &child));
    GIVES("a graph in a graph", SUCCESS, cuGraphAddChildGraphNode(&nested, graph, &host, 1, child));
    GIVES("instantiate", SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    GIVES("launch", SUCCESS, cuGraphLaunch(exec, s));
    GIVES("synchronize", SUCCESS, cuStreamSynchronize(s));
    CHECK("its effects", all_are(x, N, 4) && calls == 1);

    CUgraph outer = NULL;
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    GIVES("no launch is captured", CAPTURE_UNSUPPORTED, cuGraphLaunch(exec, s));
    CHECK("which spoils the capture", cuStreamEndCapture(s, &outer) == CAPTURE_INVALIDATED && calls == 1);
    OK(cuGraphLaunch(exec, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK("in the legacy stream", all_are(x, N, 4) && calls == 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(child));
}

int main(void)
{
    cu_start();
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuMemAlloc_v2(&x, N * 4));
    captured();
    built();
    CHECKS_DONE;
}
