/* Memory that may leave the device, at the end of its context or of the process. Argument: `reset`, with work in flight; `exit`, which a
 * handler of the program follows that uses memory and comes before or after the driver's; `early`, like `exit`, with a handler that is
 * registered before the driver is there. */
#include "cu.h"

enum { MIB = 1 << 20, WINDOW = 4096, LARGE = 40 * MIB };

static CUdeviceptr memory;

static void use(void)
{
    float value[4] = {0};
    CUresult copied = cuMemcpyDtoH_v2(value, memory + LARGE - 16, 16);
    CUresult freed = cuMemFree_v2(memory);
    printf("ok at the end: copy %d, value %g, free %d\n", copied, value[0], freed);
    fflush(stdout);
}

static void fill_all(CUstream stream, float value)
{
    for (size_t at = 0; at < LARGE; at += 4 * MIB) OK(launch_fill(stream, memory + at, MIB, value));
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "reset";
    if (!strcmp(way, "early")) atexit(use);
    cu_start();
    OK(cuMemAlloc_v2(&memory, LARGE));
    for (int round = 0; round < 5; round++) {
        CUstream stream;
        OK(cuStreamCreate(&stream, NON_BLOCKING));
        fill_all(stream, (float)round);
        OK(cuStreamSynchronize(stream));
        CHECK("contents", all_are(memory + LARGE - 4 * WINDOW, WINDOW, (float)round));
        usleep(2000);
        if (strcmp(way, "reset")) {
            OK(cuStreamDestroy_v2(stream));
            continue;
        }
        OK(launch_spin(stream, 5000));
        fill_all(stream, -1);
        GIVES("the context goes, work in flight too", SUCCESS, cuDevicePrimaryCtxReset_v2(device));
        OK(cuDevicePrimaryCtxRetain(&context, device));
        OK(cuCtxSetCurrent(context));
        cu_functions();
        GIVES("and there is a new one", SUCCESS, cuMemAlloc_v2(&memory, LARGE));
    }
    if (!strcmp(way, "exit")) atexit(use);
    CHECKS_DONE;
}
