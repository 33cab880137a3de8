/* Memory of every kind that may move, made, written, copied and freed at random by several threads, with contents that are known. Prints
 * the same whether memory moves or not. Arguments: steps of each thread (200), threads (3), first number of the random ones (1), pieces of memory of each
 * thread (6), number of kinds of memory (6; 5: without that which a program maps itself). */
#include "cu.h"

enum { MIB = 1 << 20, UNIT = 2 * MIB, SLOTS = 16, WINDOW = 1024 };
enum { PLAIN, PITCHED, POOLED, OWN_POOL, SMALL, MAPPED, KINDS };

#define MORE(F) F(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))
MORE(CU_DECLARE)

typedef struct {
    int kind; /* -1: none */
    CUdeviceptr at;
    size_t bytes, reserved;
    uint64_t handle;
    float value;
} Slot;

static CUmemoryPool own;
static int steps = 200, threads = 3, pieces = 6, kinds = KINDS;
static unsigned long first = 1;
static int wrong[16], launched[16];

static unsigned next(unsigned long *random, unsigned below)
{
    *random = *random * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(*random >> 33) % below;
}

/* Windows at the ends and in the middle of memory. */
static CUdeviceptr window(const Slot *slot, int which)
{
    size_t last = slot->bytes - WINDOW * 4;
    return slot->at + (which == 0 ? 0 : which == 1 ? last / 2 / 512 * 512 : last / 512 * 512);
}

static void map(Slot *slot, CUdeviceptr at)
{
    CUmemAccessDesc both = {.location = {1, device}, .flags = 3};
    OK(cuMemMap(at, slot->reserved, 0, slot->handle, 0));
    OK(cuMemSetAccess(at, slot->reserved, &both, 1));
}

static void make(Slot *slot, unsigned long *random, CUstream stream)
{
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = next(random, 2), .location = {1, device}};
    size_t pitch;
    slot->kind = next(random, kinds);
    slot->bytes = UNIT + next(random, 4) * 600 * 1024;
    switch (slot->kind) {
    case PLAIN: OK(cuMemAlloc_v2(&slot->at, slot->bytes)); break;
    case PITCHED:
        OK(cuMemAllocPitch_v2(&slot->at, &pitch, 2000, slot->bytes / 2048, 4));
        slot->bytes = slot->bytes / 2048 * pitch;
        break;
    case POOLED: OK(cuMemAllocAsync(&slot->at, slot->bytes, stream)); break;
    case OWN_POOL: OK(cuMemAllocFromPoolAsync(&slot->at, slot->bytes / 4, own, stream)); slot->bytes /= 4; break;
    case SMALL: OK(cuMemAlloc_v2(&slot->at, slot->bytes = 64 * 1024)); break;
    default:
        slot->reserved = (slot->bytes + UNIT - 1) / UNIT * UNIT;
        OK(cuMemAddressReserve(&slot->at, 2 * slot->reserved, 0, 0, 0));
        OK(cuMemCreate(&slot->handle, slot->reserved, &properties, 0));
        map(slot, slot->at);
    }
}

static void drop(Slot *slot, unsigned long *random, CUstream stream)
{
    switch (slot->kind) {
    case PLAIN: case PITCHED: case SMALL:
        OK(next(random, 2) ? cuMemFree_v2(slot->at) : cuMemFreeAsync(slot->at, stream));
        break;
    case POOLED: case OWN_POOL:
        OK(next(random, 4) ? cuMemFreeAsync(slot->at, stream) : cuMemFree_v2(slot->at));
        break;
    default:
        OK(cuStreamSynchronize(stream));
        OK(cuMemUnmap(slot->at, slot->reserved));
        OK(cuMemRelease(slot->handle));
        OK(cuMemAddressFree(slot->at, 2 * slot->reserved));
    }
    slot->kind = -1;
}

/* Memory that was mapped by hand: mapped elsewhere, twice, retained, exported. */
static void turn(Slot *slot, unsigned long *random, CUstream stream)
{
    uint64_t again, imported;
    CUdeviceptr second = slot->at + slot->reserved;
    CUmemAccessDesc both = {.location = {1, device}, .flags = 3};
    int fd = -1;
    OK(cuStreamSynchronize(stream));
    switch (next(random, 4)) {
    case 0: /* Unmapped, mapped again. */
        OK(cuMemUnmap(slot->at, slot->reserved));
        map(slot, slot->at);
        break;
    case 1: /* Seen through another mapping. */
        map(slot, second);
        OK(launch_fill(stream, second, WINDOW, slot->value));
        OK(cuStreamSynchronize(stream));
        OK(cuMemUnmap(second, slot->reserved));
        break;
    case 2: /* The handle goes and comes back. */
        OK(cuMemRelease(slot->handle));
        OK(cuMemRetainAllocationHandle(&again, (void *)slot->at));
        slot->handle = again;
        break;
    default:
        if (cuMemExportToShareableHandle(&fd, slot->handle, 1, 0) != SUCCESS) return;
        OK(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd, 1));
        close(fd);
        OK(cuMemMap(second, slot->reserved, 0, imported, 0));
        OK(cuMemSetAccess(second, slot->reserved, &both, 1));
        OK(launch_fill(stream, second, WINDOW, slot->value));
        OK(cuStreamSynchronize(stream));
        OK(cuMemUnmap(second, slot->reserved));
        OK(cuMemRelease(imported));
    }
}

