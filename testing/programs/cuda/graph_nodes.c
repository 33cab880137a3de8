/* Executable graphs that are changed after they were made ready: by the nodes of the graph that they were made of, and
 * by whole graphs; graphs that fork and join; graphs that cannot be cloned; every way to make one ready. Whoever changes
 * graphs on their way into the driver must not be noticed here. */
#include "cu.h"

enum { N = 256, LINKS = 24, BRANCH = 5 };

static CUstream s, other;
static CUdeviceptr x, y, z;
static unsigned n = N;

static CUDA_KERNEL_NODE_PARAMS shaped(CUfunction function, void **arguments)
{
    return (CUDA_KERNEL_NODE_PARAMS){ .func = function, .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64,
                                      .blockDimY = 1, .blockDimZ = 1, .kernelParams = arguments };
}

/* A node that adds a times `from` to `to`. */
static CUgraphNode add_axpy(CUgraph graph, CUgraphNode *after, size_t count, float a, CUdeviceptr from, CUdeviceptr to)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = shaped(axpy, (void *[]){ &n, &a, &from, &to });
    OK(cuGraphAddKernelNode_v2(&node, graph, after, count, &params));
    return node;
}

static CUgraphNode add_fill(CUgraph graph, CUgraphNode *after, size_t count, float v, CUdeviceptr to)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params = shaped(fill, (void *[]){ &n, &v, &to });
    OK(cuGraphAddKernelNode_v2(&node, graph, after, count, &params));
    return node;
}

/* y = 0, then LINKS times y += a x, one after the other. */
static CUgraph chain_of(int links, float a, CUgraphNode *nodes)
{
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode last = add_fill(graph, NULL, 0, 0, y);
    for (int i = 0; i < links; i++) {
        last = add_axpy(graph, &last, 1, a, x, y);
        if (nodes) {
            nodes[i] = last;
        }
    }
    return graph;
}

static int chain_gives(CUgraphExec exec, float wanted)
{
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    return all_are(y, N, wanted);
}

