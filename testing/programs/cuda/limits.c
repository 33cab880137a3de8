/* Ways to get memory: each is counted as it takes, limited, and counted out. Without a limit (LIMIT_MIB is not set) free memory
 * is the device's own, so that what is counted is compared with what the device has.
 *
 * limits failing: with FAKECUDA_FAIL_CALL, the first call of each way and the first that frees fail, which leaves counts right. */
#include "cu.h"

#include <sys/wait.h>

enum { MIB = 1 << 20, PIECE = 8 * MIB };

static CUstream stream;
static size_t limit, total;

static size_t used(void)
{
    size_t unused = 0;
    OK(cuMemGetInfo_v2(&unused, &total));
    return total - unused;
}

static CUdeviceptr held;
static void *handle;
static CUgraph graph;
static CUmemoryPool pool;

static CUresult plain(size_t bytes) { return cuMemAlloc_v2(&held, bytes); }
static CUresult plain_free(void) { return cuMemFree_v2(held); }
static CUresult freed_in_order(void) { return cuMemFreeAsync(held, stream) || cuStreamSynchronize(stream); }
static CUresult managed(size_t bytes) { return cuMemAllocManaged(&held, bytes, 1); }

static CUresult pitched(size_t bytes)
{
    size_t pitch;
    return cuMemAllocPitch_v2(&held, &pitch, 4000, bytes / 4096, 4);
}

static CUresult ordered(size_t bytes)
{
    CUresult got = cuMemAllocAsync(&held, bytes, stream);
    return got ? got : cuStreamSynchronize(stream);
}

static CUresult of_pool(size_t bytes)
{
    CUresult got = cuMemAllocFromPoolAsync(&held, bytes, pool, stream);
    return got ? got : cuStreamSynchronize(stream);
}

/* What a pool keeps is counted until it is trimmed. */
static CUresult of_pool_free(void)
{
    CUresult got = cuMemFreeAsync(held, stream);
    OK(cuStreamSynchronize(stream));
    return got ? got : cuMemPoolTrimTo(pool, 0);
}

static uint64_t memory;

static CUresult created(size_t bytes)
{
    CUmemAllocationProp properties = {.type = 1, .location = {1, device}};
    return cuMemCreate(&memory, bytes, &properties, 0);
}

static CUresult created_free(void) { return cuMemRelease(memory); }

/* Mapped, and its handle released: the mapping keeps it. */
static CUresult mapped(size_t bytes)
{
    CUresult got = created(bytes);
    if (got)
        return got;
    OK(cuMemAddressReserve(&held, bytes, 0, 0, 0));
    OK(cuMemMap(held, bytes, 0, memory, 0));
    OK(cuMemRelease(memory));
    return 0;
}

static CUresult mapped_free(void)
{
    CUresult got = cuMemUnmap(held, PIECE);
    return got ? got : cuMemAddressFree(held, PIECE);
}

static CUresult retained(size_t bytes)
{
    CUresult got = mapped(bytes);
    if (got)
        return got;
    OK(cuMemRetainAllocationHandle(&memory, (void *)held));
    OK(cuMemUnmap(held, bytes));
    OK(cuMemAddressFree(held, bytes));
    return 0;
}

static CUresult flat_array(size_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR descriptor = {bytes / MIB * 128, 512, 0x20, 4};
    return cuArrayCreate_v2((CUarray *)&handle, &descriptor);
}

static CUresult deep_array(size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {bytes / MIB * 128, 32, 16, 0x20, 4, 0};
    return cuArray3DCreate_v2((CUarray *)&handle, &descriptor);
}

static CUresult array_free(void) { return cuArrayDestroy(handle); }

static CUresult mipmapped(size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {bytes / MIB * 128, 512, 0, 0x20, 4, 0};
    return cuMipmappedArrayCreate((CUarray *)&handle, &descriptor, 1);
}

