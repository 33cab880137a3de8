/* The software driver only: what a real one may crash on is answered and counted, unimplemented functions say so, the
 * counters tell what ran, and the resource manager is asked for time slices. */
#include "cu.h"
#include <sys/ioctl.h>
#include <sys/wait.h>

enum { KERNELS_RUN, GRAPH_KERNELS, COPIES, GRAPH_COPIES, SETS, GRAPH_SETS, GRAPH_LAUNCHES, HOST_FUNCTIONS, WAITS,
       WRITES, RECORDS, CAPTURED, CONTEXTS, HOST_RANGES, ILLEGAL, COUNTERS };

static size_t (*counters)(uint64_t *, size_t);
static int (*manager)(int, unsigned long, void *);

static uint64_t counted(int which)
{
    uint64_t all[COUNTERS] = { 0 };
    CHECK("counters", counters(all, COUNTERS) == COUNTERS);
    return all[which];
}

static void illegal(void)
{
    CUstream s;
    CUevent e;
    CUdeviceptr p = 0;
    int value = 0;
    uint64_t before = counted(ILLEGAL);
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuEventCreate(&e, 0));
    OK(cuStreamDestroy_v2(s));
    OK(cuEventDestroy_v2(e));
    GIVES("a stream that is gone", INVALID_HANDLE, launch(empty, s, NULL));
    GIVES("an event that is gone", INVALID_HANDLE, cuEventQuery(e));
    GIVES("destroyed twice", INVALID_HANDLE, cuStreamDestroy_v2(s));
    GIVES("an event is no stream", INVALID_HANDLE, cuStreamQuery((CUstream)e));
    GIVES("a wait on memory that is not known", INVALID_VALUE,
          cuStreamWaitValue32_v2(NULL, (CUdeviceptr)(uintptr_t)&value, 1, 0));
    GIVES("memory freed twice", INVALID_VALUE, cuMemFree_v2(p + 4096));
    CHECK("each is counted", counted(ILLEGAL) == before + 6);
}

static void contexts(void)
{
    CUcontext other;
    CUstream s;
    OK(cuCtxCreate_v2(&other, 0, device));
    OK(cuStreamCreate(&s, 0));
    OK(cuCtxDestroy_v2(other));
    GIVES("a stream whose context is gone", INVALID_HANDLE, cuStreamQuery(s));
    GIVES("a context that is gone", CONTEXT_IS_DESTROYED, cuCtxSetCurrent(other));
    GIVES("handed to a function of another", INVALID_HANDLE, ({
              CUcontext third;
              OK(cuCtxCreate_v2(&third, 0, device));
              CUresult result = launch(empty, NULL, NULL);
              OK(cuCtxDestroy_v2(third));
              result;
          }));
}

static void counts(void)
{
    CUdeviceptr p;
    CUstream s;
    CUgraph graph;
    CUgraphExec exec;
    uint64_t kernels = counted(KERNELS_RUN), copies = counted(COPIES), sets = counted(SETS);
    OK(cuMemAlloc_v2(&p, 1024));
    OK(cuStreamCreate(&s, NON_BLOCKING));
    OK(cuMemsetD8Async(p, 1, 1024, s));
    OK(cuMemcpyDtoDAsync_v2(p, p + 512, 512, s));
    for (int i = 0; i < 10; i++) {
        OK(launch(empty, s, NULL));
    }
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    OK(launch(empty, s, NULL));
    OK(launch(empty, s, NULL));
    OK(cuStreamEndCapture(s, &graph));
    CHECK("captured", counted(CAPTURED) == 2 && counted(KERNELS_RUN) == kernels + 10);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK("kernels", counted(KERNELS_RUN) == kernels + 14 && counted(GRAPH_KERNELS) == 4);
    CHECK("graphs", counted(GRAPH_LAUNCHES) == 2);
    CHECK("copies and sets", counted(COPIES) == copies + 1 && counted(SETS) == sets + 1);
    CHECK("contexts", counted(CONTEXTS) == 3);
}

static void unsupported(void)
{
    CUresult (*texture)(void *) = NULL;
    *(void **)&texture = dlsym(RTLD_DEFAULT, "cuTexRefDestroy");
    GIVES("what is not implemented says so", NOT_SUPPORTED, texture(NULL));
}

/* Calls as in the open kernel module, to the group of the compute engine of the only context. */
static int control(unsigned command, uint64_t *value)
{
    struct {
        uint32_t client, object, command, flags;
        uint64_t params;
        uint32_t size, status;
    } call = { 0xc1d00001, 0x5c000010, command, 0, (uintptr_t)value, sizeof *value, 99 };
    for (int fd = 3; fd < 64; fd++) {
        if (manager(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2a, sizeof call), &call) == 0) {
            return (int)call.status;
        }
    }
    return -1;
}

static void slices(void)
{
    uint64_t us = 0;
    CHECK("a slice is told", control(0xa06c0104, &us) == 0);
    const char *expected = getenv("EXPECT_TIMESLICE_US");
    CHECK("as it was set", us == (expected ? strtoull(expected, NULL, 10) : 2048));
    us = 500;
    CHECK("another is set", control(0xa06c0103, &us) == 0);
    us = 0;
    CHECK("and told", control(0xa06c0104, &us) == 0 && us == 500);
    us = 0;
    CHECK("none is refused", control(0xa06c0103, &us) == 0x1f);
    CHECK("what is not known is refused", control(0xa06c01ff, &us) == 0x56);
    CHECK("an unknown descriptor is none of ours", manager(0, _IOC(3, 'F', 0x2a, 32), &us) == -1);
}

static void child(void)
{
    int status, count;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(cuDeviceGetCount(&count) == NOT_INITIALIZED && cuInit(0) == NOT_INITIALIZED ? 0 : 1);
    }
    CHECK("a forked child has no driver", waitpid(pid, &status, 0) == pid && status == 0);
    OK(launch(empty, NULL, NULL));
    GIVES("its parent does", SUCCESS, cuCtxSynchronize());
}

int main(void)
{
    cu_start();
    *(void **)&counters = dlsym(RTLD_DEFAULT, "fakeGetCounters");
    *(void **)&manager = dlsym(RTLD_DEFAULT, "fakeRmIoctl");
    if (!counters || !manager) {
        fprintf(stderr, "for the software driver only\n");
        return 3;
    }
    slices();
    illegal();
    contexts();
    counts();
    unsupported();
    child();
    CHECKS_DONE;
}
