/* A client, perhaps of MPS, that does what the lines on stdin say, and answers each with a line.
 *
 * At its start it prints "init RESULT", then, if that is 0, "mps ENABLED", "devices COUNT FIRST" (the first one's PCI bus) and
 * "context RESULT". Then:
 *   give US   gives kernels: one that notes the time, one that takes so long, another that notes the time; "given RESULT".
 *             A gate before them opens when all are given, so that mostly nothing but the device is between their times.
 *   take      waits for them: "ran BEGIN END" in ns, or "failed RESULT"
 *   crash     runs a kernel that faults: "crash RESULT"
 *   assert    runs a kernel whose assertion fails: "assert RESULT" (the software driver only)
 *   sync      waits for the context: "sync RESULT"
 *   context   makes another context: "context RESULT"
 *   destroy   ends the newest one: "destroy RESULT"
 *   priority  tells its client priority as the driver finds it: "priority VALUE", -1 for none
 * The end of stdin, or of the context, is the end. */
#include "cu.h"

enum { MPS_ENABLED = 133, OTHERS = 64 };

static void say(const char *what, CUresult result)
{
    printf("%s %d\n", what, result);
    fflush(stdout);
}

int main(void)
{
    int count = 0, enabled = -1;
    char first[32] = "none", line[64];
    CUcontext others[OTHERS];
    int made = 0;
    cu_open();
    CUresult result = cuInit(0);
    say("init", result);
    if (result != SUCCESS) {
        return 0;
    }
    cuDeviceGetAttribute(&enabled, MPS_ENABLED, 0);
    say("mps", enabled);
    cuDeviceGetCount(&count);
    cuDeviceGetPCIBusId(first, sizeof first, 0);
    printf("devices %d %s\n", count, first);
    result = cuDevicePrimaryCtxRetain(&context, 0);
    say("context", result);
    if (result != SUCCESS) {
        return 0;
    }
    OK(cuCtxSetCurrent(context));
    cu_functions();
    CUdeviceptr at;
    CUstream s;
    volatile uint64_t *times = pinned(3 * sizeof *times, &at);
    volatile uint32_t *gate = (volatile uint32_t *)&times[2];
    unsigned gates = 0;
    OK(cuStreamCreate(&s, NON_BLOCKING));
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long us;
        if (strcmp(line, "priority\n") == 0) {
            const char *value = getenv("CUDA_MPS_CLIENT_PRIORITY");
            say("priority", value ? atoi(value) : -1);
            continue;
        }
        if (sscanf(line, "give %llu", &us) == 1) {
            result = cuStreamWaitValue32_v2(s, at + 16, ++gates, WAIT_GEQ);
            result = result == SUCCESS ? launch_stamp(s, at) : result;
            result = result == SUCCESS ? launch_spin(s, us) : result;
            result = result == SUCCESS ? launch_stamp(s, at + 8) : result;
            *gate = gates;
            say("given", result);
        } else if (!strcmp(line, "take\n")) {
            result = cuStreamSynchronize(s);
            if (result == SUCCESS) {
                printf("ran %llu %llu\n", (unsigned long long)times[0], (unsigned long long)times[1]);
                fflush(stdout);
            } else {
                say("failed", result);
            }
        } else if (!strcmp(line, "crash\n")) {
            CUfunction crash;
            result = cuModuleGetFunction(&crash, module, "crash");
            result = result == SUCCESS ? launch(crash, s, NULL) : result;
            say("crash", result == SUCCESS ? cuStreamSynchronize(s) : result);
        } else if (!strcmp(line, "assert\n")) {
            /* The software driver goes by the name. */
            CUmodule more;
            CUfunction fails;
            result = cuModuleLoadData(&more, ".version 6.0\n.visible .entry assert_false() { ret; }\n");
            result = result == SUCCESS ? cuModuleGetFunction(&fails, more, "assert_false") : result;
            result = result == SUCCESS ? launch(fails, s, NULL) : result;
            say("assert", result == SUCCESS ? cuStreamSynchronize(s) : result);
        } else if (!strcmp(line, "sync\n")) {
            say("sync", cuCtxSynchronize());
        } else if (!strcmp(line, "context\n") && made < OTHERS) {
            result = cuCtxCreate_v2(&others[made], 0, 0);
            made += result == SUCCESS;
            say("context", result);
            cuCtxSetCurrent(context);
        } else if (!strcmp(line, "destroy\n") && made > 0) {
            say("destroy", cuCtxDestroy_v2(others[--made]));
        } else {
            say("unknown", -1);
        }
    }
    return 0;
}