static void by_nodes(void)
{
    CUgraphNode nodes[LINKS];
    CUgraph graph = chain_of(LINKS, 1, nodes);
    CUgraphExec exec;
    unsigned enabled = 7;
    GIVES("a chain made ready", SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK("a chain", chain_gives(exec, LINKS));

    float a = 11;
    CUDA_KERNEL_NODE_PARAMS params = shaped(axpy, (void *[]){ &n, &a, &x, &y });
    GIVES("a kernel of it changed", SUCCESS, cuGraphExecKernelNodeSetParams_v2(exec, nodes[LINKS / 2], &params));
    GIVES("and its last", SUCCESS, cuGraphExecKernelNodeSetParams_v2(exec, nodes[LINKS - 1], &params));
    CHECK("as changed", chain_gives(exec, LINKS + 20));
    GIVES("one is switched off", SUCCESS, cuGraphNodeSetEnabled(exec, nodes[LINKS / 2], 0));
    GIVES("which it says", SUCCESS, cuGraphNodeGetEnabled(exec, nodes[LINKS / 2], &enabled));
    CHECK("off", enabled == 0);
    CHECK("without it", chain_gives(exec, LINKS + 9));
    GIVES("on again", SUCCESS, cuGraphNodeSetEnabled(exec, nodes[LINKS / 2], 1));
    CHECK("with it", chain_gives(exec, LINKS + 20));
    GIVES("destroyed", SUCCESS, cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void twice(void *number) { *(int *)number *= 2; }
static void plus(void *number) { *(int *)number += 3; }

static void forks(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode ends[3], host;
    int number = 1;
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode first = add_fill(graph, NULL, 0, 0, y), second = add_fill(graph, NULL, 0, 0, z);
    CUDA_HOST_NODE_PARAMS call = { twice, &number };
    OK(cuGraphAddHostNode(&host, graph, (CUgraphNode[]){ first, second }, 2, &call));
    ends[0] = first, ends[1] = second, ends[2] = host;
    for (int i = 0; i < BRANCH; i++) {
        ends[0] = add_axpy(graph, &ends[0], 1, 2, x, y);
        ends[1] = add_axpy(graph, &ends[1], 1, 3, x, z);
    }
    CUgraphNode join = add_axpy(graph, ends, 3, 1, z, y);
    OK(cuGraphAddEmptyNode(&join, graph, &join, 1));
    add_axpy(graph, &join, 1, 1, x, y);
    GIVES("branches made ready", SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK("branches and their join", chain_gives(exec, BRANCH * 5 + 1) && number == 2);
    call.fn = plus;
    GIVES("a host node changed", SUCCESS, cuGraphExecHostNodeSetParams(exec, host, &call));
    CHECK("the other function", chain_gives(exec, BRANCH * 5 + 1) && number == 5);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void ways(void)
{
    CUgraph graph = chain_of(LINKS, 1, NULL), child;
    CUgraphExec exec;
    uint64_t flags = 99;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = { .flags = 8, .result_out = 77 };
    GIVES("with parameters", SUCCESS, cuGraphInstantiateWithParams(&exec, graph, &params));
    CHECK("and what came of it", params.result_out == 0);
    GIVES("its flags", SUCCESS, cuGraphExecGetFlags(exec, &flags));
    /* Drivers differ in what they tell of those that only matter while it is made. */
    printf("ok as the driver has them: %llu\n", (unsigned long long)flags);
    GIVES("uploaded", SUCCESS, cuGraphUpload(exec, other));
    for (int i = 0; i < 6; i++) {
        OK(cuGraphLaunch(exec, i % 2 ? other : s));
    }
    OK(cuStreamSynchronize(s));
    OK(cuStreamSynchronize(other));
    CHECK("in two streams by turns", chain_gives(exec, LINKS));
    OK(cuGraphExecDestroy(exec));

    GIVES("for launches by the device", SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 4));
    CHECK("which the host may launch, too", chain_gives(exec, LINKS));
    OK(cuGraphExecDestroy(exec));

    CUgraphNode nested, node;
    OK(cuGraphCreate(&child, 0));
    node = add_fill(child, NULL, 0, 7, y);
    OK(cuGraphAddChildGraphNode(&nested, child, &node, 1, graph));
    add_axpy(child, &nested, 1, 5, x, y);
    GIVES("a graph in a graph", SUCCESS, cuGraphInstantiateWithFlags(&exec, child, 0));
    CHECK("runs whole", chain_gives(exec, LINKS + 5));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(child));
    OK(cuGraphDestroy(graph));
}

static void memory(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = { .allocType = 1, .locationType = 1, .locationId = device, .bytesize = N * 4 };
    OK(cuGraphCreate(&graph, 0));
    GIVES("a node that allocates", SUCCESS, cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    node = add_fill(graph, &node, 1, 6, alloc.dptr);
    node = add_fill(graph, &node, 1, 0, y);
    node = add_axpy(graph, &node, 1, 2, alloc.dptr, y);
    GIVES("and one that frees", SUCCESS, cuGraphAddMemFreeNode(&node, graph, &node, 1, alloc.dptr));
    GIVES("made ready", SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK("memory of its own", chain_gives(exec, 12) && chain_gives(exec, 12));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

/* Last, for these fail. */
static void by_graphs(void)
{
    CUgraph graph = chain_of(LINKS, 1, NULL), next = chain_of(LINKS, 2, NULL), longer = chain_of(LINKS + 1, 1, NULL);
    CUgraphNode nodes[LINKS];
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info = { .result = 55 };
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    GIVES("updated", SUCCESS, cuGraphExecUpdate_v2(exec, next, &info));
    CHECK("which it says", info.result == 0);
    CHECK("as the other graph", chain_gives(exec, 2 * LINKS));
    GIVES("and back", SUCCESS, cuGraphExecUpdate_v2(exec, graph, &info));
    CHECK("as it was", chain_gives(exec, LINKS));
    GIVES("not by a longer one", GRAPH_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, longer, &info));
    CHECK("of another topology", info.result == 2 && info.errorNode == NULL);
    CHECK("it is as it was", chain_gives(exec, LINKS));

    CUgraph strange = chain_of(LINKS - 1, 1, nodes);
    CUgraphNode host;
    int number = 1;
    CUDA_HOST_NODE_PARAMS call = { twice, &number };
    OK(cuGraphAddHostNode(&host, strange, &nodes[LINKS - 2], 1, &call));
    GIVES("nor by one with another node", GRAPH_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, strange, &info));
    CHECK("of another type", info.result == 3);
    CHECK("namely this one", info.errorNode == host);
    CHECK("it is as it was still", chain_gives(exec, LINKS));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&exec, strange, 0));
    CHECK("made ready anew", chain_gives(exec, LINKS - 1) && number == 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(next));
    OK(cuGraphDestroy(longer));
    OK(cuGraphDestroy(strange));
}

/* Kernels that may begin before the one ahead ends, as libraries launch them where they know each other. */
static void programmatic(void)
{
    CUgraph graph;
    CUgraphExec exec;
    const unsigned char data[8] = { 1, 0, 1 }; /* from the programmatic port, of that type */
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode first = add_fill(graph, NULL, 0, 5, y), second = add_fill(graph, NULL, 0, 6, z);
    GIVES("a programmatic edge", SUCCESS, cuGraphAddDependencies_v2(graph, &first, &second, data, 1));
    GIVES("made ready", SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK("both have run", all_are(y, N, 5) && all_are(z, N, 6));
    GIVES("destroyed", SUCCESS, cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

int main(void)
{
    cu_start();
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuStreamCreate(&other, NON_BLOCKING));
    OK(cuMemAlloc_v2(&x, N * 4));
    OK(cuMemAlloc_v2(&y, N * 4));
    OK(cuMemAlloc_v2(&z, N * 4));
    OK(launch_fill(s, x, N, 1));
    OK(cuStreamSynchronize(s));
    by_nodes();
    forks();
    programmatic();
    ways();
    memory();
    by_graphs();
    CHECKS_DONE;
}
