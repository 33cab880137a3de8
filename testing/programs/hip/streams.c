/* Streams: order within one, the implicit barriers of the null stream, priorities, callbacks. */
#include "hip.h"

#define N 1000
#define LONG_NS 50000000

static int called;

static void called_back(hipStream_t stream, hipError_t status, void *data)
{
    /* The program's own handle comes back. */
    called += stream == data && status == SUCCESS;
}

static void host_function(void *data)
{
    *(int *)data += 1;
}

int main(void)
{
    need_device();
    hipStream_t blocking = 0, other = 0, stream = 0;
    float *x = 0, host[N];
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipStreamCreate(&blocking));
    OK(hipStreamCreateWithFlags(&other, 1));

    volatile uint32_t *word = 0;
    OK(hipHostMalloc(&word, 64, 0));
    *word = 0;
    OK(hipStreamWaitValue32(blocking, (void *)word, 1, WAIT_EQ, ~0u));
    OK(run_spin(LONG_NS, blocking));
    CHECK("a stream with work is not ready", hipStreamQuery(blocking) == NOT_READY);
    *word = 1;
    OK(run_fill(x, N, 4, 0));
    OK(hipStreamSynchronize(0));
    GIVES("the null stream waits for blocking streams", SUCCESS, hipStreamQuery(blocking));
    OK(hipMemcpyAsync(host, x, sizeof host, DEVICE_TO_HOST, blocking));
    OK(hipStreamSynchronize(blocking));
    CHECK("its work is done", all_are(host, N, 4));

    *word = 0;
    OK(hipStreamWaitValue32(other, (void *)word, 1, WAIT_EQ, ~0u));
    OK(run_fill(x, N, 5, LEGACY));
    OK(hipStreamSynchronize(LEGACY));
    CHECK("but not for others", hipStreamQuery(other) == NOT_READY);
    OK(hipMemcpy(host, x, sizeof host, DEVICE_TO_HOST));
    *word = 1;
    CHECK("legacy is the null stream", all_are(host, N, 5));
    OK(hipStreamSynchronize(other));

    int least = 7, greatest = 7, priority = 7;
    OK(hipDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK("priorities go from 1 to -1", least == 1 && greatest == -1);
    OK(hipStreamCreateWithPriority(&stream, 1, -1));
    OK(hipStreamGetPriority(stream, &priority));
    CHECK("high", priority == -1);
    OK(hipStreamDestroy(stream));
    OK(hipStreamCreateWithPriority(&stream, 1, 100));
    OK(hipStreamGetPriority(stream, &priority));
    CHECK("others clamp", priority == 1);
    unsigned flags = 7;
    OK(hipStreamGetFlags(stream, &flags));
    CHECK("flags are told", flags == 1);

    int count = 0;
    OK(run_spin(LONG_NS, stream));
    GIVES("a callback", SUCCESS, hipStreamAddCallback(stream, called_back, stream, 0));
    hipError_t (*launch)(hipStream_t, hipHostFn_t, void *) =
        (hipError_t(*)(hipStream_t, hipHostFn_t, void *))dlsym(RTLD_DEFAULT, "hipLaunchHostFunc");
    if (launch) { /* since 5.3 */
        OK(launch(stream, host_function, &count));
    } else {
        count = 1;
    }
    OK(hipStreamSynchronize(stream));
    CHECK("has run in the stream's turn", called == 1 && count == 1);
    OK(hipStreamDestroy(stream));
    OK(hipStreamDestroy(other));
    OK(hipStreamDestroy(blocking));
    CHECKS_DONE;
}