static CUresult mipmapped_free(void) { return cuMipmappedArrayDestroy(handle); }

static CUresult node(size_t bytes)
{
    CUgraphNode made;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.allocType = 1, .locationType = 1, .locationId = device, .bytesize = bytes};
    OK(cuGraphCreate(&graph, 0));
    CUresult got = cuGraphAddMemAllocNode(&made, graph, NULL, 0, &params);
    if (got)
        OK(cuGraphDestroy(graph));
    return got;
}

static CUresult node_free(void) { return cuGraphDestroy(graph); }

static const struct {
    const char *name;
    CUresult (*take)(size_t), (*give)(void);
} WAYS[] = {
    {"plain", plain, plain_free},
    {"plain, freed in a stream's order", plain, freed_in_order},
    {"pitch", pitched, plain_free},
    {"managed", managed, plain_free},
    {"in a stream's order", ordered, freed_in_order},
    {"in a stream's order, freed plainly", ordered, plain_free},
    {"from a pool that keeps memory", of_pool, of_pool_free},
    {"handle", created, created_free},
    {"mapped, handle released", mapped, mapped_free},
    {"retained, unmapped", retained, created_free},
    {"array", flat_array, array_free},
    {"array of three dimensions", deep_array, array_free},
    {"mipmapped array", mipmapped, mipmapped_free},
    {"node of a graph", node, node_free},
};
enum { COUNT = sizeof WAYS / sizeof *WAYS };

/* Whether memory in use becomes this much: some ways free in their own time. */
static int becomes(size_t wanted)
{
    for (int i = 0; i < 1000; i++) {
        if (used() == wanted)
            return 1;
        OK(cuCtxSynchronize());
        usleep(100);
    }
    return 0;
}

static void each_way(int failing)
{
    for (int i = 0; i < COUNT; i++) {
        size_t before = used();
        if (failing) {
            CUresult got = WAYS[i].take(PIECE);
            check_that(got != 0 && used() == before, "%s: a failure counts nothing", WAYS[i].name);
        }
        check_that(WAYS[i].take(PIECE) == 0, "%s: taken", WAYS[i].name);
        check_that(used() == before + PIECE, "%s: counted", WAYS[i].name);
        if (failing) {
            CUresult got = WAYS[i].give();
            check_that(got != 0 && used() == before + PIECE, "%s: a failure frees nothing", WAYS[i].name);
        }
        check_that(WAYS[i].give() == 0, "%s: freed", WAYS[i].name);
        check_that(becomes(before), "%s: counted out", WAYS[i].name);
        if (failing || !limit)
            continue;
        check_that(WAYS[i].take(limit + 8 * MIB) == OUT_OF_MEMORY && used() == before, "%s: limited", WAYS[i].name);
    }
}

/* Takes pieces until it is refused, and frees them. */
static size_t everything(void)
{
    static CUdeviceptr pieces[4096];
    size_t n = 0;
    while (n < 4096 && cuMemAlloc_v2(&pieces[n], 2 * MIB) == 0)
        n++;
    for (size_t i = 0; i < n; i++)
        OK(cuMemFree_v2(pieces[i]));
    return n * 2 * MIB;
}

/* All that a program can ask tells the same. */
static void agree(void)
{
    struct { unsigned long long total, free, used; } first = {0};
    struct { unsigned version; unsigned long long total, reserved, free, used; } second = {.version = sizeof second | 2u << 24};
    size_t unused, whole;
    OK(cuMemGetInfo_v2(&unused, &total));
    OK(cuDeviceTotalMem_v2(&whole, device));
    CHECK("total memory is the same for both", whole == total && (!limit || total == limit));
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *board;
    if (!library)
        return;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*one)(void *, void *) = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    int (*two)(void *, void *) = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    CHECK("the management library answers", !init() && !by_index(0, &board) && !one(board, &first) && !two(board, &second));
    CHECK("its first version agrees", first.total == total && first.free == unused && first.used == total - unused);
    CHECK("its second version agrees", second.total == total && second.free == unused && second.used == total - unused);
}

