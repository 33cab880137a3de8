/* Events: order across streams, queries, times. */
#include "hip.h"

#define N 1000

int main(void)
{
    need_device();
    hipStream_t one = 0, two = 0;
    hipEvent_t start = 0, stop = 0, untimed = 0;
    float *x = 0, host[N], ms = -1;
    OK(hipMalloc(&x, N * sizeof *x));
    OK(hipStreamCreateWithFlags(&one, 1));
    OK(hipStreamCreateWithFlags(&two, 1));
    OK(hipEventCreate(&start));
    OK(hipEventCreateWithFlags(&stop, 1));
    OK(hipEventCreateWithFlags(&untimed, 2));

    GIVES("an event never recorded is done", SUCCESS, hipEventQuery(start));
    OK(hipEventRecord(start, one));
    OK(run_spin(50000000, one));
    OK(hipEventRecord(stop, one));
    CHECK("not yet", hipEventQuery(stop) == NOT_READY);
    GIVES("another stream waits for it", SUCCESS, hipStreamWaitEvent(two, stop, 0));
    OK(run_fill(x, N, 3, two));
    OK(hipStreamSynchronize(two));
    GIVES("so it is done when that is", SUCCESS, hipEventQuery(stop));
    OK(hipMemcpy(host, x, sizeof host, DEVICE_TO_HOST));
    CHECK("and that is right", all_are(host, N, 3));
    OK(hipEventSynchronize(stop));
    GIVES("the time between", SUCCESS, hipEventElapsedTime(&ms, start, stop));
    CHECK("is at least the kernel's", ms >= 49.5f);
    OK(hipEventRecord(untimed, one));
    OK(hipEventSynchronize(untimed));
    CHECK("an event without time has none", hipEventElapsedTime(&ms, start, untimed) == INVALID_HANDLE);
    OK(hipEventRecord(stop, 0));
    OK(hipEventSynchronize(stop));
    GIVES("recorded again, on the null stream", SUCCESS, hipEventQuery(stop));
    OK(hipEventDestroy(start));
    OK(hipEventDestroy(stop));
    OK(hipEventDestroy(untimed));
    OK(hipStreamDestroy(one));
    OK(hipStreamDestroy(two));
    CHECKS_DONE;
}
