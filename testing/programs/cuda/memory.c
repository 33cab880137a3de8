/* Memory of the device: how much there is, all refusals, the use by another process and its end by SIGKILL. */
#include "cu.h"

#include <signal.h>
#include <sys/wait.h>

enum { MIB = 1 << 20 };

static size_t free_bytes(void)
{
    size_t unused = 0, total = 0;
    OK(cuMemGetInfo_v2(&unused, &total));
    return unused;
}

/* Whether this many bytes become free; a real driver frees some time after the end of a process. */
static int becomes_free(size_t bytes)
{
    for (int i = 0; i < 10000; i++) {
        if (free_bytes() >= bytes)
            return 1;
        usleep(1000);
    }
    return 0;
}

/* A process that has memory of both kinds, and stays. */
static pid_t other(int told)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    CUdeviceptr plain;
    uint64_t handle;
    cu_start();
    CUmemAllocationProp properties = {.type = 1, .location = {1, device}};
    OK(cuMemAlloc_v2(&plain, 16 * MIB));
    OK(cuMemCreate(&handle, 8 * MIB, &properties, 0));
    if (write(told, "x", 1) != 1)
        exit(1);
    for (;;)
        pause();
}

/* Whether both versions of the management library's call tell the same as the driver. */
static int agrees(void)
{
    struct { unsigned long long total, free, used; } first;
    struct { unsigned version; unsigned long long total, reserved, free, used; } second;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *board;
    if (!library)
        return 0;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*one)(void *, void *) = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    int (*two)(void *, void *) = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    size_t unused = 0, total = 0;
    CUdeviceptr p;
    second.version = sizeof second | 2u << 24;
    OK(cuMemAlloc_v2(&p, 4 * MIB));
    OK(cuMemGetInfo_v2(&unused, &total));
    int same = !init() && !by_index(0, &board) && !one(board, &first) && !two(board, &second) && first.total == total
        && second.total == total && first.free == unused && second.free == unused && first.used == total - unused;
    OK(cuMemFree_v2(p));
    return same;
}

int main(void)
{
    int pipe_of[2], status;
    char byte;
    if (pipe(pipe_of))
        return 3;
    pid_t child = other(pipe_of[1]);
    int there = read(pipe_of[0], &byte, 1) == 1;
    cu_start();
    CHECK("another process has memory", there);
    size_t total = 0, told = 0, with_other = free_bytes(), unused;
    OK(cuDeviceTotalMem_v2(&total, device));
    OK(cuMemGetInfo_v2(&unused, &told));
    CHECK("both tell as much", total == told);
    const char *expected = getenv("EXPECT_MIB");
    CHECK("as much as is wanted", !expected || total == strtoull(expected, NULL, 10) * MIB);
    CHECK("what it has is not free", with_other + 24 * MIB <= total);
    CHECK("it is killed", !kill(child, SIGKILL) && waitpid(child, &status, 0) == child);
    CHECK("what it had is free", becomes_free(with_other + 24 * MIB));

    CHECK("the management library agrees", !getenv("FAKENVML") || agrees());

    size_t before = free_bytes();
    CUdeviceptr p = 7, q;
    GIVES("more than there is", OUT_OF_MEMORY, cuMemAlloc_v2(&p, total + MIB));
    GIVES("a handle for more than there is", OUT_OF_MEMORY,
          cuMemCreate(&p, (total / (2 * MIB) + 1) * 2 * MIB,
                      &(CUmemAllocationProp){.type = 1, .location = {1, device}}, 0));
    CHECK("refusals leave nothing behind", free_bytes() == before);
    GIVES("half of it", SUCCESS, cuMemAlloc_v2(&p, before / 2));
    CHECK("half is left", free_bytes() <= before - before / 2);
    GIVES("another two thirds", OUT_OF_MEMORY, cuMemAlloc_v2(&q, before / 3 * 2));
    GIVES("freed", SUCCESS, cuMemFree_v2(p));
    CHECK("all of it is back", free_bytes() == before);
    GIVES("two thirds now", SUCCESS, cuMemAlloc_v2(&p, before / 3 * 2));
    GIVES("with the context", SUCCESS, cuDevicePrimaryCtxReset_v2(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    CHECK("a context's memory ends with it", becomes_free(before));
    CHECKS_DONE;
}
