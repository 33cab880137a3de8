/* Memory of kinds that the driver holds together: pools, graphs, what others may use. A line is answered by "done RESULT":
 *
 *   create, destroy, trim        a pool that keeps memory
 *   pool MIB, order MIB, back    allocates from it, or from the one in use; frees the last of these, and waits
 *   small                        allocates pieces of 64 KiB in order until one is refused: "done NUMBER"
 *   pairs N                      allocates 64 KiB in order and frees them, as often
 *   take MIB                     allocates plainly
 *   node MIB, capture KIB        a graph with memory, made of nodes, or executable of what is captured
 *   ungraph                      destroys the last of these
 *   share, unshare               2 MiB plain and 2 MiB behind a handle, exported twice; one step of their end at a time
 *   host, unhost                 2 MiB of the host behind a handle, and 1 MiB pinned; their end
 *   reset                        ends the primary context with all that is in it, and makes it anew
 *   tell                         free memory is asked for: "done MIB" */
#include "cu.h"

enum { MIB = 1 << 20, MOST = 4096 };

static CUstream stream;
static CUmemoryPool pool;
static CUdeviceptr held[MOST], plain;
static int count, step;
static CUgraph graph;
static CUgraphExec exec;
static uint64_t handle;

static CUresult keep(CUresult got)
{
    count += !got;
    return got;
}

static CUresult create(void)
{
    CUmemPoolProps properties = {.allocType = 1, .location = {1, device}};
    uint64_t all = UINT64_MAX;
    CUresult got = cuMemPoolCreate(&pool, &properties);
    return got ? got : cuMemPoolSetAttribute(pool, 4, &all);
}

static CUresult back(void)
{
    CUresult got = cuMemFreeAsync(held[--count], stream);
    OK(cuStreamSynchronize(stream));
    return got;
}

static int small(void)
{
    int before = count;
    while (count < MOST && !keep(cuMemAllocAsync(&held[count], 64 << 10, stream)))
        ;
    return count - before;
}

static CUresult pairs(unsigned long n)
{
    CUdeviceptr p;
    for (; n > 0; n--) {
        OK(cuMemAllocAsync(&p, 64 << 10, stream));
        OK(cuMemFreeAsync(p, stream));
    }
    return cuStreamSynchronize(stream);
}

static CUresult node(size_t bytes)
{
    CUgraphNode made;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.allocType = 1, .locationType = 1, .locationId = device, .bytesize = bytes};
    OK(cuGraphCreate(&graph, 0));
    return cuGraphAddMemAllocNode(&made, graph, NULL, 0, &params);
}

static CUresult capture(size_t bytes)
{
    CUdeviceptr p;
    CUgraph captured;
    OK(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    CUresult got = cuMemAllocAsync(&p, bytes, stream);
    OK(cuStreamEndCapture(stream, &captured));
    if (!got) OK(cuGraphInstantiateWithFlags(&exec, captured, 0));
    OK(cuGraphDestroy(captured));
    return got;
}

static CUresult ungraph(void)
{
    CUresult got = exec ? cuGraphExecDestroy(exec) : cuGraphDestroy(graph);
    exec = NULL;
    return got;
}

static void share(void)
{
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = 1, .location = {1, device}};
    CUresult (*ipc)(void *, CUdeviceptr);
    uint64_t bytes[8];
    int file;
    OK(cuGetProcAddress("cuIpcGetMemHandle", (void **)&ipc, 12000, 0));
    OK(cuMemAlloc_v2(&plain, 2 * MIB));
    for (int n = 0; n < 2; n++)
        OK(ipc(bytes, plain + 4096));
    OK(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    for (int n = 0; n < 2; n++)
        OK(cuMemExportToShareableHandle(&file, handle, 1, 0));
}

static CUresult end_share(void) { return step++ == 0 ? cuMemRelease(handle) : cuMemFree_v2(plain); }

static void *page;

static CUresult host(void)
{
    CUmemAllocationProp properties = {.type = 1, .location = {3, 0}};
    CUresult got = cuMemCreate(&handle, 2 * MIB, &properties, 0);
    return got ? got : cuMemHostAlloc(&page, MIB, 0);
}

static CUresult unhost(void)
{
    CUresult got = cuMemRelease(handle);
    return got ? got : cuMemFreeHost(page);
}

static CUresult reset(void)
{
    CUresult got = cuDevicePrimaryCtxReset_v2(device);
    count = 0;
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    return got;
}

static size_t tell(void)
{
    size_t unused, total;
    OK(cuMemGetInfo_v2(&unused, &total));
    return unused / MIB;
}

int main(void)
{
    char word[16];
    unsigned long n;
    CUdeviceptr p;
    cu_start();
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    puts("ready");
    fflush(stdout);
    while (scanf("%15s %lu", word, &n) == 2 && strcmp(word, "end")) {
        long got = -1;
        if (!strcmp(word, "create")) got = create();
        else if (!strcmp(word, "destroy")) got = cuMemPoolDestroy(pool);
        else if (!strcmp(word, "trim")) got = cuMemPoolTrimTo(pool, 0);
        else if (!strcmp(word, "pool")) got = keep(cuMemAllocFromPoolAsync(&held[count], n * MIB, pool, stream));
        else if (!strcmp(word, "order")) got = keep(cuMemAllocAsync(&held[count], n * MIB, stream));
        else if (!strcmp(word, "back")) got = back();
        else if (!strcmp(word, "small")) got = small();
        else if (!strcmp(word, "pairs")) got = pairs(n);
        else if (!strcmp(word, "take")) got = cuMemAlloc_v2(&p, n * MIB);
        else if (!strcmp(word, "node")) got = node(n * MIB);
        else if (!strcmp(word, "capture")) got = capture(n << 10);
        else if (!strcmp(word, "ungraph")) got = ungraph();
        else if (!strcmp(word, "share")) share(), got = 0;
        else if (!strcmp(word, "unshare")) got = end_share();
        else if (!strcmp(word, "host")) got = host();
        else if (!strcmp(word, "unhost")) got = unhost();
        else if (!strcmp(word, "reset")) got = reset();
        else if (!strcmp(word, "tell")) got = (long)tell();
        printf("done %ld\n", got);
        fflush(stdout);
    }
    return checks_failed;
}