/* Memory that was freed in the order of a stream is had again, without a synchronisation by the program. */
static void in_turn(void)
{
    CUdeviceptr p;
    int got = 0;
    uint64_t ns = 1000000;
    void *arguments[] = {&ns};
    for (int i = 0; i < 16 && !got; i++) {
        got = cuMemAllocAsync(&p, PIECE, stream);
        if (!got) {
            OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
            OK(cuMemFreeAsync(p, stream));
        }
    }
    CHECK("freed memory is had again at once", !got);
    OK(cuStreamSynchronize(stream));
}

static void contexts(void)
{
    CUcontext other, popped;
    size_t before = used();
    CUdeviceptr p;
    OK(cuCtxCreate_v2(&other, 0, device));
    OK(cuMemAlloc_v2(&p, PIECE));
    OK(cuMemAlloc_v2(&p, 4096));
    CHECK("counted in another context", used() >= before + PIECE + 4096);
    OK(cuCtxPopCurrent_v2(&popped));
    OK(cuCtxDestroy_v2(other));
    OK(cuCtxSetCurrent(context));
    CHECK("a context's memory ends with it", becomes(before));
    OK(cuMemAlloc_v2(&p, PIECE));
    OK(cuStreamDestroy_v2(stream));
    OK(cuDevicePrimaryCtxReset_v2(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    CHECK("and that of the primary context", becomes(before));
}

int main(int argc, char **argv)
{
    const char *text = getenv("LIMIT_MIB");
    int failing = argc > 1 && !strcmp(argv[1], "failing"), status = 0;
    limit = text ? strtoull(text, NULL, 10) * MIB : 0;
    int pipe_of[2];
    char byte;
    if (pipe(pipe_of))
        return 3;
    pid_t child = fork();
    /* A child that could write itself would wait for ever for a parent that has failed. */
    if (!child && (close(pipe_of[1]) || read(pipe_of[0], &byte, 1) != 1))
        return 3;
    cu_start();
    CUmemPoolProps properties = {.allocType = 1, .location = {1, device}};
    uint64_t keep = UINT64_MAX;
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemPoolSetAttribute(pool, 4, &keep));
    size_t before = used();
    if (!child) {
        CHECK("a forked process counts for itself", !limit || before == 0);
        return checks_failed;
    }
    each_way(failing);

    void *pinned;
    static char own[65536] __attribute__((aligned(4096)));
    OK(cuMemHostAlloc(&pinned, PIECE, 0));
    OK(cuMemHostRegister_v2(own, sizeof own, 0));
    CHECK("pinned memory is not the device's", used() == before);
    OK(cuMemHostUnregister(own));
    OK(cuMemFreeHost(pinned));
    GIVES("an address that is none", INVALID_VALUE, cuMemFree_v2(0x12345000));
    GIVES("no address", SUCCESS, cuMemFree_v2(0));
    GIVES("none", INVALID_VALUE, cuMemAlloc_v2(&held, 0));
    GIVES("more than there can be", OUT_OF_MEMORY, cuMemAlloc_v2(&held, SIZE_MAX - 4096));
    CHECK("errors count nothing", used() == before);

    in_turn();
    CHECK("and counted out", becomes(before));
    size_t most = everything(), again = everything();
    CHECK("all of it, twice", most == again && used() == before);
    CHECK("as much as there is", most / (4 * MIB) == (total - before) / (4 * MIB));
    OK(cuMemAlloc_v2(&held, 3 * PIECE));
    agree();
    GIVES("as it was", SUCCESS, cuMemFree_v2(held));
    if (write(pipe_of[1], "x", 1) != 1)
        return 3;
    CHECK("the child ends well", waitpid(child, &status, 0) == child && !status);
    contexts();
    CHECKS_DONE;
}
