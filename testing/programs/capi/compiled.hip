// A program of the C API for AMD's compiler, with HIP's own header: a stream, an XQueue over it, commands that launch a kernel by
// <<<>>>, suspended and resumed by the program. The kernel's name and arguments are ones that a software runtime stands in for.
#include <hip/hip_runtime.h>
#include <xsched/hip/hal.h>
#include <xsched/xsched.h>

#include <atomic>
#include <cstdio>

__global__ void axpy(unsigned n, float a, float *x, float *y)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        y[i] += a * x[i];
    }
}

static int failed;

static void check(const char *what, bool holds)
{
    printf("%s %s\n", holds ? "ok" : "FAIL", what);
    failed |= !holds;
}

#define HIP(call) check(#call, (call) == hipSuccess)
#define XSCHED(call) check(#call, (call) == kXSchedSuccess)

constexpr unsigned N = 1000;
constexpr int COMMANDS = 20;

struct Work {
    hipStream_t stream = nullptr;
    float *x = nullptr, *y = nullptr;
    std::atomic<int> launched{0};
};

static XResult add(HwQueueHandle, void *data)
{
    Work *work = static_cast<Work *>(data);
    axpy<<<dim3(4), dim3(256), 0, work->stream>>>(N, 1.0f, work->x, work->y);
    work->launched++;
    return hipGetLastError() == hipSuccess ? kXSchedSuccess : kXSchedErrorHardware;
}

static void submit(XQueueHandle queue, Work *work)
{
    int refused = 0;
    for (int i = 0; i < COMMANDS; i++) {
        HwCommandHandle command = 0;
        refused += HwCommandCreateCallback(&command, add, work) != kXSchedSuccess;
        refused += XQueueSubmit(queue, command) != kXSchedSuccess;
        refused += HwCommandDestroy(command) != kXSchedSuccess;
    }
    check("each command is taken", refused == 0);
}

static float first(Work *work)
{
    float value = 0;
    HIP(hipMemcpy(&value, work->y, sizeof value, hipMemcpyDeviceToHost));
    return value;
}

int main()
{
    Work work;
    float ones[N];
    for (float &one : ones) {
        one = 1;
    }
    HIP(hipMalloc(&work.x, sizeof ones));
    HIP(hipMalloc(&work.y, sizeof ones));
    HIP(hipMemcpy(work.x, ones, sizeof ones, hipMemcpyHostToDevice));
    HIP(hipMemset(work.y, 0, sizeof ones));
    HIP(hipStreamCreate(&work.stream));

    HwQueueHandle hardware = 0;
    XQueueHandle queue = 0;
    XSCHED(HipQueueCreate(&hardware, work.stream));
    XSCHED(XQueueCreate(&queue, hardware, kPreemptLevelBlock, kQueueCreateFlagNone));
    XSCHED(XHintPriority(queue, 7));
    submit(queue, &work);
    XSCHED(XQueueWaitAll(queue));
    check("each was launched and is complete", work.launched == COMMANDS && first(&work) == COMMANDS);

    XSCHED(XQueueSuspend(queue, kQueueSuspendFlagSyncHwQueue));
    submit(queue, &work);
    check("a suspended queue launches nothing", work.launched == COMMANDS);
    XSCHED(XQueueResume(queue, kQueueResumeFlagNone));
    XSCHED(XQueueWaitAll(queue));
    check("a resumed one launches what was submitted", work.launched == 2 * COMMANDS && first(&work) == 2 * COMMANDS);

    XSCHED(XQueueDestroy(queue));
    XSCHED(HwQueueDestroy(hardware));
    HIP(hipStreamDestroy(work.stream));
    HIP(hipFree(work.x));
    HIP(hipFree(work.y));
    return failed;
}
