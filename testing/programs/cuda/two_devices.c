/* Memory on two devices, 8 MiB at a time until each refuses: "ok device D: N plain, M ordered, error E, T MiB in all". */
#include "cu.h"

enum { MIB = 1 << 20, MOST = 64 };

int main(void)
{
    CUcontext contexts[2];
    CUstream streams[2];
    cu_start();
    for (int d = 0; d < 2; d++) {
        OK(cuDevicePrimaryCtxRetain(&contexts[d], d));
        OK(cuCtxSetCurrent(contexts[d]));
        OK(cuStreamCreate(&streams[d], NON_BLOCKING));
    }
    /* The streams decide, whichever context is current. */
    for (int d = 0; d < 2; d++) {
        CUdeviceptr pieces[MOST], p;
        size_t unused, total;
        CUresult got = 0;
        int ordered = 0, plain = 0;
        OK(cuCtxSetCurrent(contexts[1 - d]));
        while (ordered < 3 + d && !(got = cuMemAllocAsync(&pieces[ordered], 8 * MIB, streams[d])))
            ordered++;
        OK(cuCtxSetCurrent(contexts[d]));
        while (plain < MOST && !(got = cuMemAlloc_v2(&p, 8 * MIB)))
            plain++;
        OK(cuMemGetInfo_v2(&unused, &total));
        printf("ok device %d: %d plain, %d ordered, error %d, %zu MiB in all\n", d, plain, ordered, got, total / MIB);
        CHECK("nothing is left", unused < 8ul * MIB);
    }
    CHECKS_DONE;
}
