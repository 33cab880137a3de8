/* Nodes of graphs: what they tell of themselves, other parameters for them, before and after a graph is made ready. */
#include "hip.h"

#define N 1000
enum { KERNEL, COPY, SET, HOST };

static float *x, *y, host[N], variable[4];
static hipStream_t stream;

static void add(void *data)
{
    *(int *)data += 1;
}

static void add_ten(void *data)
{
    *(int *)data += 10;
}

static const float *run(hipGraphExec_t exec, const float *from)
{
    OK(hipGraphLaunch(exec, stream));
    OK(hipStreamSynchronize(stream));
    OK(hipMemcpy(host, from, sizeof host, DEVICE_TO_HOST));
    return host;
}

/* The arguments come as copies, by addresses that are the node's own. */
static void change_kernels(void)
{
    hipGraph_t graph = 0, copy = 0;
    hipGraphNode_t set = 0, kernel = 0, cloned = 0;
    hipGraphExec_t exec = 0;
    unsigned n = N, *seen_n;
    float value = 3, other = 4;
    struct set_params clear = {x, 4, 1, 0, 0, N};
    struct kernel_params fills = {{256, 1, 1}, 0, &fill, {BLOCKS(N), 1, 1}, ARGS(&n, &value, &x), 64}, seen;
    OK(hipGraphCreate(&graph, 0));
    OK(hipGraphAddMemsetNode(&set, graph, 0, 0, &clear));
    OK(hipGraphAddKernelNode(&kernel, graph, &set, 1, &fills));
    value = 5; /* too late: it was copied */
    n = 1;
    memset(&seen, 0xff, sizeof seen);
    GIVES("a kernel tells what it is", SUCCESS, hipGraphKernelNodeGetParams(kernel, &seen));
    CHECK("its function and shape", seen.function == (void *)&fill && seen.grid.x == BLOCKS(N) && seen.block.x == 256
                                        && seen.block.z == 1 && seen.shared == 64 && !seen.extra);
    seen_n = seen.params[0];
    CHECK("its arguments", *seen_n == N && *(float *)seen.params[1] == 3 && *(float **)seen.params[2] == x);
    GIVES("of a node that is no kernel", INVALID_VALUE, hipGraphKernelNodeGetParams(set, &seen));
    GIVES("nowhere", INVALID_VALUE, hipGraphKernelNodeGetParams(kernel, 0));
    struct kernel_params wrong = fills;
    wrong.function = 0;
    GIVES("no function", INVALID_VALUE, hipGraphKernelNodeSetParams(kernel, &wrong));
    wrong = fills;
    wrong.block.x = 2000;
    GIVES("too many threads", INVALID_CONFIGURATION, hipGraphKernelNodeSetParams(kernel, &wrong));

    /* What programs do: ask, exchange one argument, give it back. */
    OK(hipGraphClone(&copy, graph));
    OK(hipGraphNodeFindInClone(&cloned, kernel, copy));
    void *exchanged[3] = {seen.params[0], &other, seen.params[2]};
    seen.params = exchanged;
    GIVES("an argument is exchanged", SUCCESS, hipGraphKernelNodeSetParams(kernel, &seen));
    OK(hipGraphKernelNodeGetParams(kernel, &seen));
    CHECK("the others stay", *(unsigned *)seen.params[0] == N && *(float *)seen.params[1] == 4);
    OK(hipGraphKernelNodeGetParams(cloned, &seen));
    CHECK("a clone made before is as it was", *(float *)seen.params[1] == 3);
    OK(hipGraphInstantiate(&exec, graph, 0, 0, 0));
    CHECK("launched with the new one", all_are(run(exec, x), N, 4));
    GIVES("updated from the clone", SUCCESS, hipGraphExecUpdate(exec, copy, &(hipGraphNode_t){0}, &(int){0}));
    CHECK("launched with the old one", all_are(run(exec, x), N, 3));
    hipModule_t module = 0;
    hipFunction_t function = 0;
    OK(hipModuleLoadData(&module, kernel_names));
    OK(hipModuleGetFunction(&function, module, "axpy"));
    float a = 2;
    n = N;
    OK(run_fill(y, N, 1, stream));
    struct kernel_params adds = {{128, 1, 1}, 0, function, {2, 1, 1}, ARGS(&n, &a, &x, &y), 0};
    GIVES("another kernel, a module's", SUCCESS, hipGraphExecKernelNodeSetParams(exec, kernel, &adds));
    CHECK("runs instead", all_are(run(exec, y), N, 1));
    OK(hipMemcpy(host, x, sizeof host, DEVICE_TO_HOST));
    CHECK("on what the first node left", all_are(host, N, 0));
    struct kernel_params unknown = {{64, 1, 1}, 0, &nobody, {1, 1, 1}, ARGS(&n), 0};
    GIVES("one without code here", SUCCESS, hipGraphExecKernelNodeSetParams(exec, kernel, &unknown));
    CHECK("takes its place", all_are(run(exec, y), N, 1));
    OK(hipGraphKernelNodeGetParams(kernel, &seen));
    CHECK("the graph itself is as it was", seen.function == (void *)&fill && *(float *)seen.params[1] == 4);
    unsigned enabled = 7;
    OK(hipGraphExecKernelNodeSetParams(exec, kernel, &fills)); /* value is 5 by now */
    GIVES("a node is switched off", SUCCESS, hipGraphNodeSetEnabled(exec, kernel, 0));
    OK(hipGraphNodeGetEnabled(exec, kernel, &enabled));
    CHECK("it says so and does not run", enabled == 0 && all_are(run(exec, x), N, 0));
    OK(hipGraphNodeSetEnabled(exec, kernel, 1));
    CHECK("and on again", all_are(run(exec, x), N, 5));
    OK(hipGraphExecDestroy(exec));
    OK(hipModuleUnload(module));
    OK(hipGraphDestroy(copy));
    OK(hipGraphDestroy(graph));
}

