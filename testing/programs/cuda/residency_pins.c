/* Memory of each kind that must stay on the device, left for the end of the process. */
#include "cu.h"

enum { MIB = 1 << 20, UNIT = 2 * MIB, SYNC_MEMOPS = 6 };

typedef struct { char bytes[64]; } CUipcMemHandle;

#define MORE(F)                                                                                                        \
    F(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr))                                                              \
    F(cuPointerSetAttribute, (const void *, int, CUdeviceptr))
MORE(CU_DECLARE)

int main(void)
{
    cu_start();
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    MORE(CU_LOAD)
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = 1, .location = {1, device}};
    CUmemAccessDesc both = {.location = {1, device}, .flags = 3};
    CUdeviceptr at[5];
    CUipcMemHandle handle;
    uint64_t memory[2];
    unsigned on = 1;
    int fd;
    for (int i = 0; i < 3; i++) OK(cuMemAlloc_v2(&at[i], (i + 1) * UNIT));
    for (int i = 0; i < 2; i++) {
        OK(cuMemAddressReserve(&at[3 + i], 4 * UNIT, 0, 0, 0));
        OK(cuMemCreate(&memory[i], 2 * UNIT, &properties, 0));
        for (int twice = 0; twice <= i; twice++) {
            OK(cuMemMap(at[3 + i] + twice * 2 * UNIT, 2 * UNIT, 0, memory[i], 0));
            OK(cuMemSetAccess(at[3 + i] + twice * 2 * UNIT, 2 * UNIT, &both, 1));
        }
    }
    for (int i = 0; i < 5; i++) OK(launch_fill(NULL, at[i], 1024, (float)i));
    OK(cuCtxSynchronize());
    /* The driver refuses it for memory in chunks; it stays none the less. */
    (void)cuPointerSetAttribute(&on, SYNC_MEMOPS, at[0]);
    GIVES("shared the old way", SUCCESS, cuIpcGetMemHandle(&handle, at[2]));
    GIVES("shared by a descriptor", SUCCESS, cuMemExportToShareableHandle(&fd, memory[0], 1, 0));
    usleep(50000);
    for (int i = 0; i < 5; i++) CHECK("contents", all_are(at[i], 1024, (float)i));
    CHECKS_DONE;
}
