/* Contexts: several, current and not, pushed and popped, destroyed with work in them, reset. */
#include "cu.h"

enum { N = 256 };

static float first_of(CUdeviceptr p)
{
    float value = -1;
    OK(cuMemcpyDtoH_v2(&value, p, 4));
    return value;
}

int main(void)
{
    cu_start();
    CUcontext other, seen;
    CUdevice of = -1;
    CUdeviceptr mine, its;
    CUfunction my_fill = fill;
    CUstream s, mine_too;
    CUevent event;
    unsigned flags;
    int active;
    uint64_t ids[3];

    OK(cuMemAlloc_v2(&mine, N * 4));
    OK(launch_fill(NULL, mine, N, 1));
    GIVES("create", SUCCESS, cuCtxCreate_v2(&other, 0, device));
    OK(cuCtxGetCurrent(&seen));
    CHECK("it is current", seen == other && other != context);
    OK(cuCtxGetDevice(&of));
    CHECK("its device", of == device);
    OK(cuCtxGetId(other, &ids[0]));
    OK(cuCtxGetId(context, &ids[1]));
    OK(cuCtxGetId(NULL, &ids[2]));
    CHECK("ids", ids[0] != ids[1] && ids[0] == ids[2]);
    cu_functions();
    OK(cuMemAlloc_v2(&its, N * 4));
    OK(launch_fill(NULL, its, N, 2));
    CHECK("work in it", all_are(its, N, 2));

    GIVES("pop", SUCCESS, cuCtxPopCurrent_v2(&seen));
    CHECK("it was that", seen == other);
    OK(cuCtxGetCurrent(&seen));
    CHECK("below it the first", seen == context);
    CHECK("whose work is done", all_are(mine, N, 1));
    fill = my_fill;
    OK(launch_fill(NULL, mine, N, 3));
    CHECK("and goes on", all_are(mine, N, 3));

    /* A stream of one waits for an event of the other. */
    OK(cuStreamCreate(&mine_too, NON_BLOCKING));
    OK(cuCtxPushCurrent_v2(other));
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuEventCreate(&event, DISABLE_TIMING));
    OK(launch_spin(s, 20000));
    OK(cuEventRecord(event, s));
    OK(cuCtxPopCurrent_v2(NULL));
    GIVES("wait for another context's event", SUCCESS, cuStreamWaitEvent(mine_too, event, 0));
    OK(launch_fill(mine_too, mine, N, 4));
    OK(cuStreamSynchronize(mine_too));
    OK(cuCtxPushCurrent_v2(other));
    GIVES("it was waited for", SUCCESS, cuEventQuery(event));

    OK(launch_spin(s, 20000));
    GIVES("destroy", SUCCESS, cuCtxDestroy_v2(other));
    OK(cuCtxGetCurrent(&seen));
    CHECK("it is current no more", seen == context);
    CHECK("the first one goes on", first_of(mine) == 4);

    for (int i = 0; i < 20; i++) {
        OK(cuCtxCreate_v2(&other, 0, device));
        OK(cuMemAlloc_v2(&its, N * 4));
        OK(cuMemsetD32_v2(its, 0, N));
        OK(cuCtxDestroy_v2(other));
    }
    CHECK("contexts come and go", first_of(mine) == 4);

    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    CHECK("the primary context is active", active == 1);
    OK(cuDevicePrimaryCtxRetain(&seen, device));
    CHECK("it is one", seen == context);
    OK(cuDevicePrimaryCtxRelease_v2(device));
    GIVES("reset", SUCCESS, cuDevicePrimaryCtxReset_v2(device));
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    CHECK("then it is not active", active == 0);
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    cu_functions();
    OK(cuMemAlloc_v2(&mine, N * 4));
    OK(launch_fill(NULL, mine, N, 5));
    CHECK("and used anew", all_are(mine, N, 5));
    GIVES("release", SUCCESS, cuDevicePrimaryCtxRelease_v2(device));
    OK(cuCtxSetCurrent(NULL));
    OK(cuCtxGetCurrent(&seen));
    CHECK("no context", seen == NULL);
    CHECKS_DONE;
}