static void change_copies(void)
{
    hipGraph_t graph = 0;
    hipGraphNode_t copy = 0, box = 0, symbol = 0;
    hipGraphExec_t exec = 0;
    hipMemcpy3DParms seen = {0};
    OK(run_fill(x, N, 6, stream));
    OK(run_fill(y, N, 7, stream));
    OK(hipStreamSynchronize(stream));
    OK(hipGraphCreate(&graph, 0));
    OK(hipGraphAddMemcpyNode1D(&copy, graph, 0, 0, x, y, N * sizeof *x, DEVICE_TO_DEVICE));
    GIVES("a copy tells what it is", SUCCESS, hipGraphMemcpyNodeGetParams(copy, &seen));
    CHECK("in three dimensions", seen.srcPtr.ptr == y && seen.dstPtr.ptr == x && seen.extent.width == sizeof host
                                     && seen.extent.height == 1 && seen.extent.depth == 1
                                     && seen.kind == DEVICE_TO_DEVICE);
    OK(hipGraphInstantiate(&exec, graph, 0, 0, 0));
    CHECK("it copies", all_are(run(exec, x), N, 7));
    OK(run_fill(x, N, 8, stream));
    GIVES("half as much, in the graph", SUCCESS,
          hipGraphMemcpyNodeSetParams1D(copy, x, y, sizeof host / 2, DEVICE_TO_DEVICE));
    CHECK("not in what is ready", all_are(run(exec, x), N, 7));
    OK(run_fill(x, N, 8, stream));
    GIVES("taken over by an update", SUCCESS, hipGraphExecUpdate(exec, graph, &(hipGraphNode_t){0}, &(int){0}));
    run(exec, x);
    CHECK("half is copied", all_are(host, N / 2, 7) && all_are(host + N / 2, N / 2, 8));
    GIVES("the other way in what is ready", SUCCESS,
          hipGraphExecMemcpyNodeSetParams1D(exec, copy, y + N / 2, x + N / 2, sizeof host / 2, DEVICE_TO_DEVICE));
    run(exec, y);
    CHECK("is copied so", all_are(host, N / 2, 7) && all_are(host + N / 2, N / 2, 8));
    GIVES("nothing", INVALID_VALUE, hipGraphExecMemcpyNodeSetParams1D(exec, copy, y, x, 0, DEVICE_TO_DEVICE));
    GIVES("a wrong direction", INVALID_DIRECTION, hipGraphMemcpyNodeSetParams1D(copy, y, x, 4, 9));
    OK(hipGraphExecDestroy(exec));

    /* A box of 3 planes, 4 rows of 5 bytes each, of which one of 2 planes, 2 rows, 3 bytes is copied out. */
    enum { W = 5, H = 4, D = 3 };
    unsigned char from[D][H][W], to[2][2][3];
    for (int i = 0; i < W * H * D; i++) {
        ((unsigned char *)from)[i] = i;
    }
    hipPitchedPtr volume = {0};
    OK(hipMalloc3D(&volume, (hipExtent){W, H, D}));
    hipMemcpy3DParms in = {.srcPtr = {from, W, W, H}, .dstPtr = volume, .extent = {W, H, D}, .kind = HOST_TO_DEVICE};
    hipMemcpy3DParms out = {.srcPtr = volume, .srcPos = {2, 1, 1}, .dstPtr = {to, 3, 3, 2}, .extent = {3, 2, 2},
                            .kind = DEVICE_TO_HOST};
    GIVES("a box goes in", SUCCESS, hipGraphMemcpyNodeSetParams(copy, &in));
    GIVES("and a part of it out", SUCCESS, hipGraphAddMemcpyNode(&box, graph, &copy, 1, &out));
    OK(hipGraphMemcpyNodeGetParams(box, &seen));
    CHECK("as given", seen.srcPos.x == 2 && seen.srcPos.z == 1 && seen.extent.width == 3
                          && seen.kind == DEVICE_TO_HOST);
    float four[4] = {1, 2, 3, 4};
    GIVES("to a variable", SUCCESS,
          hipGraphAddMemcpyNodeToSymbol(&symbol, graph, &box, 1, variable, four, sizeof four, 0, HOST_TO_DEVICE));
    GIVES("past its end", INVALID_VALUE,
          hipGraphMemcpyNodeSetParamsFromSymbol(symbol, host, variable, sizeof variable, 4, DEVICE_TO_HOST));
    OK(hipGraphInstantiate(&exec, graph, 0, 0, 0));
    OK(hipGraphLaunch(exec, stream));
    OK(hipStreamSynchronize(stream));
    int right = 1;
    for (int z = 0; z < 2; z++) {
        for (int row = 0; row < 2; row++) {
            right &= !memcmp(to[z][row], &from[z + 1][row + 1][2], 3);
        }
    }
    CHECK("the right part", right);
    OK(hipMemcpyFromSymbol(host, variable, sizeof four, 0, DEVICE_TO_HOST));
    CHECK("and the variable", !memcmp(host, four, sizeof four));
    GIVES("a box that is ready stays one", INVALID_VALUE, hipGraphExecMemcpyNodeSetParams(exec, box, &out));
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphDestroy(graph));
    OK(hipFree(volume.ptr));
}