static void *work(void *argument)
{
    int self = (int)(intptr_t)argument;
    unsigned long random = first * 1000003 + self;
    CUstream streams[2];
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr counter;
    Slot slots[SLOTS];
    float count = 0;
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++) OK(cuStreamCreate(&streams[i], NON_BLOCKING));
    for (int i = 0; i < pieces; i++) slots[i].kind = -1;
    /* A graph that adds 1 to each element of its memory. */
    OK(cuMemAlloc_v2(&counter, UNIT));
    OK(launch_fill(streams[0], counter, WINDOW, 0));
    OK(launch_fill(streams[0], counter + MIB, WINDOW, 1));
    OK(cuStreamSynchronize(streams[0]));
    OK(cuStreamBeginCapture_v2(streams[0], CAPTURE_THREAD_LOCAL));
    OK(launch_axpy(streams[0], counter, counter + MIB, WINDOW, 1));
    OK(cuStreamEndCapture(streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int step = 0; step < steps; step++) {
        Slot *slot = &slots[next(&random, pieces)], *other = &slots[next(&random, pieces)];
        CUstream stream = streams[next(&random, 2)];
        int which = next(&random, 3);
        float value = (float)(step * threads + self);
        if (slot->kind < 0) {
            make(slot, &random, stream);
            for (int i = 0; i < 3; i++) OK(launch_fill(stream, window(slot, i), WINDOW, value));
            slot->value = value;
            /* Other streams use it, too. */
            OK(cuStreamSynchronize(stream));
            continue;
        }
        switch (next(&random, 6)) {
        case 0: drop(slot, &random, stream); break;
        case 1:
            for (int i = 0; i < 3; i++) OK(launch_fill(stream, window(slot, i), WINDOW, value));
            slot->value = value;
            OK(cuStreamSynchronize(stream));
            break;
        case 2:
            if (other->kind < 0) break;
            for (int i = 0; i < 3; i++) OK(cuMemcpyDtoDAsync_v2(window(slot, i), window(other, which), WINDOW * 4, stream));
            slot->value = other->value;
            OK(cuStreamSynchronize(stream));
            break;
        case 3:
            OK(cuGraphLaunch(exec, streams[0]));
            launched[self]++;
            count++;
            break;
        case 4:
            if (slot->kind == MAPPED) turn(slot, &random, stream);
            break;
        default: break;
        }
        if (slot->kind >= 0) wrong[self] += !all_are(window(slot, which), WINDOW, slot->value);
    }
    OK(cuStreamSynchronize(streams[0]));
    wrong[self] += !all_are(counter, WINDOW, count);
    for (int i = 0; i < pieces; i++) {
        if (slots[i].kind < 0) continue;
        for (int j = 0; j < 3; j++) wrong[self] += !all_are(window(&slots[i], j), WINDOW, slots[i].value);
        drop(&slots[i], &random, streams[0]);
    }
    for (int i = 0; i < 2; i++) {
        OK(cuStreamSynchronize(streams[i]));
        OK(cuStreamDestroy_v2(streams[i]));
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(counter));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t all[16];
    CUmemPoolProps properties;
    uint64_t most = 4 * MIB;
    size_t before = 0, after = 0, total;
    if (argc > 1) steps = atoi(argv[1]);
    if (argc > 2) threads = atoi(argv[2]);
    if (argc > 3) first = strtoul(argv[3], NULL, 10);
    if (argc > 4) pieces = atoi(argv[4]);
    if (argc > 5) kinds = atoi(argv[5]);
    cu_start();
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    MORE(CU_LOAD)
    memset(&properties, 0, sizeof properties);
    properties.allocType = 1;
    properties.location = (CUmemLocation){1, device};
    OK(cuMemPoolCreate(&own, &properties));
    OK(cuMemPoolSetAttribute(own, 4, &most));
    OK(cuMemGetInfo_v2(&before, &total));
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, work, (void *)(intptr_t)i);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    for (int i = 0; i < threads; i++) {
        CHECK("a thread's contents", wrong[i] == 0);
        printf("ok %d launches of a graph\n", launched[i]);
    }
    OK(cuMemPoolDestroy(own));
    /* ALONE: no other program has memory of this device. A driver takes memory that was freed in a stream's order back a moment later. */
    for (int i = 0; i < 10000 && after != before && getenv("ALONE"); i++) {
        OK(cuCtxSynchronize());
        OK(cuMemGetInfo_v2(&after, &total));
        if (after != before) usleep(1000);
    }
    CHECK("all of it is free again", after == before || !getenv("ALONE"));
    OK(cuDevicePrimaryCtxRelease_v2(device));
    CHECK("the context is released", 1);
    CHECKS_DONE;
}
