/* Memory that a program has besides what it allocates. A line is answered, once it is done, by "told RESULT FREE TOTAL", then total and
 * used memory by both versions of the management library, the size of the device, and the management library's figure of this process:
 *
 *   take MIB, order MIB   allocates plainly, or in the order of a stream; free frees the last of these
 *   load, unload          a module more or less, which has FAKECUDA_MODULE_MIB
 *   reset                 ends the primary context with all that is in it, and makes it anew
 *   tell                  nothing */
#include "cu.h"

enum { MIB = 1 << 20, MOST = 64 };

static CUstream stream;
static struct piece {
    CUdeviceptr at;
    int ordered;
} pieces[MOST];
static CUmodule modules[MOST];
static int held, loaded;

typedef struct { unsigned pid; unsigned long long bytes; unsigned instances[2]; } process_t;

static void tell(CUresult got)
{
    static void *library, *board;
    struct { unsigned long long total, free, used; } first;
    struct { unsigned version; unsigned long long total, reserved, free, used; } second = {.version = sizeof second | 2u << 24};
    process_t processes[16];
    unsigned count = 16;
    size_t unused, total, whole;
    unsigned long long own = 0;
    if (!library) {
        library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        OK(!library || ((int (*)(void))dlsym(library, "nvmlInit_v2"))()
           || ((int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &board));
    }
    OK(cuMemGetInfo_v2(&unused, &total));
    OK(cuDeviceTotalMem_v2(&whole, device));
    OK(((int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo"))(board, &first));
    OK(((int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2"))(board, &second));
    OK(((int (*)(void *, unsigned *, void *))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"))(board, &count, processes));
    for (unsigned n = 0; n < count; n++)
        own += processes[n].pid == (unsigned)getpid() ? processes[n].bytes : 0;
    printf("told %d %zu %zu %llu %llu %llu %llu %zu %llu\n", got, unused, total, first.total, first.used, second.total, second.used,
           whole, own);
    fflush(stdout);
}

static CUresult reset(void)
{
    CUresult got = cuDevicePrimaryCtxReset_v2(device);
    held = loaded = 0;
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    return got;
}

static CUresult take(size_t bytes, int ordered)
{
    struct piece *piece = &pieces[held];
    CUresult got = ordered ? cuMemAllocAsync(&piece->at, bytes, stream) : cuMemAlloc_v2(&piece->at, bytes);
    piece->ordered = ordered;
    held += !got;
    OK(cuStreamSynchronize(stream));
    return got;
}

static CUresult give(void)
{
    struct piece *piece = &pieces[--held];
    CUresult got = piece->ordered ? cuMemFreeAsync(piece->at, stream) : cuMemFree_v2(piece->at);
    OK(cuStreamSynchronize(stream));
    return got;
}

int main(void)
{
    char line[64];
    cu_start();
    OK(cuStreamCreate(&stream, NON_BLOCKING));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        CUresult got = 0;
        if (!strncmp(line, "take ", 5))
            got = take(strtoul(line + 5, NULL, 10) * MIB, 0);
        else if (!strncmp(line, "order ", 6))
            got = take(strtoul(line + 6, NULL, 10) * MIB, 1);
        else if (!strncmp(line, "free", 4))
            got = give();
        else if (!strncmp(line, "load", 4))
            got = cuModuleLoadData(&modules[loaded++], KERNELS);
        else if (!strncmp(line, "unload", 6))
            got = cuModuleUnload(modules[--loaded]);
        else if (!strncmp(line, "reset", 5))
            got = reset();
        tell(got);
    }
    return checks_failed;
}