static void change_sets_and_hosts(void)
{
    hipGraph_t graph = 0;
    hipGraphNode_t set = 0, call = 0;
    hipGraphExec_t exec = 0;
    int calls = 0;
    struct set_params clear = {x, 4, 1, 0, 0x40000000 /* 2.0f */, N}, seen = {0};
    struct host_params once = {add, &calls}, told = {0};
    OK(hipGraphCreate(&graph, 0));
    OK(hipGraphAddMemsetNode(&set, graph, 0, 0, &clear));
    OK(hipGraphAddHostNode(&call, graph, &set, 1, &once));
    OK(hipGraphInstantiate(&exec, graph, 0, 0, 0));
    GIVES("a set tells what it is", SUCCESS, hipGraphMemsetNodeGetParams(set, &seen));
    CHECK("as given", seen.to == x && seen.unit == 4 && seen.height == 1 && seen.value == clear.value
                          && seen.width == N);
    GIVES("a host function tells what it is", SUCCESS, hipGraphHostNodeGetParams(call, &told));
    CHECK("as given", told.function == add && told.data == &calls);
    clear.value = 0x40400000 /* 3.0f */;
    GIVES("another value in what is ready", SUCCESS, hipGraphExecMemsetNodeSetParams(exec, set, &clear));
    once.function = add_ten;
    GIVES("another function there", SUCCESS, hipGraphExecHostNodeSetParams(exec, call, &once));
    CHECK("both count", all_are(run(exec, x), N, 3) && calls == 10);
    clear.value = 0x40800000 /* 4.0f */;
    GIVES("another value in the graph", SUCCESS, hipGraphMemsetNodeSetParams(set, &clear));
    GIVES("another function there", SUCCESS, hipGraphHostNodeSetParams(call, &once));
    CHECK("not in what is ready", all_are(run(exec, x), N, 3) && calls == 20);
    OK(hipGraphExecUpdate(exec, graph, &(hipGraphNode_t){0}, &(int){0}));
    CHECK("but after an update", all_are(run(exec, x), N, 4) && calls == 30);
    clear.height = 2;
    clear.pitch = 2000;
    clear.width = 500;
    GIVES("a line that is ready becomes no rectangle", INVALID_VALUE,
          hipGraphExecMemsetNodeSetParams(exec, set, &clear));
    clear.unit = 3;
    GIVES("an element of three bytes", INVALID_VALUE, hipGraphMemsetNodeSetParams(set, &clear));
    GIVES("no function", INVALID_VALUE, hipGraphHostNodeSetParams(call, &(struct host_params){0, 0}));
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphDestroy(graph));
}

