/* Graphs made node by node. */
#include "hip.h"

#define N 1000

static int host_calls;

static void host_function(void *data)
{
    host_calls += *(int *)data;
}

int main(void)
{
    need_device();
    hipGraph_t graph = 0, outer = 0;
    hipGraphNode_t set = 0, kernel = 0, out = 0, host = 0, child = 0, none = 0;
    hipGraphExec_t exec = 0;
    float *x = 0, *y = 0, seen[N];
    int two = 2;
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipMalloc(&y, N * sizeof *y));
    OK(run_fill(y, N, 1, 0));
    OK(hipDeviceSynchronize());

    OK(hipGraphCreate(&graph, 0));
    struct set_params clear = {x, 4, 1, 0, 0x40000000 /* 2.0f */, N};
    GIVES("a set", SUCCESS, hipGraphAddMemsetNode(&set, graph, 0, 0, &clear));
    unsigned n = N;
    float a = 3;
    struct kernel_params add = {{256, 1, 1}, 0, &axpy, {BLOCKS(N), 1, 1}, ARGS(&n, &a, &x, &y), 0};
    GIVES("a kernel after it", SUCCESS, hipGraphAddKernelNode(&kernel, graph, &set, 1, &add));
    struct host_params call = {host_function, &two};
    GIVES("a host function", SUCCESS, hipGraphAddHostNode(&host, graph, &kernel, 1, &call));
    GIVES("a copy", SUCCESS, hipGraphAddMemcpyNode1D(&out, graph, &kernel, 1, x, y, N * sizeof *x, DEVICE_TO_DEVICE));
    int kinds[4] = {-1, -1, -1, -1};
    hipGraphNode_t nodes[] = {kernel, out, set, host};
    for (int i = 0; i < 4; i++) {
        OK(hipGraphNodeGetType(nodes[i], &kinds[i]));
    }
    CHECK("kinds are told", kinds[0] == 0 && kinds[1] == 1 && kinds[2] == 2 && kinds[3] == 3);
    size_t count = 0;
    OK(hipGraphGetNodes(graph, 0, &count));
    CHECK("so is their number", count == 4);
    OK(hipGraphCreate(&outer, 0));
    GIVES("a graph in a graph", SUCCESS, hipGraphAddChildGraphNode(&child, outer, &none, 0, graph));
    OK(hipGraphInstantiate(&exec, outer, 0, 0, 0));
    OK(hipGraphLaunch(exec, 0));
    OK(hipGraphLaunch(exec, 0));
    OK(hipDeviceSynchronize());
    OK(hipMemcpy(seen, x, sizeof seen, DEVICE_TO_HOST));
    CHECK("two launches", all_are(seen, N, 13) && host_calls == 4);
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphInstantiate(&exec, graph, 0, 0, 0));
    float four = 4;
    struct kernel_params other = add;
    other.params = ARGS(&n, &four, &x, &y);
    GIVES("other arguments for its kernel", SUCCESS, hipGraphExecKernelNodeSetParams(exec, kernel, &other));
    OK(hipGraphLaunch(exec, 0));
    OK(hipDeviceSynchronize());
    OK(hipMemcpy(seen, y, sizeof seen, DEVICE_TO_HOST));
    CHECK("count at the next launch", all_are(seen, N, 13 + 8));
    GIVES("of a node that is no kernel", INVALID_VALUE, hipGraphExecKernelNodeSetParams(exec, set, &other));
    int updated = -1;
    hipGraphNode_t where = 0;
    GIVES("and back by the graph itself", SUCCESS, hipGraphExecUpdate(exec, graph, &where, &updated));
    OK(hipGraphLaunch(exec, 0));
    OK(hipDeviceSynchronize());
    OK(hipMemcpy(seen, y, sizeof seen, DEVICE_TO_HOST));
    CHECK("is as it was", updated == 0 && all_are(seen, N, 13 + 8 + 6));
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphDestroy(outer));
    OK(hipGraphDestroy(graph));
    CHECK("a graph that is gone", hipGraphInstantiate(&exec, graph, 0, 0, 0) == INVALID_VALUE);
    CHECKS_DONE;
}
