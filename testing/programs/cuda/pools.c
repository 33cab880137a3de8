/* Memory pools: what they take of the device, what they keep, and attributes. */
#include "cu.h"

enum { MIB = 1 << 20, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };

static size_t free_bytes(void)
{
    size_t unused = 0, total = 0;
    OK(cuMemGetInfo_v2(&unused, &total));
    return unused;
}

static uint64_t of(CUmemoryPool pool, int which)
{
    uint64_t value = 77;
    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static CUresult set(CUmemoryPool pool, int which, uint64_t value)
{
    return cuMemPoolSetAttribute(pool, which, &value);
}

int main(void)
{
    cu_start();
    cu_functions();
    CUstream s;
    CUdeviceptr p, q;
    CUmemoryPool own, other, now, gone;
    CUmemPoolProps properties = {.allocType = 1, .location = {1, device}};
    int n = 1 << 18, reuse = 0;
    float value = 5, back[4] = {0};
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&own, device));
    GIVES("the pool in use", SUCCESS, cuDeviceGetMemPool(&now, device));
    CHECK("is the device's own", now == own);
    CHECK("it keeps nothing", of(own, THRESHOLD) == 0);
    OK(cuMemPoolGetAttribute(own, 1, &reuse));
    CHECK("it may reuse", reuse == 1);

    size_t before = free_bytes();
    GIVES("memory", SUCCESS, cuMemAllocAsync(&p, 8 * MIB, s));
    CHECK("in use", of(own, USED) == 8 * MIB && of(own, USED_HIGH) == 8 * MIB);
    CHECK("reserved", of(own, RESERVED) >= 8 * MIB);
    CHECK("is not free", free_bytes() + 8 * MIB <= before);
    void *arguments[] = {&n, &value, &p};
    OK(cuLaunchKernel(fill, 64, 1, 1, 256, 1, 1, 0, s, arguments, NULL));
    OK(cuMemcpyDtoHAsync_v2(back, p, sizeof back, s));
    GIVES("none", INVALID_VALUE, cuMemAllocAsync(&q, 0, s));
    GIVES("freed", SUCCESS, cuMemFreeAsync(p, s));
    GIVES("synchronised", SUCCESS, cuStreamSynchronize(s));
    CHECK("a kernel wrote there", back[0] == 5 && back[3] == 5);
    CHECK("none is in use, and none reserved", of(own, USED) == 0 && of(own, RESERVED) == 0);
    CHECK("all is free", free_bytes() == before);
    CHECK("the highest is known", of(own, USED_HIGH) == 8 * MIB && of(own, RESERVED_HIGH) >= 8 * MIB);
    GIVES("made present", SUCCESS, set(own, USED_HIGH, 0));
    GIVES("only that", INVALID_VALUE, set(own, USED_HIGH, 5));
    CHECK("it is 0", of(own, USED_HIGH) == 0);

    GIVES("another pool", SUCCESS, cuMemPoolCreate(&other, &properties));
    GIVES("that keeps memory", SUCCESS, set(other, THRESHOLD, UINT64_MAX));
    GIVES("memory of it", SUCCESS, cuMemAllocFromPoolAsync(&p, 16 * MIB, other, s));
    CHECK("not of the first", of(own, USED) == 0 && of(other, USED) == 16 * MIB);
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamSynchronize(s));
    uint64_t kept = of(other, RESERVED);
    CHECK("stays with the pool", of(other, USED) == 0 && kept >= 16 * MIB && free_bytes() + 16 * MIB <= before);
    GIVES("and comes from it", SUCCESS, cuMemAllocFromPoolAsync(&p, 16 * MIB, other, s));
    CHECK("not from the device", of(other, RESERVED) == kept);
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamSynchronize(s));
    GIVES("trimmed", SUCCESS, cuMemPoolTrimTo(other, 0));
    CHECK("is the device's", of(other, RESERVED) == 0 && free_bytes() == before);

    GIVES("in use", SUCCESS, cuDeviceSetMemPool(device, other));
    GIVES("for what names none", SUCCESS, cuMemAllocAsync(&p, MIB, s));
    CHECK("it is", of(other, USED) == MIB && of(own, USED) == 0);
    GIVES("more than there is", OUT_OF_MEMORY, cuMemAllocAsync(&q, before + 64 * MIB, s));
    CHECK("leaves nothing behind", of(other, USED) == MIB);
    GIVES("destroyed", SUCCESS, cuMemPoolDestroy(other));
    OK(cuDeviceGetMemPool(&now, device));
    CHECK("the own one is in use again", now == own);
    CHECK("its memory is still there", free_bytes() < before);
    GIVES("freed at once", SUCCESS, cuMemFree_v2(p));
    CHECK("and gone with it", free_bytes() == before);
    GIVES("the device's own", INVALID_VALUE, cuMemPoolDestroy(own));

    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.allocType = 1, .locationType = 1, .locationId = device, .bytesize = 4 * MIB};
    uint64_t graphs = 77, none = 0;
    OK(cuCtxSynchronize());
    OK(cuDeviceGraphMemTrim(device));
    before = free_bytes();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    OK(cuGraphAddMemFreeNode(&node, graph, &node, 1, alloc.dptr));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    GIVES("highest amount of graphs", SUCCESS, cuDeviceGetGraphMemAttribute(device, 1, &graphs));
    CHECK("is the node's", graphs >= 4 * MIB);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    GIVES("what graphs keep", SUCCESS, cuDeviceGraphMemTrim(device));
    CHECK("is back", free_bytes() == before);
    OK(cuDeviceGetGraphMemAttribute(device, 0, &graphs));
    CHECK("none is in use", graphs == 0);
    GIVES("highest amount made present", SUCCESS, cuDeviceSetGraphMemAttribute(device, 1, &none));
    OK(cuDeviceGetGraphMemAttribute(device, 1, &graphs));
    CHECK("is none", graphs == 0);

    properties.maxSize = 4 * MIB;
    GIVES("a small one", SUCCESS, cuMemPoolCreate(&gone, &properties));
    GIVES("has room for little", OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&p, 16 * MIB, gone, s));
    GIVES("destroyed", SUCCESS, cuMemPoolDestroy(gone));
    OK(cuStreamDestroy_v2(s));
    CHECKS_DONE;
}