static hipGraph_t record(float value, unsigned n)
{
    hipGraph_t graph = 0;
    OK(hipStreamBeginCapture(stream, 2));
    OK(hipMemsetAsync(x, 0, N * sizeof *x, stream));
    OK(run_fill(x, n, value, stream));
    OK(launch_as_compiled(&nobody, 4, 64, stream, ARGS(&n)));
    OK(hipMemcpyAsync(y, x, N * sizeof *x, DEVICE_TO_DEVICE, stream));
    OK(hipStreamEndCapture(stream, &graph));
    return graph;
}

/* Nodes that a capture recorded are as those made by hand. */
static void captured(void)
{
    hipGraph_t graph = record(2, N), half = record(9, N / 2), other = 0;
    hipGraphNode_t nodes[4] = {0}, before = 0, where = 0;
    hipGraphExec_t exec = 0;
    size_t count = 4;
    int kinds[4], updated = -1;
    OK(hipGraphGetNodes(graph, nodes, &count));
    for (int i = 0; i < 4; i++) {
        OK(hipGraphNodeGetType(nodes[i], &kinds[i]));
    }
    CHECK("recorded in order",
          count == 4 && kinds[0] == SET && kinds[1] == KERNEL && kinds[2] == KERNEL && kinds[3] == COPY);
    struct kernel_params seen = {0};
    OK(hipGraphKernelNodeGetParams(nodes[1], &seen));
    CHECK("a recorded kernel",
          seen.function == (void *)&fill && seen.grid.x == BLOCKS(N) && *(float *)seen.params[1] == 2);
    OK(hipGraphKernelNodeGetParams(nodes[2], &seen));
    CHECK("one without code here", seen.function == (void *)&nobody && seen.grid.x == 4 && seen.block.x == 64);
    hipMemcpy3DParms copy = {0};
    OK(hipGraphMemcpyNodeGetParams(nodes[3], &copy));
    CHECK("a recorded copy", copy.srcPtr.ptr == x && copy.dstPtr.ptr == y && copy.extent.width == sizeof host);
    struct set_params set = {0};
    OK(hipGraphMemsetNodeGetParams(nodes[0], &set));
    CHECK("a recorded set", set.to == x && set.value == 0 && set.height == 1 && set.unit * set.width == sizeof host);
    count = 1;
    OK(hipGraphNodeGetDependencies(nodes[3], &before, &count));
    CHECK("it waits for the kernel", count == 1 && before == nodes[2]);
    OK(hipGraphNodeGetDependentNodes(nodes[3], 0, &count));
    CHECK("and nobody for it", count == 0);

    OK(hipGraphInstantiate(&exec, graph, 0, 0, 0));
    CHECK("it runs", all_are(run(exec, y), N, 2));
    GIVES("updated from another capture", SUCCESS, hipGraphExecUpdate(exec, half, &where, &updated));
    run(exec, y);
    CHECK("it does as that", updated == 0 && all_are(host, N / 2, 9) && all_are(host + N / 2, N / 2, 0));
    OK(hipStreamBeginCapture(stream, 2));
    OK(run_fill(x, N, 1, stream));
    OK(run_fill(x, N, 1, stream));
    OK(hipMemcpyAsync(y, x, N * sizeof *x, DEVICE_TO_DEVICE, stream));
    OK(hipMemsetAsync(x, 0, N * sizeof *x, stream));
    OK(hipStreamEndCapture(stream, &other));
    GIVES("nodes of other kinds", GRAPH_UPDATE_FAILURE, hipGraphExecUpdate(exec, other, &where, &updated));
    hipGraphNode_t first = 0;
    count = 1;
    OK(hipGraphGetNodes(other, &first, &count));
    CHECK("say which", (updated == 3 && where == first) || on_cuda());
    run(exec, y);
    CHECK("and change nothing", all_are(host, N / 2, 9) && all_are(host + N / 2, N / 2, 0));
    count = 4;
    OK(hipGraphGetNodes(half, nodes, &count));
    GIVES("an edge less", SUCCESS, hipGraphRemoveDependencies(half, &nodes[2], &nodes[3], 1));
    GIVES("is another graph", GRAPH_UPDATE_FAILURE, hipGraphExecUpdate(exec, half, &where, &updated));
    CHECK("by its shape", updated == 2);
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphDestroy(graph));
    OK(hipGraphDestroy(half));
    OK(hipGraphDestroy(other));
    GIVES("a node of a graph that is gone", INVALID_VALUE, hipGraphKernelNodeGetParams(nodes[1], &seen));
}

int main(void)
{
    need_device();
    __hipRegisterVar(fat_handle, variable, "variable", "variable", 0, sizeof variable, 0, 0);
    OK(hipStreamCreateWithFlags(&stream, 1));
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipMalloc(&y, N * sizeof *y));
    change_kernels();
    change_copies();
    change_sets_and_hosts();
    captured();
    OK(hipStreamDestroy(stream));
    CHECKS_DONE;
}
